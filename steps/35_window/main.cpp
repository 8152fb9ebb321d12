#include "steps/35_window/window.hpp"

#include "common/harness/backends/device_backend.hpp"
#include "common/harness/forward/forward.hpp"
#include "reference/check.hpp"

int main(int argc, char** argv) {
    return flash::rung_main({.name = "window",
                             .fp16 = window::attention<flash::Half>,
                             .bf16 = window::attention<flash::Bfloat16>,
                             .head_dims = window::head_dims,
                             .workspace_bytes = window::workspace_bytes,
                             .backend = flash::device_backend,
                             .window_and_sink = true,
                             .check = flash::reference::check},
                            argc, argv);
}
