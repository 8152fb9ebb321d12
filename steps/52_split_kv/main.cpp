#include "steps/52_split_kv/split_kv.hpp"

#include "common/harness/backends/device_backend.hpp"
#include "common/harness/forward/forward.hpp"
#include "reference/check.hpp"

int main(int argc, char** argv) {
    return flash::rung_main({.name = "split_kv",
                             .fp16 = split_kv::attention<flash::Half>,
                             .bf16 = split_kv::attention<flash::Bfloat16>,
                             .head_dims = split_kv::head_dims,
                             .workspace_bytes = split_kv::workspace_bytes,
                             .backend = flash::device_backend,
                             .check = flash::reference::check,
                             .rounded_sums = true},
                            argc, argv);
}
