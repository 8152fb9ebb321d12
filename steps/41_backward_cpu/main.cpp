#include "steps/41_backward_cpu/backward_cpu.hpp"

#include "common/harness/backward/backward.hpp"
#include "reference/check.hpp"

int main(int argc, char** argv) {
    return flash::rung_main({.name = "backward_cpu",
                             .fp32 = backward_cpu::attention_backward,
                             .check = flash::reference::check_gradients,
                             .forward = flash::reference::forward},
                            argc, argv);
}
