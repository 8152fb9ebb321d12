#include "steps/07_flash_attention_1/flash_attention_1.hpp"

#include "common/harness/device_backend.hpp"
#include "common/harness/rung.hpp"
#include "reference/check.hpp"

int main(int argc, char** argv) {
    return flash::rung_main({.name = "07_flash_attention_1",
                             .fp32 = step07::attention,
                             .head_dims = step07::head_dims,
                             .workspace_bytes = step07::workspace_bytes,
                             .backend = flash::device_backend,
                             .check = flash::reference::check},
                            argc, argv);
}
