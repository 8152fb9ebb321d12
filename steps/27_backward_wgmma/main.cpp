#include "steps/27_backward_wgmma/backward_wgmma.hpp"

#include "common/harness/device_backend.hpp"
#include "common/harness/rung.hpp"
#include "reference/gradients.hpp"

int main(int argc, char** argv) {
    return flash::rung_main({.name = "27_backward_wgmma",
                             .backward = {.fp16 = step27::attention_backward<flash::Half>,
                                          .bf16 = step27::attention_backward<flash::Bfloat16>},
                             .head_dims = step27::head_dims,
                             .workspace_bytes = step27::workspace_bytes,
                             .backend = flash::device_backend,
                             .check = flash::reference::check_gradients,
                             .forward = flash::reference::forward,
                             .unordered_dQ = true},
                            argc, argv);
}
