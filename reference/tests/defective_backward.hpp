// Backward passes with one known mistake each, and a correct one: tiles, P from LSE, delta, as a
// rung computes them.
#pragma once

#include "common/harness/program/rung.hpp"

namespace flash::tests {

enum class BackwardDefect {
    // dO is read as (B, N_q, H, d): a permuted tensor whose strides nobody looked at
    // keys that pad the last tile are not masked: they are 0, but their P may be infinite
    none,
    delta_left_out,       // dS = P o dP
    scale_left_out_of_dq, //
    scale_left_out_of_dk, //
    ds_not_masked,        // P is masked for dV alone
    p_not_masked,         // P is masked for dS alone
    lse_base_2,           // LSE is taken for one in base 2
    one_head_of_group,    // dK and dV of the group's last head only
    dv_not_normalised,    // dV from exp(S - m), without the row's sum
    other_layout_of_do,
    do_is_ones,        // dO is taken for ones, as for the gradient of a sum
    rows_past_the_end, // the rows that pad the last tile of queries are those that follow in memory
    drops_last_query_tile, // if it is a partial one
    drops_last_key_tile,   // likewise
    order_depends_on_run,  // of the tiles whose dK and dV are summed up
    top_left_causal,       // the mask
    kv_head_modulo,        // head h reads K/V head h % H_kv
    blind_rows_nan,        // exp(-inf - -inf) in rows that see no key
    blind_rows_unwritten,  // their dQ
    adds_to_dq,            // which nobody has set to 0
    zero_dk,               //
    writes_past_dq,        // one element
    writes_past_dv,        // one element
    writes_to_do,          // one element
    keys_past_the_end,
    wrong_second_dq,     // the first run is right
    hides_nan,           // P = 0 where it is NaN
    trusts_lse,          // P above 1, where LSE is so large that fp32 rounds it below S
    accumulates_in_type, // dK and dV are kept in the type between tiles

    // of windows and sinks
    window_one_short,      // W - 1 keys
    window_one_too_many,   // W + 1 keys
    top_left_window,       // its lower edge
    unseen_keys_unwritten, // dK and dV of tiles that no query sees
    dsink_sign,            // P (delta - 0)
    dsink_scaled,          // by `scale`, as dQ and dK are
    dsink_of_last_batch,   // entry alone
    dsink_of_keys,         // 1 - P in place of P
    dsink_of_no_sink,      // exp(-inf - -inf) in rows without keys
    zero_dsink,
    writes_past_dsink, // one element
};

/// The defect is an argument, so that one function for each type holds them all, and is compiled
/// once.
template <class T>
void backward(BackwardDefect defect, const Problem& p, const T* Q, const T* K, const T* V,
              const float* sink, const T* O, const float* LSE, const T* dO, T* dQ, T* dK, T* dV,
              float* dsink);

/// As a rung's function: without the argument.
template <BackwardDefect defect, class T>
void backward(const Problem& p, const T* Q, const T* K, const T* V, const float* sink, const T* O,
              const float* LSE, const T* dO, T* dQ, T* dK, T* dV, float* dsink) {
    backward(defect, p, Q, K, V, sink, O, LSE, dO, dQ, dK, dV, dsink);
}

} // namespace flash::tests
