#include "steps/12_async_pipeline/async_pipeline.hpp"

#include "common/harness/device_backend.hpp"
#include "common/harness/rung.hpp"
#include "reference/check.hpp"

int main(int argc, char** argv) {
    return flash::rung_main({.name = "12_async_pipeline",
                             .fp16 = step12::attention<flash::Half>,
                             .bf16 = step12::attention<flash::Bfloat16>,
                             .head_dims = step12::head_dims,
                             .backend = flash::device_backend,
                             .check = flash::reference::check},
                            argc, argv);
}
