// A rung that drops the last key, registered like any other: its conformance test must fail, and
// say why.
#include "common/harness/forward/forward.hpp"
#include "reference/check.hpp"
#include "reference/tests/defective_attention.hpp"

int main(int argc, char** argv) {
    return flash::rung_main(
        {.name = "wrong_rung",
         .fp32 = flash::tests::attention<flash::tests::Defect::drops_last_key, float>,
         .check = flash::reference::check},
        argc, argv);
}
