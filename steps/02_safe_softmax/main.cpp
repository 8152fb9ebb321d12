#include "steps/02_safe_softmax/safe_softmax.hpp"

#include "common/harness/forward/forward.hpp"
#include "reference/check.hpp"

int main(int argc, char** argv) {
    return flash::rung_main({.name = "safe_softmax",
                             .fp32 = safe_softmax::attention,
                             .workspace_bytes = safe_softmax::workspace_bytes,
                             .check = flash::reference::check},
                            argc, argv);
}
