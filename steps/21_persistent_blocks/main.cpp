#include "steps/21_persistent_blocks/persistent_blocks.hpp"

#include "common/harness/device_backend.hpp"
#include "common/harness/rung.hpp"
#include "reference/check.hpp"

int main(int argc, char** argv) {
    return flash::rung_main({.name = "21_persistent_blocks",
                             .fp16 = step21::attention<flash::Half>,
                             .bf16 = step21::attention<flash::Bfloat16>,
                             .head_dims = step21::head_dims,
                             .workspace_bytes = step21::workspace_bytes,
                             .backend = flash::device_backend,
                             .check = flash::reference::check},
                            argc, argv);
}
