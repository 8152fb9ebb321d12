// The harness's command line and reports, for the chapters' commands (common/cmake/ByHand.cmake writes this list).
// clang-format off
#include "common/harness/program/command_line.cpp"
#include "common/harness/program/input_tensors.cpp"
#include "common/harness/program/run_report_json.cpp"
#include "common/harness/program/run_report_text.cpp"
#include "common/harness/program/rung_main.cpp"
