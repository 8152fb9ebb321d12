#include "steps/12_async_pipeline/async_pipeline.hpp"

#include "common/cuda/device_backend.hpp"
#include "common/harness/rung.hpp"
#include "reference/check.hpp"

int main(int argc, char** argv) {
    return flash::rung_main({.name = "12_async_pipeline",
                             .idea = "cp.async loads the next tile meanwhile; a product makes the row sums",
                             .fp16 = step12::attention<flash::Half>,
                             .bf16 = step12::attention<flash::Bfloat16>,
                             .head_dims = {32, 64, 128},
                             .backend = flash::device_backend,
                             .check = flash::reference::check},
                            argc, argv);
}
