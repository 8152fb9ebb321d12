#include "steps/53_paged_kv/paged_kv.hpp"

#include "common/harness/backends/device_backend.hpp"
#include "common/harness/paged/paged.hpp"
#include "reference/check.hpp"

int main(int argc, char** argv) {
    return flash::rung_main(
        flash::PagedRung{.forward = {.name = "paged_kv",
                                     .fp16 = paged_kv::attention<flash::Half>,
                                     .bf16 = paged_kv::attention<flash::Bfloat16>,
                                     .head_dims = paged_kv::head_dims,
                                     .workspace_bytes = paged_kv::workspace_bytes,
                                     .backend = flash::device_backend,
                                     .check = flash::reference::check,
                                     .rounded_sums = true},
                         .fp16 = paged_kv::attention_paged<flash::Half>,
                         .bf16 = paged_kv::attention_paged<flash::Bfloat16>},
        argc, argv);
}
