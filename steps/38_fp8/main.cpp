#include "steps/38_fp8/fp8.hpp"

#include "common/harness/backends/device_backend.hpp"
#include "common/harness/forward/forward.hpp"
#include "reference/check.hpp"

int main(int argc, char** argv) {
    return flash::rung_main({.name = "fp8",
                             .e4m3 = fp8::attention,
                             .head_dims = fp8::head_dims,
                             .workspace_bytes = fp8::workspace_bytes,
                             .backend = flash::device_backend,
                             .check = flash::reference::check},
                            argc, argv);
}
