#include "steps/37_two_head_dims/two_head_dims.hpp"

#include "common/harness/backends/device_backend.hpp"
#include "common/harness/forward/forward.hpp"
#include "reference/check.hpp"

int main(int argc, char** argv) {
    return flash::rung_main({.name = "two_head_dims",
                             .fp16 = two_head_dims::attention<flash::Half>,
                             .bf16 = two_head_dims::attention<flash::Bfloat16>,
                             .head_dims = two_head_dims::head_dims,
                             .head_dims_v = two_head_dims::head_dims_v,
                             .workspace_bytes = two_head_dims::workspace_bytes,
                             .backend = flash::device_backend,
                             .check = flash::reference::check},
                            argc, argv);
}
