// What rung 24 does before and after its loop, for the rungs after it. Before: LSE and delta of every row side by side,
// and a dQ of zeros in fp32, to which blocks add. After: dQ, scaled and rounded.
#pragma once

#include "common/attention.hpp"
#include "common/cuda/cuda.hpp"
#include "common/cuda/exp2.hpp"
#include "common/cuda/mma.hpp"
#include "common/cuda/unpack.hpp"

namespace flash {

/// What a backward loop must know of a row of Q: LSE in units of log2, and delta. Both are 0 in rows that pad a tile.
struct alignas(8) QueryRow {
    float LSE_log2, delta;
};

/// The rows of a head with padding: a whole number of tiles of 32, 64 and 128.
inline int64_t padded_rows(const Problem& p) { return ceil_div(p.q_len, 128) * 128; }

/// LSE and delta of every row, and zeros for the first rows of each head's dQ: four lanes per row.
template <class T>
__global__ void before_backward(const T* O, const float* LSE, const T* dO, QueryRow* rows, float* dQ_sum, int N_q,
                                int padded, int zeros, int d) {
    const int64_t row = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) / 4;
    const int64_t head = row / padded, i = row % padded, from = (head * N_q + i) * d;
    float delta = 0;
    for (int x = 8 * (threadIdx.x % 4); x < d && i < N_q; x += 32) {
        delta += dot<T>(*reinterpret_cast<const uint4*>(dO + from + x), *reinterpret_cast<const uint4*>(O + from + x));
    }
    delta = row_sum(delta);
    if (threadIdx.x % 4 == 0) {
        rows[row] = {i < N_q ? LSE[head * N_q + i] * log2_e : 0.0f, delta};
    }
    for (int x = 4 * (threadIdx.x % 4); x < d && i < zeros; x += 16) {
        *reinterpret_cast<float4*>(dQ_sum + row * d + x) = make_float4(0, 0, 0, 0);
    }
}

/// dQ, rounded and in rows: one thread per 8 columns. In dQ_sum 16 rows by 8 columns are 4 runs of 32 floats, one for
/// each element of a C fragment.
template <class T>
__global__ void after_backward(const float* dQ_sum, T* dQ, int64_t pieces, int N_q, int padded, int d, float scale) {
    const int64_t piece = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
    if (piece < pieces) {
        const int64_t n = piece % (d / 8), row = piece / (d / 8), head = row / N_q, i = row % N_q;
        const float* from = dQ_sum + (head * padded + i / 16 * 16) * d + 128 * n + i % 16 / 8 * 64 + i % 8 * 4;
        const float4 even = *reinterpret_cast<const float4*>(from), odd = *reinterpret_cast<const float4*>(from + 32);
        *reinterpret_cast<uint4*>(dQ + 8 * piece) =
            make_uint4(pack<T>(even.x * scale, odd.x * scale), pack<T>(even.y * scale, odd.y * scale),
                       pack<T>(even.z * scale, odd.z * scale), pack<T>(even.w * scale, odd.w * scale));
    }
}

/// Starts before_backward for a problem: `rows` has B H padded_rows(p), and dQ_sum d times as many. Of each head's dQ
/// `zeros` rows are set to zero, all of them unless one says otherwise.
template <class T>
void start_before_backward(const Problem& p, const T* O, const float* LSE, const T* dO, QueryRow* rows, float* dQ_sum,
                           int64_t zeros = 2'000'000'000) {
    const int padded = as_int(padded_rows(p), "q-len"), d = static_cast<int>(p.head_dim);
    launch(before_backward<T>, as_int(p.batch * p.heads * padded / 32, "batch x heads x q-len"), 128, 0, O, LSE, dO,
           rows, dQ_sum, static_cast<int>(p.q_len), padded, static_cast<int>(zeros), d);
}

/// Starts after_backward, likewise.
template <class T> void start_after_backward(const Problem& p, const float* dQ_sum, T* dQ) {
    const int padded = as_int(padded_rows(p), "q-len"), d = static_cast<int>(p.head_dim);
    const int64_t pieces = p.q_size() / 8;
    launch(after_backward<T>, as_int(ceil_div(pieces, 128), "batch x heads x q-len"), 128, 0, dQ_sum, dQ, pieces,
           static_cast<int>(p.q_len), padded, d, p.scale);
}

} // namespace flash
