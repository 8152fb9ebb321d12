#include "steps/03_three_pass_softmax/three_pass_softmax.hpp"

#include "common/harness/forward/forward.hpp"
#include "reference/check.hpp"

int main(int argc, char** argv) {
    return flash::rung_main({.name = "three_pass_softmax",
                             .fp32 = three_pass_softmax::attention,
                             .check = flash::reference::check},
                            argc, argv);
}
