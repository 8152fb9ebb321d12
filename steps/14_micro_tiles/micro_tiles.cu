// Rung micro_tiles. A thread computes a square of scores at once, so each number that it reads
// serves eight multiply-adds.
// Parent: flash_attention_2. New: each thread owns 8 queries and 8 keys of a tile. For each column
// it reads 8 numbers of Q and 8 of K and multiplies each with each, an outer product. P V does the
// same with queries and columns of O, for each key. (Volkov and Demmel, 2008, for matrices.)
//
//      lanes of a warp      key  0  1  2 ..  7 |  8  9 ..    LR = 4 by LC = 8 lanes
//            query 0             0  1  2 ..  7 |  0  1 ..
//            query 1             8  9 10 .. 15 |  8  9 ..    lane 9 owns queries 1, 5, 9, .. 29
//            query 2            16 17 18 .. 23 | 16 17 ..    and keys 1, 9, 17, .. 57
//            query 3            24 25 26 .. 31 | 24 25 ..
//            query 4             0  1  2 ..  7 |  0  1 ..    the same again: LR further, or LC
//
// Look at: how many numbers are read for how many multiply-adds in the two products.
// Gained: shared memory is asked for a seventh of the bytes. Cost: registers, 64 for S and 64 for
// O; and to fit into shared memory with a tile of Q twice as high, K and V take turns in one place.
#include "steps/14_micro_tiles/micro_tiles.hpp"

#include <cmath>

#include "common/cuda/cuda.hpp"

namespace micro_tiles {
namespace {

constexpr int threads = 128;
constexpr int warps = threads / 32;
constexpr unsigned every_lane = 0xffffffff;

template <int d> struct Tile {
    static constexpr int LC = d == 128 ? 16 : 8; // lanes that share a query
    static constexpr int LR = 32 / LC;           // lanes that share a key
    static constexpr int R = 8;                  // queries of a thread, LR apart
    static constexpr int C = d == 128 ? 4 : 8;   // keys of a thread, LC apart: 8 would not fit
    static constexpr int N = d / LC;             // columns of O of a thread, LC apart
    static constexpr int warp_rows = LR * R;
    static constexpr int Br = warps * warp_rows; // queries
    static constexpr int Bc = LC * C;            // keys
};

/// What a block keeps in shared memory: at most 99 KiB, which every GPU from compute capability 8.0
/// on has. Rows are padded, so that the lanes of a warp meet in different banks: in Q and K they
/// read one column of LR or LC rows, and in P they store to LC columns of LR rows.
template <int d> struct Shared {
    using T = Tile<d>;
    float Q[T::Br][d + 1];
    float KV[T::Bc][d + 1]; // K, then V in its place
    float P[T::Br][T::Bc + T::LC];
};

/// The maximum over the LC lanes that share a query; each of them gets it.
template <int LC> __device__ float row_max(float x) {
    for (int distance = LC / 2; distance > 0; distance /= 2) {
        x = fmaxf(x, __shfl_xor_sync(every_lane, x, distance));
    }
    return x;
}

template <int LC> __device__ float row_sum(float x) {
    for (int distance = LC / 2; distance > 0; distance /= 2) {
        x += __shfl_xor_sync(every_lane, x, distance);
    }
    return x;
}

/// Copies rows of d floats into shared memory, and zeros in place of rows from `valid` on. A thread
/// keeps to one column; neighbouring threads read neighbouring floats.
template <int d, int rows>
__device__ void load_tile(float (&smem)[rows][d + 1], const float* from, int valid) {
    const int x = threadIdx.x % d;
#pragma unroll 8
    for (int r = threadIdx.x / d; r < rows; r += threads / d) {
        smem[r][x] = r < valid ? from[r * d + x] : 0.0f;
    }
}

template <int d>
__global__ __launch_bounds__(threads) void micro_tiles(const float* Q, const float* K,
                                                       const float* V, float* O, float* LSE, int Tr,
                                                       int group, int N_q, int N_kv, float scale,
                                                       bool causal) {
    using T = Tile<d>;
    constexpr int Br = T::Br, Bc = T::Bc, LR = T::LR, LC = T::LC, R = T::R, C = T::C, N = T::N;
    const int warp = threadIdx.x / 32;
    const int lane_r = threadIdx.x % 32 / LC;
    const int lane_c = threadIdx.x % LC;
    // the thread's rows in the tile of Q: row0, row0 + LR, ...
    const int row0 = warp * T::warp_rows + lane_r;
    Shared<d>& smem = *flash::dynamic_shared<Shared<d>>();

    const int64_t head = blockIdx.x / Tr;
    const int i0 = blockIdx.x % Tr * Br;
    Q += (head * N_q + i0) * d;
    O += (head * N_q + i0) * d;
    K += head / group * N_kv * d;
    V += head / group * N_kv * d;
    LSE += head * N_q + i0;
    const int rows = min(Br, N_q - i0);

    // Query i sees key j if j <= i + (N_kv - N_q): tiles beyond the last query's last key are never
    // loaded.
    const int first_row_keys = causal ? i0 + (N_kv - N_q) + 1 : N_kv;
    const int keys = causal ? first_row_keys + rows - 1 : N_kv;

    float m_reg[R];
    float l_reg[R] = {}; // the sum over the lane's own keys
    float O_reg[R][N] = {};
    // Unrolled here and below, because registers have no addresses: an index into a register array
    // must be a constant.
#pragma unroll
    for (int i = 0; i < R; ++i) {
        m_reg[i] = -INFINITY;
    }

    load_tile<d>(smem.Q, Q, rows);
    for (int j0 = 0; j0 < keys; j0 += Bc) {
        __syncthreads(); // slower warps still read V of the tile before
        load_tile<d>(smem.KV, K + int64_t{j0} * d, N_kv - j0);
        __syncthreads(); // K is complete, and for the first tile Q

        float S_reg[R][C] = {}; // S, then P in its place
#pragma unroll 4
        for (int x = 0; x < d; ++x) {
            float q[R], k[C];
            for (int i = 0; i < R; ++i) {
                q[i] = smem.Q[row0 + LR * i][x];
            }
            for (int n = 0; n < C; ++n) {
                k[n] = smem.KV[lane_c + LC * n][x];
            }
            for (int i = 0; i < R; ++i) {
                for (int n = 0; n < C; ++n) {
                    S_reg[i][n] += q[i] * k[n];
                }
            }
        }

        if (j0 + Bc > min(N_kv, first_row_keys)) { // an edge: some row does not see the whole tile
#pragma unroll
            for (int i = 0; i < R; ++i) {
                const int row_keys = min(N_kv, first_row_keys + row0 + LR * i);
                for (int n = 0; n < C; ++n) {
                    S_reg[i][n] = j0 + lane_c + LC * n < row_keys ? S_reg[i][n] : -INFINITY;
                }
            }
        }

#pragma unroll
        for (int i = 0; i < R; ++i) {
            float s_max = S_reg[i][0];
            for (int n = 1; n < C; ++n) {
                s_max = fmaxf(s_max, S_reg[i][n]);
            }
            const float m_new = fmaxf(m_reg[i], row_max<LC>(s_max));
            // no visible key yet, and -inf - -inf is NaN
            const float shift = m_new == -INFINITY ? 0.0f : m_new;
            const float keep = expf(scale * (m_reg[i] - shift));
            m_reg[i] = m_new;
            float sum = 0;
            for (int n = 0; n < C; ++n) {
                // scaled after the subtraction, so that no rounding makes an exponent larger than 0
                S_reg[i][n] = expf(scale * (S_reg[i][n] - shift));
                sum += S_reg[i][n];
                smem.P[row0 + LR * i][lane_c + LC * n] = S_reg[i][n];
            }
            l_reg[i] = keep * l_reg[i] + sum;
            for (int n = 0; n < N; ++n) {
                O_reg[i][n] *= keep;
            }
        }

        __syncthreads(); // slower warps still read K
        load_tile<d>(smem.KV, V + int64_t{j0} * d, N_kv - j0);
        __syncthreads(); // V is complete, and P

#pragma unroll 4
        for (int c = 0; c < Bc; ++c) {
            float p[R], v[N];
            for (int i = 0; i < R; ++i) {
                p[i] = smem.P[row0 + LR * i][c];
            }
            for (int n = 0; n < N; ++n) {
                v[n] = smem.KV[c][lane_c + LC * n];
            }
            for (int i = 0; i < R; ++i) {
                for (int n = 0; n < N; ++n) {
                    O_reg[i][n] += p[i] * v[n];
                }
            }
        }
    }

#pragma unroll
    for (int i = 0; i < R; ++i) {
        const float l = row_sum<LC>(l_reg[i]);
        if (row0 + LR * i < rows) {
            // a row that sees no key gets O = 0
            const float normalise = l == 0 ? 0.0f : 1 / l;
            for (int n = 0; n < N; ++n) {
                O[(row0 + LR * i) * d + lane_c + LC * n] = O_reg[i][n] * normalise;
            }
            if (lane_c == 0) {
                LSE[row0 + LR * i] = scale * m_reg[i] + logf(l);
            }
        }
    }
}

template <int d>
void run(const flash::Problem& p, const float* Q, const float* K, const float* V, float* O,
         float* LSE) {
    const int N_q = flash::as_int(p.q_len, "q-len");
    const int N_kv = flash::as_int(p.kv_len, "kv-len");
    // query heads to one K/V head
    const int group = flash::as_int(p.heads / p.kv_heads, "heads / kv-heads");
    const int Tr = static_cast<int>(flash::ceil_div(N_q, Tile<d>::Br));
    // One dimension for tiles and heads, because y and z of a grid end at 65535.
    const int blocks = flash::as_int(p.batch * p.heads * Tr, "batch x heads x tiles of Q");
    static_assert(sizeof(Shared<d>) <= 99 * 1024);
    flash::launch(micro_tiles<d>, blocks, threads, sizeof(Shared<d>), Q, K, V, O, LSE, Tr, group,
                  N_q, N_kv, p.scale, p.causal);
}

} // namespace

void attention(const flash::Problem& p, const float* Q, const float* K, const float* V, float* O,
               float* LSE) {
    flash::for_head_dim<head_dims>(p.head_dim, [&](auto d) { run<d>(p, Q, K, V, O, LSE); });
}

} // namespace micro_tiles
