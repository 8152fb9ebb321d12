// For the chapters' commands. Written by CMake (common/cmake/ByHand.cmake).
// clang-format off
#include "common/harness/program/command_line.cpp"
#include "common/harness/program/input_tensors.cpp"
#include "common/harness/program/run_report_json.cpp"
#include "common/harness/program/run_report_text.cpp"
#include "common/harness/program/rung_main.cpp"
