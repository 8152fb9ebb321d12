// The matrices of one head.
#pragma once

#include "common/attention.hpp"
#include "common/cpu/matrix.hpp"

namespace flash::cpu {

/// Views of the rows that belong to one query head; K and V are those of the K/V head that it
/// reads.
struct Head {
    ConstMatrixView Q; // N_q x d
    ConstMatrixView K; // N_kv x d
    ConstMatrixView V; // N_kv x d
    MatrixView O;      // N_q x d
    VectorView LSE;    // N_q
};

/// Head number `bh` of all B * H, counted batch by batch; the pointers are the problem's whole
/// tensors.
inline Head head(const Problem& p, int64_t bh, const float* Q, const float* K, const float* V,
                 float* O, float* LSE) {
    const int64_t b = bh / p.heads, h = bh % p.heads;
    const int64_t q_offset = p.q_offset(b, h), kv_offset = p.kv_offset(b, h);
    return {.Q = {Q + q_offset, p.q_len, p.head_dim},
            .K = {K + kv_offset, p.kv_len, p.head_dim},
            .V = {V + kv_offset, p.kv_len, p.head_dim},
            .O = {O + q_offset, p.q_len, p.head_dim},
            .LSE = {LSE + q_offset / p.head_dim, p.q_len}};
}

} // namespace flash::cpu
