#include "steps/22_overlap/overlap.hpp"

#include "common/harness/device_backend.hpp"
#include "common/harness/rung.hpp"
#include "reference/check.hpp"

int main(int argc, char** argv) {
    return flash::rung_main({.name = "22_overlap",
                             .fp16 = step22::attention<flash::Half>,
                             .bf16 = step22::attention<flash::Bfloat16>,
                             .head_dims = step22::head_dims,
                             .workspace_bytes = step22::workspace_bytes,
                             .backend = flash::device_backend,
                             .check = flash::reference::check},
                            argc, argv);
}
