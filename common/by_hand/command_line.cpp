// For the chapters' commands. Written by CMake (common/cmake/ByHand.cmake).
// clang-format off
#include "common/harness/program/rung_main.cpp"
