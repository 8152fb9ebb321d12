// Rung 09: register tiling. Each thread owns a micro-tile of S and of O, and reads memory 16 bytes at a time.
//
// The idea: rung 08 reads two numbers from shared memory for each multiply-add of Q K^T. Shared memory delivers one
// number a lane and clock; the arithmetic units could do four multiply-adds in that clock. Here a thread takes R
// queries and C keys at once, and R + C numbers make R * C multiply-adds. P V does the same with R queries and d/8
// columns.
//
//      lanes of a warp      key  0  1  2 ..  7 |  8  9 ..      lane_r = 0 .. 3, lane_c = 0 .. 7
//            query 0             0  2  4 .. 14 |  0  2 ..
//            query 1             1  3  5 .. 15 |  1  3 ..      a lane's queries: lane_r, lane_r + 4, ...   R of them
//            query 2            16 18 20 .. 30 | 16 18 ..              its keys: lane_c, lane_c + 8, ...   C of them
//            query 3            17 19 21 .. 31 | 17 19 ..              its columns of O: 4 lane_c + 0 1 2 3, then + 32
//            query 4             0  2  4 .. 14 |  0  2 ..
//
// Against rung 08: S_reg in place of one score at a time; float4 loads and stores; rows padded by 16 bytes, not 4.
// Look at: how many loads stand beside how many multiply-adds in the two inner loops.
// Gained: arithmetic is now the limit. Counter: shared-memory bytes per FLOP.
#include "steps/09_register_tiling/register_tiling.hpp"

#include <cmath>

#include "common/cuda/cuda.hpp"

namespace step09 {
namespace {

constexpr int threads = 128;
constexpr int warps = threads / 32;
constexpr unsigned every_lane = 0xffffffff;

/// Tile sizes, and what a block keeps in shared memory: at most 99 KiB, which every GPU from compute capability 8.0
/// on has.
template <int d> struct Tile {
    static constexpr int R = d == 128 ? 4 : 8; // queries of a thread, 4 apart
    static constexpr int C = d == 128 ? 4 : 8; // keys of a thread, 8 apart
    static constexpr int warp_rows = 4 * R;
    static constexpr int Br = warps * warp_rows; // queries
    static constexpr int Bc = 8 * C;             // keys
    static constexpr int Pc = 32;                // keys of P that are in shared memory at a time
    // Lanes read 16 bytes each from neighbouring rows of Q and K. Rows 16 bytes longer than d floats put eight of them
    // in different banks. Rows of P with 8 floats more do so for the four that a warp reads or writes at once.
    static constexpr int stride = d + 4;
    static constexpr int P_stride = Pc + 8;

    static constexpr int Q_smem = 0; // offsets, in floats
    static constexpr int K_smem = Q_smem + Br * stride;
    static constexpr int V_smem = K_smem + Bc * stride;
    static constexpr int P_smem = V_smem + Bc * d;
    static constexpr int floats = P_smem + Br * P_stride;
};

/// Copies 16 bytes at once; the address in memory must be a multiple of 16.
__device__ void load4(float* reg, const float* from) {
    const float4 v = *reinterpret_cast<const float4*>(from);
    reg[0] = v.x;
    reg[1] = v.y;
    reg[2] = v.z;
    reg[3] = v.w;
}

__device__ void store4(float* to, const float* reg) {
    *reinterpret_cast<float4*>(to) = make_float4(reg[0], reg[1], reg[2], reg[3]);
}

/// Maximum over the 8 lanes that share a row, in each of them.
__device__ float row_max(float x) {
    for (int distance = 8; distance > 1; distance /= 2) {
        x = fmaxf(x, __shfl_xor_sync(every_lane, x, distance));
    }
    return x;
}

__device__ float row_sum(float x) {
    for (int distance = 8; distance > 1; distance /= 2) {
        x += __shfl_xor_sync(every_lane, x, distance);
    }
    return x;
}

/// Copies a tile of `rows` rows of d floats into shared memory, and zeros in place of rows from `valid` on. A thread
/// keeps to four columns; neighbouring threads read neighbouring 16 bytes.
template <int d, int rows> __device__ void load_tile(float* smem, int stride, const float* from, int valid) {
    constexpr int pass = threads / (d / 4); // rows that the block copies at a time
    const int x = 4 * (threadIdx.x % (d / 4));
    // Unrolled: all the loads are under way before the first store waits for its own.
#pragma unroll
    for (int r0 = 0; r0 < rows; r0 += pass) {
        const int r = r0 + threadIdx.x / (d / 4);
        float reg[4] = {0, 0, 0, 0};
        if (r < valid) {
            load4(reg, &from[r * d + x]);
        }
        store4(&smem[r * stride + x], reg);
    }
}

template <int d>
__global__ __launch_bounds__(threads) void register_tiling(const float* Q, const float* K, const float* V, float* O,
                                                           float* LSE, int Tr, int group, int N_q, int N_kv,
                                                           float scale, bool causal) {
    using T = Tile<d>;
    constexpr int R = T::R;
    constexpr int C = T::C;
    constexpr int Br = T::Br;
    constexpr int Bc = T::Bc;
    constexpr int Pc = T::Pc;
    const int warp = threadIdx.x / 32;
    // A load of 16 bytes a lane takes four wavefronts, but two if each lane's neighbour, or each lane's next but one,
    // asks for the same bytes. So neighbours share their keys, and next but ones their queries.
    const int lane_r = threadIdx.x % 2 + threadIdx.x % 32 / 16 * 2;
    const int lane_c = threadIdx.x / 2 % 8;
    const int row0 = warp * T::warp_rows + lane_r; // the thread's rows in the tile of Q: row0, row0 + 4, ...
    float* smem = flash::dynamic_shared<float>();
    float* Q_smem = smem + T::Q_smem + row0 * T::stride; // these two are the warp's own
    float* P_smem = smem + T::P_smem + row0 * T::P_stride;
    float* K_smem = smem + T::K_smem;
    float* V_smem = smem + T::V_smem;

    const int64_t head = blockIdx.x / Tr;
    const int i0 = blockIdx.x % Tr * Br;
    Q += (head * N_q + i0) * d;
    O += (head * N_q + i0) * d;
    K += head / group * N_kv * d;
    V += head / group * N_kv * d;
    LSE += head * N_q + i0;
    const int rows = min(Br, N_q - i0);

    // Query i sees key j if j <= i + (N_kv - N_q): tiles beyond the last query's last key are never loaded.
    const int first_row_keys = causal ? i0 + (N_kv - N_q) + 1 : N_kv;
    const int keys = causal ? first_row_keys + rows - 1 : N_kv;

    float m_reg[R];
    float l_reg[R];
    float O_reg[R][d / 8];
    // Unrolled here and below, because registers have no addresses: an index into a register array must be a constant.
#pragma unroll
    for (int i = 0; i < R; ++i) {
        m_reg[i] = -INFINITY;
        l_reg[i] = 0;
#pragma unroll
        for (int n = 0; n < d / 8; ++n) {
            O_reg[i][n] = 0;
        }
    }

    load_tile<d, Br>(smem + T::Q_smem, T::stride, Q, rows);
    for (int j0 = 0; j0 < keys; j0 += Bc) {
        __syncthreads(); // slower warps still read K_smem and V_smem of the pass before
        load_tile<d, Bc>(K_smem, T::stride, K + int64_t{j0} * d, N_kv - j0);
        load_tile<d, Bc>(V_smem, d, V + int64_t{j0} * d, N_kv - j0);
        __syncthreads(); // K_smem and V_smem are complete, and before the first pass Q_smem

        float S_reg[R][C] = {}; // S, then P in its place
        // Not unrolled: one pass has work enough for the pipelines, and a larger loop proved slower.
#pragma unroll 1
        for (int x = 0; x < d; x += 4) {
            float q[R][4];
#pragma unroll
            for (int i = 0; i < R; ++i) {
                load4(q[i], &Q_smem[4 * i * T::stride + x]);
            }
#pragma unroll
            for (int k = 0; k < C; ++k) {
                float key[4];
                load4(key, &K_smem[(8 * k + lane_c) * T::stride + x]);
#pragma unroll
                for (int i = 0; i < R; ++i) {
#pragma unroll
                    for (int t = 0; t < 4; ++t) {
                        S_reg[i][k] += q[i][t] * key[t];
                    }
                }
            }
        }

        const bool edge = j0 + Bc > min(N_kv, first_row_keys); // some row does not see the whole tile
#pragma unroll
        for (int i = 0; i < R; ++i) {
            float m_new = m_reg[i];
#pragma unroll
            for (int k = 0; k < C; ++k) {
                S_reg[i][k] *= scale;
                const int j = j0 + 8 * k + lane_c;
                if (edge && (j >= N_kv || j >= first_row_keys + row0 + 4 * i)) {
                    S_reg[i][k] = -INFINITY;
                }
                m_new = fmaxf(m_new, S_reg[i][k]);
            }
            m_new = row_max(m_new);
            const float shift = m_new == -INFINITY ? 0.0f : m_new; // no visible key yet, and -inf - -inf is NaN
            float sum = 0;
#pragma unroll
            for (int k = 0; k < C; ++k) {
                S_reg[i][k] = expf(S_reg[i][k] - shift);
                sum += S_reg[i][k];
            }
            const float keep = expf(m_reg[i] - shift);
            m_reg[i] = m_new;
            l_reg[i] = keep * l_reg[i] + row_sum(sum);
#pragma unroll
            for (int n = 0; n < d / 8; ++n) {
                O_reg[i][n] *= keep;
            }
        }

#pragma unroll
        for (int c0 = 0; c0 < Bc; c0 += Pc) {
            __syncwarp(); // the part of P before is read no more; its rows belong to this warp alone
#pragma unroll
            for (int i = 0; i < R; ++i) {
#pragma unroll
                for (int k = 0; k < Pc / 8; ++k) {
                    P_smem[4 * i * T::P_stride + 8 * k + lane_c] = S_reg[i][c0 / 8 + k];
                }
            }
            __syncwarp(); // P_smem is complete

#pragma unroll 1
            for (int c = 0; c < Pc; c += 4) {
                float p[R][4];
#pragma unroll
                for (int i = 0; i < R; ++i) {
                    load4(p[i], &P_smem[4 * i * T::P_stride + c]);
                }
#pragma unroll
                for (int t = 0; t < 4; ++t) {
                    float v[d / 8];
#pragma unroll
                    for (int n = 0; n < d / 8; n += 4) {
                        load4(&v[n], &V_smem[(c0 + c + t) * d + 8 * n + 4 * lane_c]);
                    }
#pragma unroll
                    for (int i = 0; i < R; ++i) {
#pragma unroll
                        for (int n = 0; n < d / 8; ++n) {
                            O_reg[i][n] += p[i][t] * v[n];
                        }
                    }
                }
            }
        }
    }

#pragma unroll
    for (int i = 0; i < R; ++i) {
        if (row0 + 4 * i < rows) {
            const float normalise = l_reg[i] == 0 ? 0.0f : 1 / l_reg[i]; // a row that sees no key gets O = 0
#pragma unroll
            for (int n = 0; n < d / 8; n += 4) {
                float o[4];
#pragma unroll
                for (int t = 0; t < 4; ++t) {
                    o[t] = O_reg[i][n + t] * normalise;
                }
                store4(&O[(row0 + 4 * i) * d + 8 * n + 4 * lane_c], o);
            }
            if (lane_c == 0) {
                LSE[row0 + 4 * i] = m_reg[i] + logf(l_reg[i]);
            }
        }
    }
}

template <int d>
void run(const flash::Problem& p, const float* Q, const float* K, const float* V, float* O, float* LSE) {
    const int N_q = flash::as_int(p.q_len, "q-len");
    const int N_kv = flash::as_int(p.kv_len, "kv-len");
    const int group = flash::as_int(p.heads / p.kv_heads, "heads / kv-heads"); // query heads to one K/V head
    const int Tr = static_cast<int>(flash::ceil_div(N_q, Tile<d>::Br));
    // One dimension for tiles and heads, because y and z of a grid end at 65535.
    const int blocks = flash::as_int(p.batch * p.heads * Tr, "batch x heads x tiles of Q");
    flash::launch(register_tiling<d>, blocks, threads, Tile<d>::floats * sizeof(float), Q, K, V, O, LSE, Tr, group, N_q,
                  N_kv, p.scale, p.causal);
}

} // namespace

void attention(const flash::Problem& p, const float* Q, const float* K, const float* V, float* O, float* LSE) {
    flash::for_head_dim<head_dims>(p.head_dim, [&](auto d) { run<d>(p, Q, K, V, O, LSE); });
}

} // namespace step09
