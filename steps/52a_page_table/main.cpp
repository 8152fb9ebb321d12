#include "steps/52a_page_table/page_table.hpp"

#include "common/harness/backends/device_backend.hpp"
#include "common/harness/paged/paged.hpp"
#include "reference/check.hpp"

int main(int argc, char** argv) {
    return flash::rung_main(
        flash::PagedRung{.forward = {.name = "page_table",
                                     .fp16 = page_table::attention<flash::Half>,
                                     .bf16 = page_table::attention<flash::Bfloat16>,
                                     .head_dims = page_table::head_dims,
                                     .workspace_bytes = page_table::workspace_bytes,
                                     .backend = flash::device_backend,
                                     .check = flash::reference::check,
                                     .rounded_sums = true},
                         .fp16 = page_table::attention_paged<flash::Half>,
                         .bf16 = page_table::attention_paged<flash::Bfloat16>},
        argc, argv);
}
