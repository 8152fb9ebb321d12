#include "steps/13_flash_attention_2/flash_attention_2.hpp"

#include "common/harness/backends/device_backend.hpp"
#include "common/harness/forward/forward.hpp"
#include "reference/check.hpp"

int main(int argc, char** argv) {
    return flash::rung_main({.name = "flash_attention_2",
                             .fp32 = flash_attention_2::attention,
                             .head_dims = flash_attention_2::head_dims,
                             .backend = flash::device_backend,
                             .check = flash::reference::check},
                            argc, argv);
}
