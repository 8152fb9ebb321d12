// Q, K and V for one case of the suite; for gradients O, LSE and dO as well.
#pragma once

#include <vector>

#include "reference/conformance/cases.hpp"

namespace flash::conformance {

struct Tensors {
    std::vector<float> q, k, v;
    std::vector<float> sink;                      // (H), if the problem has one
    std::vector<float> q_scale, k_scale, v_scale; // in e4m3
    std::vector<float> o, lse, d_o; // for a backward case: dO is N(0,1), O and LSE are the oracle's
    // (B, H, N_q): rows whose inputs hold NaN or infinity; empty when there is none
    std::vector<bool> spoilt;

    /// One flag for each of the B H_kv K/V heads with a spoilt row; empty when there is none.
    std::vector<bool> spoilt_heads(const Problem& p) const;

    Inputs view(DType dtype) const {
        return {dtype, q, k, v, o, lse, d_o, sink, q_scale, k_scale, v_scale};
    }
};

/// The same numbers for the same case, everywhere: the seed is made of the case's name and its own.
Tensors make_inputs(const Case& c);

} // namespace flash::conformance
