// What `backward_one_kernel` does before and after its loop, for the rungs after it. Before: LSE
// and delta of every row side by side, and a dQ of zeros in fp32, to which blocks add. After: dQ,
// scaled and rounded.
#pragma once

#include "common/attention.hpp"
#include "common/cuda/cuda.hpp"
#include "common/cuda/ptx/exp2.hpp"
#include "common/cuda/ptx/mma.hpp"
#include "common/cuda/ptx/reduction.hpp"
#include "common/cuda/ptx/unpack.hpp"

namespace flash {

/// What a backward loop has to know about rows 2r and 2r + 1 of Q: LSE in units of log2, and delta.
/// All are 0 in rows that pad a tile. In a C fragment of S^T a lane holds these two rows side by
/// side, so it reads both at once.
struct alignas(16) TwoRows {
    float LSE_log2[2], delta[2];
};

/// The rows of a head with padding: a whole number of tiles of 32, 64 and 128.
inline int64_t padded_rows(const Problem& p) { return ceil_div(p.q_len, 128) * 128; }

/// What passes from kernel to kernel through the workspace: LSE and delta of the rows of all heads,
/// and dQ in fp32.
struct BackwardParts {
    TwoRows* Rows;
    float* dQ_sum;
};
inline BackwardParts backward_parts(Workspace& workspace, const Problem& p) {
    const int64_t rows = p.batch * p.heads * padded_rows(p);
    return {workspace.part<TwoRows>(rows / 2, "LSE and delta"),
            workspace.part<float>(rows * p.head_dim, "the sum of dQ")};
}
inline int64_t backward_parts_bytes(const Problem& p) {
    const int64_t rows = p.batch * p.heads * padded_rows(p);
    return part_bytes<TwoRows>(rows / 2) + part_bytes<float>(rows * p.head_dim);
}

/// What is set to zero before the loop: sums of dQ of each head's first `rows`, and counters, at
/// most one per row.
struct Zeros {
    int64_t rows;
    unsigned* counters;
    int64_t counted;
};

/// LSE and delta of every row, and zeros. A block has 32 rows, with four lanes per row.
template <class T>
__global__ void before_backward(const T* O, const float* LSE, const T* dO, TwoRows* rows,
                                float* dQ_sum, int N_q, int padded, int d, Zeros zeros) {
    const int64_t row = int64_t{blockIdx.x} * 32 + threadIdx.x / 4,
                  thread = int64_t{blockIdx.x} * 128 + threadIdx.x;
    const int64_t head = blockIdx.x / (padded / 32);
    const int i = blockIdx.x % (padded / 32) * 32 + threadIdx.x / 4;
    const int64_t from = (head * N_q + i) * d;
    float delta = 0;
    for (int x = 8 * (threadIdx.x % 4); x < d && i < N_q; x += 32) {
        delta += dot<T>(*reinterpret_cast<const uint4*>(dO + from + x),
                        *reinterpret_cast<const uint4*>(O + from + x));
    }
    delta = row_sum(delta);
    if (threadIdx.x % 4 == 0) {
        rows[row / 2].LSE_log2[row % 2] = i < N_q ? LSE[head * N_q + i] * log2_e : 0.0f;
        rows[row / 2].delta[row % 2] = delta;
    }
    for (int x = 4 * (threadIdx.x % 4); x < d && i < zeros.rows; x += 16) {
        *reinterpret_cast<float4*>(dQ_sum + row * d + x) = make_float4(0, 0, 0, 0);
    }
    if (thread < zeros.counted) {
        zeros.counters[thread] = 0;
    }
}

/// dQ, rounded and in rows: 32 rows per block. A thread makes 8 columns at a time of row i and of
/// row i + 8.
template <class T>
__global__ void after_backward(const float* dQ_sum, T* dQ, int N_q, int padded, int d,
                               float scale) {
    const int64_t head = blockIdx.x / (padded / 32);
    const int i = blockIdx.x % (padded / 32) * 32 + threadIdx.x / 64 * 16 + threadIdx.x % 8;
    if (i >= N_q) {
        return;
    }
    for (int x = threadIdx.x % 64 / 8 * 8; x < d; x += 64) {
        float rows[2][8];
        rows_of_sum(rows, dQ_sum + (head * padded + i / 16 * 16) * d + 16 * x, i % 8);
        for (int r = 0; r < 2 && i + 8 * r < N_q; ++r) {
            *reinterpret_cast<uint4*>(dQ + (head * N_q + i + 8 * r) * d + x) =
                pack_8<T>(rows[r], scale);
        }
    }
}

/// The blocks of either kernel.
inline int blocks_of_32_rows(const Problem& p) {
    return as_int(p.batch * p.heads * padded_rows(p) / 32, "batch x heads x q-len");
}

/// Starts before_backward for a problem: `rows` has B H padded_rows(p) of them, and dQ_sum d times
/// as many.
template <class T>
void start_before_backward(const Problem& p, const T* O, const float* LSE, const T* dO,
                           TwoRows* rows, float* dQ_sum, Zeros zeros) {
    launch(before_backward<T>, blocks_of_32_rows(p), 128, 0, O, LSE, dO, rows, dQ_sum,
           static_cast<int>(p.q_len), as_int(padded_rows(p), "q-len"), static_cast<int>(p.head_dim),
           zeros);
}

/// The same for a loop in which blocks add to all of dQ_sum.
template <class T>
void start_before_backward(const Problem& p, const T* O, const float* LSE, const T* dO,
                           TwoRows* rows, float* dQ_sum) {
    start_before_backward(p, O, LSE, dO, rows, dQ_sum, {padded_rows(p), nullptr, 0});
}

/// Starts after_backward in the same way.
template <class T> void start_after_backward(const Problem& p, const float* dQ_sum, T* dQ) {
    launch(after_backward<T>, blocks_of_32_rows(p), 128, 0, dQ_sum, dQ, static_cast<int>(p.q_len),
           as_int(padded_rows(p), "q-len"), static_cast<int>(p.head_dim), p.scale);
}

} // namespace flash
