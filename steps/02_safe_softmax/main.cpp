#include "steps/02_safe_softmax/safe_softmax.hpp"

#include "common/harness/rung.hpp"
#include "reference/check.hpp"

int main(int argc, char** argv) {
    return flash::rung_main({.name = "02_safe_softmax",
                             .fp32 = step02::attention,
                             .workspace_bytes = step02::workspace_bytes,
                             .check = flash::reference::check},
                            argc, argv);
}
