#include "steps/33_persistent_blocks/persistent_blocks.hpp"

#include "common/harness/backends/device_backend.hpp"
#include "common/harness/forward/forward.hpp"
#include "reference/check.hpp"

int main(int argc, char** argv) {
    return flash::rung_main({.name = "persistent_blocks",
                             .fp16 = persistent_blocks::attention<flash::Half>,
                             .bf16 = persistent_blocks::attention<flash::Bfloat16>,
                             .head_dims = persistent_blocks::head_dims,
                             .workspace_bytes = persistent_blocks::workspace_bytes,
                             .backend = flash::device_backend,
                             .check = flash::reference::check},
                            argc, argv);
}
