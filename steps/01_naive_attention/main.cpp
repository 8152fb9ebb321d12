#include "steps/01_naive_attention/naive_attention.hpp"

#include "common/harness/forward/forward.hpp"
#include "reference/check.hpp"

int main(int argc, char** argv) {
    return flash::rung_main({.name = "naive_attention",
                             .fp32 = naive_attention::attention,
                             .workspace_bytes = naive_attention::workspace_bytes,
                             .check = flash::reference::check,
                             .overflows = true},
                            argc, argv);
}
