#include "reference/tests/defective_attention.hpp"

#include <Eigen/Core>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>

#include "reference/products.hpp"

namespace flash::tests {

template <class T>
void attention(Defect defect, const Problem& p, const T* Q, const T* K, const T* V,
               const float* sink, T* O, float* LSE) {
    using Tile = reference::MatrixF;
    using reference::product, reference::product_transposed;
    constexpr int64_t Br = 32, Bc = 64;
    constexpr float infinity = std::numeric_limits<float>::infinity();
    const auto has = [defect](Defect d) { return d == defect; };
    const auto round = [](float x) { return to_float(from_float<T>(x)); };

    const float masked = has(Defect::finite_mask) ? -std::numeric_limits<float>::max() : -infinity;
    const float first_m = has(Defect::maximum_starts_at_zero) || has(Defect::no_maximum) ? 0.0f
                          : has(Defect::maximum_starts_at_minus_10000)                   ? -10000.0f
                                                                                         : masked;
    const int64_t d = p.head_dim, d_v = p.v_dim(), Tr = (p.q_len + Br - 1) / Br,
                  Tc = (p.kv_len + Bc - 1) / Bc;
    const float scale = has(Defect::ignores_scale) ? default_scale(d)
                        : has(Defect::scale_of_d_v)
                            ? p.scale * default_scale(d_v) / default_scale(d)
                            : p.scale;
    const int64_t summed = has(Defect::sums_d_v_columns) ? std::min(d, d_v) : d; // columns of K
    static std::atomic<int> run = 0;
    const bool backwards = has(Defect::order_depends_on_run) && run++ % 2 == 1;

    const auto read = [has](const T* x) {
        const float value = to_float(*x);
        if (has(Defect::tf32_inputs)) {
            // the same mantissa; N(0,1) stays within fp16's exponents
            return to_float(from_float<Half>(value));
        }
        return value;
    };
    const bool fuses = has(Defect::fuses_the_exponent) || has(Defect::fuses_that_of_P);
    const bool base_2 = has(Defect::none_base_2) || fuses;
    const auto exponential = [base_2](float x) { // of a score relative to the maximum
        return base_2 ? std::exp2(x) : std::exp(x);
    };
    const bool keeps_first_m = has(Defect::never_raises_the_maximum) || has(Defect::limits_P);
    const float score_scale = base_2 ? scale * 1.44269504f : scale;
    const float largest = largest_number(dtype_of<T>);
    const float inaccuracy = has(Defect::coarse_reciprocal) ? 1 + 0x1p-20f : 1.0f;
    const auto natural = [base_2](float m) { return base_2 ? m * 0.693147181f : m; };

#pragma omp parallel for collapse(3) schedule(dynamic)
    for (int64_t b = 0; b < p.batch; ++b) {
        for (int64_t h = 0; h < p.heads; ++h) {
            for (int64_t r = 0; r < Tr; ++r) {
                const int64_t i0 = r * Br, rows = std::min(Br, p.q_len - i0);
                if (has(Defect::drops_last_query_tile) && rows < Br) {
                    continue;
                }
                const int64_t kv_b = has(Defect::first_batch_only) ? 0 : b;
                const int64_t kv_h = has(Defect::kv_head_modulo) ? h % p.kv_heads : p.kv_head(h);
                const int64_t first_key = (kv_b * p.kv_heads + kv_h) * p.kv_len;
                const int64_t q = p.q_offset(b, h) + i0 * d, o_begin = p.o_offset(b, h) + i0 * d_v;

                Tile Q_tile(rows, d), K_tile(Bc, d), V_tile(Bc, d_v), S(rows, Bc);
                for (int64_t x = 0; x < rows * d; ++x) {
                    Q_tile.data()[x] = read(Q + q + x);
                }
                Tile O_tile = Tile::Zero(rows, d_v);
                Eigen::VectorXf m = Eigen::VectorXf::Constant(rows, first_m),
                                l = Eigen::VectorXf::Zero(rows);

                for (int64_t c = 0; c < Tc; ++c) {
                    int64_t j0 = (backwards ? Tc - 1 - c : c) * Bc;
                    if (has(Defect::overlapping_last_tile)) {
                        j0 = std::max<int64_t>(0, std::min(j0, p.kv_len - Bc));
                    }
                    const int64_t end = has(Defect::drops_last_key) ? p.kv_len - 1 : p.kv_len;
                    const int64_t keys = std::min(Bc, end - j0);
                    if (has(Defect::drops_last_partial_tile) && keys < Bc) {
                        continue;
                    }
                    for (int64_t j = 0; j < Bc; ++j) {
                        const int64_t key = first_key + j0 + j;
                        for (int64_t x = 0; x < d; ++x) {
                            K_tile(j, x) = j < keys && x < summed ? read(K + key * d + x) : 0;
                        }
                        for (int64_t x = 0; x < d_v; ++x) {
                            const int64_t column = has(Defect::first_panel_of_V) ? x % 64 : x;
                            V_tile(j, x) = j < keys || has(Defect::reads_past_the_end)
                                               ? read(V + key * d_v + column)
                                               : 0;
                        }
                    }

                    const Tile products = product_transposed(Q_tile, K_tile);
                    S = score_scale * products;
                    for (int64_t i = 0; i < rows; ++i) {
                        float m_new = m(i);
                        const int64_t own =
                            i0 + i + (has(Defect::top_left_window) ? 0 : p.kv_len - p.q_len);
                        int64_t first = own - std::min(p.window, p.kv_len) + 1 +
                                        has(Defect::window_one_short) -
                                        has(Defect::window_one_too_many);
                        if (has(Defect::window_by_tiles) && first > 0) {
                            first = first / Bc * Bc;
                        }
                        for (int64_t j = 0; j < Bc; ++j) {
                            const int64_t diagonal =
                                has(Defect::top_left_causal) ? i0 + i : i0 + i + p.kv_len - p.q_len;
                            const int64_t last = diagonal - has(Defect::causal_without_diagonal) +
                                                 has(Defect::causal_one_too_many);
                            const bool padding = j >= keys && !has(Defect::unmasked_padding);
                            const bool hidden =
                                p.causal && (j0 + j > last || (p.window > 0 && j0 + j < first));
                            if (padding || hidden) {
                                S(i, j) = padding ? -infinity : masked;
                            } else if (has(Defect::rounds_scores_to_type)) {
                                S(i, j) = round(S(i, j));
                            }
                            if (!has(Defect::no_maximum) && (c == 0 || !keeps_first_m)) {
                                m_new = std::max(m_new, S(i, j));
                            }
                        }
                        // -inf - -inf is NaN: while a row has seen nothing, 0 takes the maximum's
                        // place.
                        const float m_use = m_new == -infinity ? 0 : m_new;
                        float rescale = exponential(m(i) - m_use);
                        if (has(Defect::drops_before_a_jump) && rescale < 0x1p-6f) {
                            rescale = 0;
                        }
                        float sum = 0;
                        for (int64_t j = 0; j < Bc; ++j) {
                            float P = exponential(S(i, j) - m_use);
                            const float unfused = P;
                            if (fuses && S(i, j) != -infinity) {
                                P = std::exp2(std::fma(products(i, j), score_scale, -m_use));
                            }
                            if (has(Defect::limits_P) || has(Defect::fuses_that_of_P)) {
                                P = std::min(P, 0x1p60f);
                            }
                            if (has(Defect::loses_small_V)) {
                                P *= 0x1p-64f;
                            }
                            sum += has(Defect::sums_rounded_P)    ? round(P)
                                   : has(Defect::fuses_that_of_P) ? unfused
                                                                  : P;
                            S(i, j) = round(P);
                        }
                        l(i) =
                            has(Defect::forgets_to_rescale_l) ? l(i) + sum : l(i) * rescale + sum;
                        m(i) = m_new;
                        if (!has(Defect::forgets_to_rescale_o)) {
                            O_tile.row(i) *= rescale;
                        }
                    }
                    const int64_t step = has(Defect::accumulates_in_type) ? 16 : Bc;
                    for (int64_t j = 0; j < Bc; j += step) {
                        O_tile += product(S.middleCols(j, step), V_tile.middleRows(j, step));
                        if (has(Defect::accumulates_in_type)) {
                            O_tile = O_tile.unaryExpr(round).eval();
                        }
                    }
                }

                for (int64_t i = 0; i < rows; ++i) {
                    const bool sees_nothing = l(i) == 0;
                    const float lse_of_keys = natural(m(i)) + std::log(l(i));
                    if (sink != nullptr && !has(Defect::ignores_sink)) { // a last score
                        const float logit = sink[has(Defect::sink_of_kv_head) ? p.kv_head(h) : h] *
                                            (has(Defect::scales_sink) ? scale : 1.0f);
                        const float s = base_2 ? logit * 1.44269504f : logit;
                        const bool stays =
                            has(Defect::no_maximum) || has(Defect::sink_without_maximum);
                        const float m_new = stays ? m(i) : std::max(m(i), s);
                        const float m_use = m_new == -infinity ? 0 : m_new;
                        const float rescale = exponential(m(i) - m_use);
                        l(i) = l(i) * rescale + exponential(s - m_use);
                        O_tile.row(i) *= rescale;
                        m(i) = m_new;
                    }
                    const bool blind = has(Defect::hides_nan)
                                           ? !(l(i) > 0)
                                           : l(i) == 0 && !has(Defect::blind_rows_nan);
                    if (blind && has(Defect::blind_rows_unwritten)) {
                        continue;
                    }
                    float lse = blind ? -infinity : natural(m(i)) + std::log(l(i));
                    if (has(Defect::loses_small_V)) {
                        lse += 64 * 0.693147181f;
                    }
                    if (has(Defect::lse_base_2)) {
                        lse *= 1.44269504f;
                    }
                    if (has(Defect::lse_without_maximum)) {
                        lse = std::log(l(i));
                    }
                    if (has(Defect::sink_not_in_lse)) {
                        lse = sees_nothing ? -infinity : lse_of_keys;
                    }
                    if (has(Defect::sink_loses_blind_rows) && sees_nothing) {
                        lse = -infinity;
                    }
                    LSE[q / d + i] = lse;
                    for (int64_t x = 0; x < d_v; ++x) {
                        float o = has(Defect::forgets_to_divide) ? O_tile(i, x)
                                                                 : O_tile(i, x) / l(i) * inaccuracy;
                        if (std::isfinite(o) && !has(Defect::overflows_with_V)) {
                            o = std::clamp(o, -largest, largest); // V is no larger
                        }
                        O[o_begin + i * d_v + x] =
                            from_float<T>(blind || has(Defect::all_zeros) ? 0 : o);
                    }
                }
            }
        }
    }
    if (has(Defect::writes_past_o)) {
        O[p.o_size()] = from_float<T>(0);
    }
    if (has(Defect::writes_past_lse)) {
        LSE[p.lse_size()] = 0;
    }
    if (has(Defect::writes_to_q)) {
        // as a kernel that scales Q in place
        const_cast<T*>(Q)[p.q_size() / 2] = from_float<T>(0.5f);
    }
}

template void attention(Defect, const Problem&, const float*, const float*, const float*,
                        const float*, float*, float*);
template void attention(Defect, const Problem&, const Half*, const Half*, const Half*, const float*,
                        Half*, float*);
template void attention(Defect, const Problem&, const Bfloat16*, const Bfloat16*, const Bfloat16*,
                        const float*, Bfloat16*, float*);

} // namespace flash::tests
