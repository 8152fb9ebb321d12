#include "steps/05_one_pass_softmax/one_pass_softmax.hpp"

#include "common/harness/forward/forward.hpp"
#include "reference/check.hpp"

int main(int argc, char** argv) {
    return flash::rung_main({.name = "one_pass_softmax",
                             .fp32 = one_pass_softmax::attention,
                             .check = flash::reference::check},
                            argc, argv);
}
