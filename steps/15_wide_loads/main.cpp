#include "steps/15_wide_loads/wide_loads.hpp"

#include "common/harness/backends/device_backend.hpp"
#include "common/harness/forward/forward.hpp"
#include "reference/check.hpp"

int main(int argc, char** argv) {
    return flash::rung_main({.name = "wide_loads",
                             .fp32 = wide_loads::attention,
                             .head_dims = wide_loads::head_dims,
                             .backend = flash::device_backend,
                             .check = flash::reference::check},
                            argc, argv);
}
