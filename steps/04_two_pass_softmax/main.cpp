#include "steps/04_two_pass_softmax/two_pass_softmax.hpp"

#include "common/harness/rung.hpp"
#include "reference/check.hpp"

int main(int argc, char** argv) {
    return flash::rung_main({.name = "04_two_pass_softmax",
                             .fp32 = step04::attention,
                             .check = flash::reference::check},
                            argc, argv);
}
