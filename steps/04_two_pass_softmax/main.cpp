#include "steps/04_two_pass_softmax/two_pass_softmax.hpp"

#include "common/harness/forward/forward.hpp"
#include "reference/check.hpp"

int main(int argc, char** argv) {
    return flash::rung_main({.name = "two_pass_softmax",
                             .fp32 = two_pass_softmax::attention,
                             .check = flash::reference::check},
                            argc, argv);
}
