#include "reference/tests/defective_backward.hpp"

#include <Eigen/Core>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "reference/products.hpp"

namespace flash::tests {

template <class T>
void backward(BackwardDefect defect, const Problem& p, const T* Q, const T* K, const T* V,
              const float* sink, const T* O, const float* LSE, const T* dO, T* dQ, T* dK, T* dV,
              float* dsink) {
    using Tile = reference::MatrixF;
    using reference::product, reference::product_transposed, reference::transposed_product;
    using enum BackwardDefect;
    const auto has = [defect](BackwardDefect one) { return one == defect; };
    constexpr float infinity = std::numeric_limits<float>::infinity();
    constexpr int64_t Br = 32, Bc = 32;
    static std::atomic<int> runs = 0;
    const bool reverse = has(order_depends_on_run) && runs++ % 2 == 1;
    static std::pair<float, float> last; // of the inputs, to know a run that is repeated
    const std::pair now{to_float(Q[0]), to_float(dO[0]) + p.scale};
    const bool late = has(wrong_second_dq) && std::exchange(last, now) == now;
    const auto round = [](float x) { return to_float(from_float<T>(x)); };
    const int64_t d = p.head_dim, group = p.heads / p.kv_heads;
    const int64_t Tr = (p.q_len + Br - 1) / Br, Tc = (p.kv_len + Bc - 1) / Bc;
    std::vector<float> sink_parts(static_cast<size_t>(p.batch * p.heads)); // (B, H)
    const int64_t reach = std::min(p.window, p.kv_len) - has(window_one_short) +
                          has(window_one_too_many); // of a window

#pragma omp parallel for collapse(2) schedule(dynamic)
    for (int64_t b = 0; b < p.batch; ++b) {
        for (int64_t kv_h = 0; kv_h < p.kv_heads; ++kv_h) {
            Tile dK_sum = Tile::Zero(p.kv_len, d), dV_sum = Tile::Zero(p.kv_len, d);
            for (int64_t g = 0; g < group; ++g) {
                const int64_t h = has(kv_head_modulo) ? g * p.kv_heads + kv_h : kv_h * group + g;
                const int64_t kv = (b * p.kv_heads + kv_h) * p.kv_len * d, q = p.q_offset(b, h);
                if (has(one_head_of_group)) {
                    dK_sum.setZero();
                    dV_sum.setZero();
                }
                for (int64_t n = 0; n < Tr; ++n) {
                    const int64_t i0 = (reverse ? Tr - 1 - n : n) * Br,
                                  rows = std::min(Br, p.q_len - i0);
                    if (has(drops_last_query_tile) && rows < Br) {
                        continue;
                    }
                    // Rows that pad the tile are 0, and so is their P.
                    const int64_t loaded = has(rows_past_the_end) ? Br : rows;
                    Tile Q_i = Tile::Zero(Br, d), dO_i = Tile::Zero(Br, d),
                         dQ_i = Tile::Zero(Br, d);
                    Eigen::VectorXf delta = Eigen::VectorXf::Zero(Br),
                                    lse = Eigen::VectorXf::Constant(Br, infinity);
                    for (int64_t i = 0; i < loaded; ++i) {
                        for (int64_t x = 0; x < d; ++x) {
                            const int64_t at = q + (i0 + i) * d + x;
                            const int64_t permuted = ((b * p.q_len + i0 + i) * p.heads + h) * d + x;
                            Q_i(i, x) = to_float(Q[at]);
                            dO_i(i, x) =
                                has(do_is_ones)
                                    ? 1
                                    : to_float(dO[has(other_layout_of_do) ? permuted : at]);
                            delta(i) += has(delta_left_out) ? 0 : dO_i(i, x) * to_float(O[at]);
                        }
                        // LSE has no margin that is NaN on both sides: rows of the next head, or 0
                        // past the last one.
                        const int64_t row = q / d + i0 + i;
                        lse(i) = row < p.lse_size() ? LSE[row] : 0;
                    }
                    for (int64_t i = 0; i < rows && sink != nullptr; ++i) {
                        const bool none = sink[h] == -infinity && !has(dsink_of_no_sink);
                        const float weight = none ? 0 : std::exp(std::min(sink[h] - lse(i), 0.0f));
                        sink_parts[static_cast<size_t>(b * p.heads + h)] -=
                            (has(dsink_of_keys) ? 1 - weight : weight) * delta(i);
                    }
                    for (int64_t c = 0; c < Tc; ++c) {
                        const int64_t j0 = c * Bc, keys = std::min(Bc, p.kv_len - j0);
                        if (has(drops_last_key_tile) && keys < Bc) {
                            continue;
                        }
                        Tile K_j(keys, d), V_j(keys, d);
                        for (int64_t x = 0; x < keys * d; ++x) {
                            K_j.data()[x] = to_float(K[kv + j0 * d + x]);
                            V_j.data()[x] = to_float(V[kv + j0 * d + x]);
                        }
                        const Tile S = p.scale * product_transposed(Q_i, K_j);
                        Tile P(Br, keys), P_for_dV(Br, keys), dS = product_transposed(dO_i, V_j);
                        for (int64_t i = 0; i < Br; ++i) {
                            const float m = p.kv_len <= Bc ? S.row(i).maxCoeff() : 0;
                            for (int64_t j = 0; j < keys; ++j) {
                                const int64_t diagonal =
                                    i0 + i + (has(top_left_causal) ? 0 : p.kv_len - p.q_len);
                                const int64_t own =
                                    i0 + i + (has(top_left_window) ? 0 : p.kv_len - p.q_len);
                                const bool hidden =
                                    p.causal &&
                                    (j0 + j > diagonal || (p.window > 0 && j0 + j <= own - reach));
                                const bool blind = lse(i) == -infinity;
                                const float exponent = S(i, j) - lse(i);
                                float weight =
                                    blind ? 0
                                          : std::exp(has(trusts_lse) ? exponent
                                                                     : std::min(exponent, 0.0f));
                                if (has(lse_base_2)) {
                                    weight = blind ? 0 : std::exp2(S(i, j) * 1.44269504f - lse(i));
                                }
                                if (has(hides_nan) && std::isnan(weight)) {
                                    weight = 0;
                                }
                                if (has(blind_rows_nan) && blind) {
                                    weight = std::numeric_limits<float>::quiet_NaN();
                                }
                                const float masked =
                                    hidden && !(has(blind_rows_nan) && blind) ? 0 : weight;
                                P(i, j) = has(ds_not_masked) && i < rows ? weight : masked;
                                P_for_dV(i, j) =
                                    round(has(p_not_masked) && i < rows ? weight : masked);
                                if (has(dv_not_normalised) && masked != 0) {
                                    P_for_dV(i, j) = round(std::exp(S(i, j) - m));
                                }
                                dS(i, j) = round(P(i, j) * (dS(i, j) - delta(i)));
                            }
                        }
                        dQ_i += product(dS, K_j);
                        for (int64_t i = 0; has(keys_past_the_end) && keys < Bc && i < rows; ++i) {
                            dQ_i.row(i).array() +=
                                lse(i) == -infinity ? 0 : std::exp(-lse(i)) * delta(i) * 0;
                        }
                        dK_sum.middleRows(j0, keys) += transposed_product(dS, Q_i);
                        dV_sum.middleRows(j0, keys) += transposed_product(P_for_dV, dO_i);
                        if (has(accumulates_in_type)) {
                            dK_sum = dK_sum.unaryExpr(round).eval();
                            dV_sum = dV_sum.unaryExpr(round).eval();
                        }
                    }
                    for (int64_t i = 0; i < rows; ++i) {
                        if (has(blind_rows_unwritten) && p.visible_keys(i0 + i) == 0) {
                            continue;
                        }
                        for (int64_t x = 0; x < d; ++x) {
                            T& to = dQ[q + (i0 + i) * d + x];
                            const float value = dQ_i(i, x) *
                                                (has(scale_left_out_of_dq) ? 1 : p.scale) *
                                                (late ? 2 : 1);
                            to = from_float<T>(value + (has(adds_to_dq) ? to_float(to) : 0));
                        }
                    }
                }
            }
            const int64_t kv = (b * p.kv_heads + kv_h) * p.kv_len * d;
            for (int64_t x = 0; x < p.kv_len * d; ++x) {
                if (has(unseen_keys_unwritten) && (x / d / Bc + 1) * Bc <= p.first_key(0)) {
                    continue;
                }
                const float factor = has(zero_dk) ? 0 : has(scale_left_out_of_dk) ? 1 : p.scale;
                dK[kv + x] = from_float<T>(dK_sum.data()[x] * factor);
                dV[kv + x] = from_float<T>(dV_sum.data()[x]);
            }
        }
    }
    for (int64_t h = 0; h < p.heads && sink != nullptr; ++h) {
        dsink[h] = 0;
        for (int64_t b = has(dsink_of_last_batch) ? p.batch - 1 : 0; b < p.batch; ++b) {
            dsink[h] += sink_parts[static_cast<size_t>(b * p.heads + h)];
        }
        dsink[h] *= has(zero_dsink) ? 0 : has(dsink_sign) ? -1 : has(dsink_scaled) ? p.scale : 1;
    }
    if (has(writes_past_dsink) && sink != nullptr) {
        dsink[p.heads] = 0;
    }
    if (has(writes_past_dq)) {
        dQ[p.q_size()] = from_float<T>(0);
    }
    if (has(writes_past_dv)) {
        dV[p.kv_size()] = from_float<T>(0);
    }
    if (has(writes_to_do)) {
        const_cast<T*>(dO)[p.q_size() / 2] = from_float<T>(0.5f);
    }
}

template void backward(BackwardDefect, const Problem&, const float*, const float*, const float*,
                       const float*, const float*, const float*, const float*, float*, float*,
                       float*, float*);
template void backward(BackwardDefect, const Problem&, const Half*, const Half*, const Half*,
                       const float*, const Half*, const float*, const Half*, Half*, Half*, Half*,
                       float*);
template void backward(BackwardDefect, const Problem&, const Bfloat16*, const Bfloat16*,
                       const Bfloat16*, const float*, const Bfloat16*, const float*,
                       const Bfloat16*, Bfloat16*, Bfloat16*, Bfloat16*, float*);

} // namespace flash::tests
