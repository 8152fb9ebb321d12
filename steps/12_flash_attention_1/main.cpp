#include "steps/12_flash_attention_1/flash_attention_1.hpp"

#include "common/harness/backends/device_backend.hpp"
#include "common/harness/forward/forward.hpp"
#include "reference/check.hpp"

int main(int argc, char** argv) {
    return flash::rung_main({.name = "flash_attention_1",
                             .fp32 = flash_attention_1::attention,
                             .head_dims = flash_attention_1::head_dims,
                             .workspace_bytes = flash_attention_1::workspace_bytes,
                             .backend = flash::device_backend,
                             .check = flash::reference::check},
                            argc, argv);
}
