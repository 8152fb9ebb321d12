#include "steps/36_packed_sequences/packed_sequences.hpp"

#include "common/harness/backends/device_backend.hpp"
#include "common/harness/packed/packed.hpp"
#include "reference/check.hpp"

int main(int argc, char** argv) {
    return flash::rung_main(flash::PackedRung{.name = "packed_sequences",
                                              .fp16 = packed_sequences::attention<flash::Half>,
                                              .bf16 = packed_sequences::attention<flash::Bfloat16>,
                                              .head_dims = packed_sequences::head_dims,
                                              .workspace_bytes = packed_sequences::workspace_bytes,
                                              .backend = flash::device_backend,
                                              .check = flash::reference::check},
                            argc, argv);
}
