#include "steps/08_flash_attention_2/flash_attention_2.hpp"

#include "common/harness/device_backend.hpp"
#include "common/harness/rung.hpp"
#include "reference/check.hpp"

int main(int argc, char** argv) {
    return flash::rung_main({.name = "08_flash_attention_2",
                             .fp32 = step08::attention,
                             .head_dims = step08::head_dims,
                             .backend = flash::device_backend,
                             .check = flash::reference::check},
                            argc, argv);
}
