#include "steps/01_naive_attention/naive_attention.hpp"

#include "common/harness/rung.hpp"
#include "reference/check.hpp"

int main(int argc, char** argv) {
    return flash::rung_main({.name = "01_naive_attention",
                             .fp32 = step01::attention,
                             .workspace_bytes = step01::workspace_bytes,
                             .check = flash::reference::check,
                             .overflows = true},
                            argc, argv);
}
