// Rung 11: ldmatrix and a swizzle. Every access to shared memory moves 128 bytes at a time.
//
// The idea: in rung 10 the 8 rows of a fragment lie d elements apart, so they meet in the same banks and take 8 turns.
// ldmatrix fetches an 8 x 8 tile at once, 16 bytes a row, if the rows lie in 8 different 16-byte columns of the banks.
// So chunk c of row r (8 elements, 16 bytes) is stored in column c XOR (r mod 8):
//
//      d = 64, one row = 128 bytes = all banks        stored in 16-byte column
//                                                       0  1  2  3  4  5  6  7
//                                    row 0   chunk      0  1  2  3  4  5  6  7
//                                    row 1              1  0  3  2  5  4  7  6
//                                    row 2              2  3  0  1  6  7  4  5      chunk 0 of 8 rows: 8 columns.
//                                    ...                                            So has every other chunk.
//                                    row 7              7  6  5  4  3  2  1  0
//
// A row is still 128 whole bytes, so that writing a tile is free of conflicts too, and no byte is spent on padding.
// And each fragment of K and V serves two products: a warp owns 32 rows of Q, not 16, which halves its ldmatrix.
// Against rung 10: load2 and its 16-bit kin become ldmatrix_x4; the tiles are stored swizzled; M tiles of 16 rows a
// warp; O leaves through Q_smem, 16 bytes a lane.
// Look at: swizzled, and which row each lane names to ldmatrix.
// Gained: shared memory keeps up with the tensor cores. Counter: shared wavefronts, 8 for 1 before and 1 for 1 now.
#include "steps/11_swizzle/swizzle.hpp"

#include <cmath>

#include "common/cuda/cuda.hpp"
#include "common/cuda/ldmatrix.hpp"
#include "common/cuda/mma.hpp"

namespace step11 {
namespace {

constexpr int warps = 4;
constexpr int threads = 32 * warps;
constexpr int M = 2; // m16 tiles of a warp
constexpr int warp_rows = 16 * M;
constexpr int Br = warp_rows * warps; // queries
constexpr int Bc = 64;                // keys
constexpr unsigned every_lane = 0xffffffff;

/// Elements of shared memory: Q, K and V tiles, 64 KiB at d = 128.
template <int d> constexpr int smem_elements = (Br + 2 * Bc) * d;

/// Maximum over the 4 lanes that share a row, in each of them.
__device__ float row_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(every_lane, x, 1));
    return fmaxf(x, __shfl_xor_sync(every_lane, x, 2));
}

__device__ float row_sum(float x) {
    x += __shfl_xor_sync(every_lane, x, 1);
    return x + __shfl_xor_sync(every_lane, x, 2);
}

/// Where chunk `chunk` (8 elements, 16 bytes) of row `row` lies in a tile of `rows` rows of d elements, in elements.
/// A row of d = 128 is two halves of 64 columns, each a tile of its own; two rows of d = 32 share the 128 bytes.
template <int d, int rows> __device__ int swizzled(int row, int chunk) {
    constexpr int chunks = d < 64 ? d / 8 : 8; // in a row of a half
    const int key = d < 64 ? row / 2 % 4 : row % 8;
    return (chunk / chunks * rows + row) * 8 * chunks + (chunk % chunks ^ key) * 8;
}

/// Copies `rows` rows of d elements into shared memory, 16 bytes at a time, and zeros in place of rows from `valid` on.
template <int d, int rows, class T> __device__ void load_tile(T* smem, const T* from, int valid) {
    constexpr int chunks = d / 8;
    constexpr int step = threads / chunks; // rows that the block copies at once
    const int row = threadIdx.x / chunks;
    const int chunk = threadIdx.x % chunks;
#pragma unroll // so that all loads are under way before the first store waits for its data
    for (int r = row; r < row + rows; r += step) {
        const uint4 zeros = make_uint4(0, 0, 0, 0);
        *reinterpret_cast<uint4*>(smem + swizzled<d, rows>(r, chunk)) =
            r < valid ? *reinterpret_cast<const uint4*>(from + r * d + 8 * chunk) : zeros;
    }
}

template <class T, int d>
__global__ __launch_bounds__(threads, 2) void swizzle(const T* Q, const T* K, const T* V, T* O, float* LSE, int Tr,
                                                      int group, int N_q, int N_kv, float scale, bool causal) {
    const int warp = threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    const int g = lane / 4;                // the lane's place in a fragment: row g and g + 8 of A and C,
    const int t = lane % 4;                // columns 2t and 2t + 1
    const int row0 = warp_rows * warp + g; // the lane's rows in the tile of Q: row0, row0 + 8, row0 + 16, row0 + 24
    T* Q_smem = flash::dynamic_shared<T>();
    T* K_smem = Q_smem + Br * d;
    T* V_smem = K_smem + Bc * d;

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

    float m_reg[M][2]; // of rows g and g + 8 of each m16 tile
    float l_reg[M][2] = {};
    float O_reg[M][d / 8][4] = {}; // C fragments: 16 rows x 8 columns each
    for (int i = 0; i < M; ++i) {
        m_reg[i][0] = m_reg[i][1] = -INFINITY;
    }

    load_tile<d, Br>(Q_smem, Q, rows);
    for (int j0 = 0; j0 < keys; j0 += Bc) {
        __syncthreads(); // slower warps still read K_smem and V_smem of the pass before
        load_tile<d, Bc>(K_smem, K + int64_t{j0} * d, N_kv - j0);
        load_tile<d, Bc>(V_smem, V + int64_t{j0} * d, N_kv - j0);
        __syncthreads(); // K_smem and V_smem are complete, and so is Q_smem

        float S_reg[M][Bc / 8][4] = {}; // C fragments: 16 rows x 8 keys each; S, then P in its place
#pragma unroll
        for (int k = 0; k < d / 16; ++k) {
            uint32_t Q_reg[M][4]; // A fragments: 16 rows x 16 columns each
#pragma unroll
            for (int i = 0; i < M; ++i) {
                // Lanes 0-15 name the 16 rows of columns 0-7 of the fragment, lanes 16-31 those of columns 8-15.
                const int row = warp_rows * warp + 16 * i + lane % 16;
                flash::ldmatrix_x4(Q_reg[i], Q_smem + swizzled<d, Br>(row, 2 * k + lane / 16));
            }
#pragma unroll
            for (int n = 0; n < Bc / 8; n += 2) {
                // B = K^T for 16 keys: lanes 0-7 name keys 0-7 of chunk 2k, 8-15 the same of chunk 2k + 1, the rest
                // keys 8-15. The rows of K are the columns of B, and each lane needs neighbours in a column: no
                // transposition.
                uint32_t K_reg[4];
                const int key = 8 * n + lane / 16 * 8 + lane % 8;
                flash::ldmatrix_x4(K_reg, K_smem + swizzled<d, Bc>(key, 2 * k + lane / 8 % 2));
#pragma unroll
                for (int i = 0; i < M; ++i) {
                    flash::mma_m16n8k16<T>(S_reg[i][n], Q_reg[i], {K_reg[0], K_reg[1]});
                    flash::mma_m16n8k16<T>(S_reg[i][n + 1], Q_reg[i], {K_reg[2], K_reg[3]});
                }
            }
        }

        if (j0 + Bc > min(N_kv, first_row_keys)) { // an edge: some row does not see the whole tile
#pragma unroll
            for (int i = 0; i < M; ++i) {
#pragma unroll
                for (int n = 0; n < Bc / 8; ++n) {
#pragma unroll
                    for (int c = 0; c < 4; ++c) {
                        const int j = j0 + 8 * n + 2 * t + c % 2;
                        if (j >= N_kv || j >= first_row_keys + row0 + 16 * i + c / 2 * 8) {
                            S_reg[i][n][c] = -INFINITY;
                        }
                    }
                }
            }
        }

#pragma unroll
        for (int i = 0; i < M; ++i) {
#pragma unroll
            for (int r = 0; r < 2; ++r) { // rows g and g + 8 of the m16 tile
                float m_new = S_reg[i][0][2 * r];
#pragma unroll
                for (int n = 0; n < Bc / 8; ++n) {
                    m_new = fmaxf(m_new, fmaxf(S_reg[i][n][2 * r], S_reg[i][n][2 * r + 1]));
                }
                m_new = fmaxf(m_reg[i][r], scale * row_max(m_new));    // scale > 0: the maximum may be scaled instead
                const float shift = m_new == -INFINITY ? 0.0f : m_new; // no visible key yet, and -inf - -inf is NaN
                const float keep = __expf(m_reg[i][r] - shift);
                m_reg[i][r] = m_new;
                float sum = 0;
#pragma unroll
                for (int n = 0; n < Bc / 8; ++n) {
#pragma unroll
                    for (int c = 2 * r; c < 2 * r + 2; ++c) {
                        S_reg[i][n][c] = __expf(scale * S_reg[i][n][c] - shift);
                        sum += S_reg[i][n][c];
                    }
                }
                l_reg[i][r] = keep * l_reg[i][r] + row_sum(sum);
#pragma unroll
                for (int n = 0; n < d / 8; ++n) {
                    O_reg[i][n][2 * r] *= keep;
                    O_reg[i][n][2 * r + 1] *= keep;
                }
            }
        }

#pragma unroll
        for (int k = 0; k < Bc / 16; ++k) {
            uint32_t P_reg[M][4]; // two C fragments side by side, rounded, are an A fragment of 16 rows x 16 keys
#pragma unroll
            for (int i = 0; i < M; ++i) {
#pragma unroll
                for (int e = 0; e < 4; ++e) {
                    const auto& S = S_reg[i][2 * k + e / 2];
                    P_reg[i][e] = flash::pack<T>(S[e % 2 * 2], S[e % 2 * 2 + 1]);
                }
            }
#pragma unroll
            for (int n = 0; n < d / 8; n += 2) {
                // B = V, 16 keys and 16 columns: lanes 0-15 name the keys of chunk n, 16-31 those of chunk n + 1. A
                // lane needs elements one below the other: transposed.
                uint32_t V_reg[4];
                flash::ldmatrix_x4_trans(V_reg, V_smem + swizzled<d, Bc>(16 * k + lane % 16, n + lane / 16));
#pragma unroll
                for (int i = 0; i < M; ++i) {
                    flash::mma_m16n8k16<T>(O_reg[i][n], P_reg[i], {V_reg[0], V_reg[1]});
                    flash::mma_m16n8k16<T>(O_reg[i][n + 1], P_reg[i], {V_reg[2], V_reg[3]});
                }
            }
        }
    }
    __syncthreads(); // with no key to see, other threads may still be storing Q where O goes now

    // O through the warp's own rows of Q_smem, which nobody reads any more: 4-byte pieces in, 16-byte pieces out.
#pragma unroll
    for (int i = 0; i < M; ++i) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            const int row = row0 + 16 * i + 8 * r;
            const float normalise = l_reg[i][r] == 0 ? 0.0f : 1 / l_reg[i][r]; // a row that sees no key gets O = 0
#pragma unroll
            for (int n = 0; n < d / 8; ++n) {
                *reinterpret_cast<uint32_t*>(Q_smem + swizzled<d, Br>(row, n) + 2 * t) =
                    flash::pack<T>(O_reg[i][n][2 * r] * normalise, O_reg[i][n][2 * r + 1] * normalise);
            }
            if (t == 0 && row < rows) {
                LSE[row] = m_reg[i][r] + logf(l_reg[i][r]);
            }
        }
    }
    __syncwarp(); // the warp's rows of O are complete
    for (int e = lane; e < warp_rows * d / 8; e += 32) {
        const int row = warp_rows * warp + e / (d / 8);
        if (row < rows) {
            *reinterpret_cast<uint4*>(O + row * d + e % (d / 8) * 8) =
                *reinterpret_cast<const uint4*>(Q_smem + swizzled<d, Br>(row, e % (d / 8)));
        }
    }
}

template <class T, int d> void run(const flash::Problem& p, const T* Q, const T* K, const T* V, T* O, float* LSE) {
    const int N_q = flash::as_int(p.q_len, "q-len");
    const int N_kv = flash::as_int(p.kv_len, "kv-len");
    const int group = flash::as_int(p.heads / p.kv_heads, "heads / kv-heads"); // query heads to one K/V head
    const int Tr = static_cast<int>(flash::ceil_div(N_q, Br));
    // One dimension for tiles and heads, because y and z of a grid end at 65535.
    const int blocks = flash::as_int(p.batch * p.heads * Tr, "batch x heads x tiles of Q");
    flash::launch(swizzle<T, d>, blocks, threads, smem_elements<d> * sizeof(T), Q, K, V, O, LSE, Tr, group, N_q, N_kv,
                  p.scale, p.causal);
}

} // namespace

template <class T> void attention(const flash::Problem& p, const T* Q, const T* K, const T* V, T* O, float* LSE) {
    flash::for_head_dim<head_dims>(p.head_dim, [&](auto d) { run<T, d>(p, Q, K, V, O, LSE); });
}

template void attention(const flash::Problem&, const flash::Half*, const flash::Half*, const flash::Half*, flash::Half*,
                        float*);
template void attention(const flash::Problem&, const flash::Bfloat16*, const flash::Bfloat16*, const flash::Bfloat16*,
                        flash::Bfloat16*, float*);

} // namespace step11
