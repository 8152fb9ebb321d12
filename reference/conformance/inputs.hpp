// Q, K and V for one case of the suite.
#pragma once

#include <vector>

#include "reference/conformance/cases.hpp"

namespace flash::conformance {

struct Tensors {
    std::vector<float> q, k, v;
    std::vector<bool> spoilt; // (B, H, N_q): rows whose inputs hold NaN or infinity; empty when there is none
};

/// The same numbers for the same case, everywhere: the seed is made of the case's name.
Tensors make_inputs(const Case& c);

} // namespace flash::conformance
