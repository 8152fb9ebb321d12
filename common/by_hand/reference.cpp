// For the chapters' commands. Written by CMake (common/cmake/ByHand.cmake).
// clang-format off
#include "reference/check.cpp"
#include "reference/check_gradients.cpp"
#include "reference/expectation.cpp"
#include "reference/naive.cpp"
#include "reference/naive_gradients.cpp"
#include "reference/oracle.cpp"
#include "reference/oracle_gradients.cpp"
#include "reference/products.cpp"
#include "reference/sample.cpp"
