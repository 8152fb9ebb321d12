#include "steps/34_overlap/overlap.hpp"

#include "common/harness/backends/device_backend.hpp"
#include "common/harness/forward/forward.hpp"
#include "reference/check.hpp"

int main(int argc, char** argv) {
    return flash::rung_main({.name = "overlap",
                             .fp16 = overlap::attention<flash::Half>,
                             .bf16 = overlap::attention<flash::Bfloat16>,
                             .head_dims = overlap::head_dims,
                             .workspace_bytes = overlap::workspace_bytes,
                             .backend = flash::device_backend,
                             .check = flash::reference::check},
                            argc, argv);
}
