#include "steps/28_backward_ordered/backward_ordered.hpp"

#include "common/harness/device_backend.hpp"
#include "common/harness/rung.hpp"
#include "reference/gradients.hpp"

int main(int argc, char** argv) {
    return flash::rung_main({.name = "28_backward_ordered",
                             .backward = {.fp16 = step28::attention_backward<flash::Half>,
                                          .bf16 = step28::attention_backward<flash::Bfloat16>},
                             .head_dims = step28::head_dims,
                             .workspace_bytes = step28::workspace_bytes,
                             .backend = flash::device_backend,
                             .check = flash::reference::check_gradients,
                             .forward = flash::reference::forward},
                            argc, argv);
}
