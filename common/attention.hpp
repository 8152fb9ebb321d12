// The problem that every rung solves: O, LSE = attention(Q, K, V; scale, causal).
//
//   S = scale * Q K^T    P = softmax of each row of S    O = P V    LSE_i = log sum_j exp(S_ij)
//
//   Q, O  (B, H,    N_q,  d)     K, V  (B, H_kv, N_kv, d)     LSE  (B, H, N_q), natural log
//
// and of its gradients: dQ, dK, dV from Q, K, V, O, LSE and dO, where dX is the derivative of some
// number by X and has X's shape. dK and dV are sums over the query heads that read the K/V head.
//
// V and O may have a head dim of their own, d_v, which only some rungs know.
//
// A window and a sink are additions that only some rungs know. A sink is a logit per head, (H) in
// fp32, finite or -inf, that joins the sum of every row and owns no key:
//
//   LSE_i = log(exp(sink) + sum_j exp(S_ij))    P_ij = exp(S_ij - LSE_i)
//
// All tensors are row-major and contiguous. Host code only; nothing here knows a rung or a backend.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>

#include "common/error.hpp"

namespace flash {

/// The value of `scale` when nobody chooses one: 1 / sqrt(d).
inline float default_scale(int64_t head_dim) {
    return static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim)));
}

/// Shape and options of one attention problem. Sizes count elements, never bytes.
struct Problem {
    int64_t batch = 1;     // B
    int64_t heads = 1;     // H
    int64_t kv_heads = 1;  // H_kv, divides H: each K/V head serves H / H_kv query heads
    int64_t q_len = 1;     // N_q
    int64_t kv_len = 1;    // N_kv
    int64_t head_dim = 64; // d
    float scale = default_scale(64);
    bool causal = false; // bottom-right aligned: query i sees key j iff j <= i + N_kv - N_q
    // W, with a causal mask: query i sees its own key, i + N_kv - N_q, and the W - 1 keys before.
    // 0: no window
    int64_t window = 0;
    bool sink = false;      // every head has one
    int64_t head_dim_v = 0; // of V and O; 0: as head_dim

    int64_t v_dim() const { return head_dim_v > 0 ? head_dim_v : head_dim; } // d_v
    bool two_head_dims() const { return v_dim() != head_dim; }

    // In all that knows one head dim only, O is as large as Q, and V as K.
    int64_t q_size() const { return batch * heads * q_len * head_dim; }
    int64_t o_size() const { return batch * heads * q_len * v_dim(); }
    int64_t kv_size() const { return batch * kv_heads * kv_len * head_dim; }
    int64_t v_size() const { return batch * kv_heads * kv_len * v_dim(); }
    int64_t lse_size() const { return batch * heads * q_len; }

    /// The K/V head that query head h reads.
    int64_t kv_head(int64_t h) const { return h / (heads / kv_heads); }

    /// Offset of row 0 of query head (b, h) in Q; divide by d for its offset in LSE. In O likewise.
    int64_t q_offset(int64_t b, int64_t h) const { return (b * heads + h) * q_len * head_dim; }
    int64_t o_offset(int64_t b, int64_t h) const { return (b * heads + h) * q_len * v_dim(); }

    /// Offset of row 0 of the K/V head that query head (b, h) reads, in K. In V likewise.
    int64_t kv_offset(int64_t b, int64_t h) const {
        return (b * kv_heads + kv_head(h)) * kv_len * head_dim;
    }
    int64_t v_offset(int64_t b, int64_t h) const {
        return (b * kv_heads + kv_head(h)) * kv_len * v_dim();
    }

    /// Query i sees keys 0 .. visible_keys(i) - 1; with a window those from first_key(i) on.
    int64_t visible_keys(int64_t i) const {
        return causal ? std::clamp<int64_t>(i + kv_len - q_len + 1, 0, kv_len) : kv_len;
    }
    int64_t first_key(int64_t i) const {
        const int64_t reach = std::min(window, kv_len); // with it nothing overflows
        return window > 0 ? std::max<int64_t>(i + kv_len - q_len + 1 - reach, 0) : 0;
    }

    /// Floating-point operations by the field's convention: 2 B H N_q N_kv (d + d_v), half of it
    /// when causal; with a window 2 B H (d + d_v) for each pair of a query and a key that it sees.
    double flops() const {
        const double each_pair = 2.0 * static_cast<double>(batch * heads * (head_dim + v_dim()));
        const double pairs = static_cast<double>(q_len) * static_cast<double>(kv_len);
        return each_pair * (window > 0 ? pairs_in_window() : causal ? pairs / 2 : pairs);
    }

    /// Of the backward pass: five products in place of two.
    double backward_flops() const { return 2.5 * flops(); }

  private:
    /// Pairs of a query and a key under the diagonal, less those under the window's lower edge.
    double pairs_in_window() const {
        const auto N_q = static_cast<double>(q_len), N_kv = static_cast<double>(kv_len);
        const auto sum_to = [](double n) { return n > 0 ? n * (n + 1) / 2 : 0; }; // 1 + 2 + .. + n
        const auto under = [&](double last) { return sum_to(last) - sum_to(last - N_q); };
        return under(N_kv) - under(N_kv - static_cast<double>(window));
    }
};

/// Throws Error unless the problem is one that a rung may be asked to solve: every size at least 1,
/// H a multiple of H_kv, scale > 0 and at most 2.3e38, a window of at least 1 with a causal mask or
/// none, and every tensor small enough to address (bytes < 2^63).
inline void validate(const Problem& p) {
    const auto at_least_one = [](int64_t value, const char* name) {
        if (value < 1) {
            throw Error(std::string(name) + " must be at least 1, got " + std::to_string(value));
        }
    };
    at_least_one(p.batch, "batch");
    at_least_one(p.heads, "heads");
    at_least_one(p.kv_heads, "kv-heads");
    at_least_one(p.q_len, "q-len");
    at_least_one(p.kv_len, "kv-len");
    at_least_one(p.head_dim, "head-dim");
    if (p.heads % p.kv_heads != 0) {
        throw Error("heads (" + std::to_string(p.heads) + ") must be a multiple of kv-heads (" +
                    std::to_string(p.kv_heads) +
                    "), because each K/V head serves heads / kv-heads query heads");
    }
    if (!(p.scale > 0 && std::isfinite(p.scale * 1.44269504f))) { // kernels take it times log2(e)
        char line[160];
        std::snprintf(
            line, sizeof line,
            "scale must be from 1.4e-45, the least of fp32, to 2.3e+38, got %g; the usual "
            "value is 1/sqrt(head-dim)",
            static_cast<double>(p.scale));
        throw Error(line);
    }
    if (p.window < 0 || (p.window > 0 && !p.causal)) {
        throw Error("window must be at least 1, the query's own key, with a causal mask, or 0 for "
                    "none, got " +
                    std::to_string(p.window) + (p.causal ? "" : " without causal"));
    }
    if (p.head_dim_v < 0) {
        throw Error("head-dim-v must be at least 1, or 0 for that of Q and K, got " +
                    std::to_string(p.head_dim_v));
    }
    const auto addressable = [](int64_t b, int64_t h, int64_t n, int64_t d, const char* name) {
        int64_t size = 4; // bytes of the largest element type
        for (const int64_t side : {b, h, n, d}) {
            if (__builtin_mul_overflow(size, side, &size)) {
                throw Error(std::string(name) + " would have " + std::to_string(b) + " x " +
                            std::to_string(h) + " x " + std::to_string(n) + " x " +
                            std::to_string(d) + " elements, more than 2^63 bytes");
            }
        }
    };
    addressable(p.batch, p.heads, p.q_len, p.head_dim, "Q");
    addressable(p.batch, p.kv_heads, p.kv_len, p.head_dim, "K");
    addressable(p.batch, p.kv_heads, p.kv_len, p.v_dim(), "V");
    addressable(p.batch, p.heads, p.q_len, p.v_dim(), "O");
}

} // namespace flash
