#include "steps/54_ring_attention/ring_attention.hpp"

#include "common/harness/backends/device_backend.hpp"
#include "common/harness/ring/ring.hpp"
#include "common/processes/processes.hpp"
#include "reference/check.hpp"

int main(int argc, char** argv) {
    return flash::rung_main(
        flash::RingRung{.alone = {.name = "ring_attention",
                                  .fp16 = ring_attention::attention<flash::Half>,
                                  .bf16 = ring_attention::attention<flash::Bfloat16>,
                                  .head_dims = ring_attention::head_dims,
                                  .workspace_bytes = ring_attention::workspace_bytes,
                                  .backend = flash::device_backend,
                                  .check = flash::reference::check},
                        .fp16 = ring_attention::attention_of_rank<flash::Half>,
                        .bf16 = ring_attention::attention_of_rank<flash::Bfloat16>,
                        .workspace_bytes = ring_attention::workspace_bytes_of_rank,
                        .processes = flash::start_processes},
        argc, argv);
}
