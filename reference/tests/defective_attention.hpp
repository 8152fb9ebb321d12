// One tiled attention with switches for the mistakes that people make. For tests only.
//
// Without a defect it is FlashAttention-2's forward pass in plain loops, correct in every type.
// Each defect is a line or two away from it, as it would be in a real kernel.
#pragma once

#include "common/attention.hpp"
#include "common/types.hpp"

namespace flash::tests {

enum class Defect {
    // correct, too: exponentials of base 2 with the scale folded in, as fast kernels have them
    none,
    none_base_2,

    // Tiles.
    // the last tile starts early, so that it ends with the keys: some count twice
    drops_last_partial_tile,
    drops_last_key,
    overlapping_last_tile,
    unmasked_padding, // zero keys that fill the last tile up count as keys
    drops_last_query_tile,

    // The online softmax.
    forgets_to_rescale_o,
    forgets_to_rescale_l,
    forgets_to_divide,
    no_maximum, // naive_attention's
    maximum_starts_at_zero,
    maximum_starts_at_minus_10000,
    never_raises_the_maximum, // that of the first tile serves all tiles
    limits_P,                 // the same, and P is 2^60 where it would be more
    drops_before_a_jump,      // a rise by more than 2^6 makes it forget all that came before

    // The mask.
    top_left_causal,
    causal_without_diagonal, // j < i + N_kv - N_q
    causal_one_too_many,     // j <= i + N_kv - N_q + 1
    finite_mask, // -FLT_MAX in place of -infinity: a row that sees nothing averages all V
    blind_rows_unwritten,
    blind_rows_nan, // 0 / 0

    // The window.
    window_one_short,    // j > own - W + 1
    window_one_too_many, // j >= own - W
    top_left_window,     // its lower edge alone: j > i - W
    window_by_tiles,     // its lower edge at the first key of a tile

    // The sink.
    ignores_sink,
    sink_not_in_lse,
    scales_sink,
    sink_of_kv_head,       // sink[h / (H / H_kv)]
    sink_without_maximum,  // the maximum is that of the keys
    sink_loses_blind_rows, // LSE = -infinity where no key is seen

    // V as wide as it is.
    sums_d_v_columns, // S is a sum over d_v columns
    scale_of_d_v,     // sqrt(d / d_v) times scale: 1 / sqrt(d_v), where it should be 1 / sqrt(d)
    first_panel_of_V, // its first 64 columns serve for all

    // Large and small numbers.
    // exp2(S c - m) by a fused multiply-add: where S is the largest, the rounding of m is left
    fuses_the_exponent,
    fuses_that_of_P, // but not of what it sums up, and P is 2^60 where it would be more: all finite
    loses_small_V,   // P is 2^-64 where it should be 1; not in fp16
    overflows_with_V, // fp16 only: rounded P carries O beyond 65504, to infinity

    // LSE.
    sums_rounded_P, // 16 bits only
    lse_base_2,
    lse_without_maximum,

    // Addresses.
    kv_head_modulo, // h % H_kv in place of h / (H / H_kv)
    first_batch_only,
    reads_past_the_end, // P = 0 times whatever lies there
    writes_past_o,
    writes_past_lse,
    writes_to_q,

    // The rest.
    // fp32 only: 1 / l wrong by 2^-20, as from a fast instruction that nobody refined
    // 16 bits only: O is rounded after every 16 keys, as by mma.sync with fp16 accumulators
    ignores_scale,
    all_zeros,
    hides_nan, // l > 0 ? O / l : 0
    order_depends_on_run,
    coarse_reciprocal,
    tf32_inputs, // fp32 only: the tensor cores' 10-bit mantissa
    accumulates_in_type,
    rounds_scores_to_type // 16 bits only
};

/// The defect is an argument, so that one function for each type holds them all, and is compiled
/// once.
template <class T>
void attention(Defect defect, const Problem& p, const T* Q, const T* K, const T* V,
               const float* sink, T* O, float* LSE);

/// As a rung's function: without the argument.
template <Defect defect, class T>
void attention(const Problem& p, const T* Q, const T* K, const T* V, const float* sink, T* O,
               float* LSE) {
    attention(defect, p, Q, K, V, sink, O, LSE);
}

} // namespace flash::tests
