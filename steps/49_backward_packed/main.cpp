#include "steps/49_backward_packed/backward_packed.hpp"

#include "common/harness/backends/device_backend.hpp"
#include "common/harness/packed/packed_backward.hpp"
#include "reference/check.hpp"

int main(int argc, char** argv) {
    return flash::rung_main(
        flash::PackedBackwardRung{.name = "backward_packed",
                                  .fp16 = backward_packed::attention_backward<flash::Half>,
                                  .bf16 = backward_packed::attention_backward<flash::Bfloat16>,
                                  .head_dims = backward_packed::head_dims,
                                  .workspace_bytes = backward_packed::workspace_bytes,
                                  .backend = flash::device_backend,
                                  .check = flash::reference::check_gradients,
                                  .forward = flash::reference::forward,
                                  .unordered_dQ = true},
        argc, argv);
}
