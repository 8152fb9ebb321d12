// warp_tiles: A warp owns 32 rows of Q, and each fragment of K and V feeds two mma.
//
// The idea: in swizzle every ldmatrix_x4 feeds two mma. Shared memory delivers 128 bytes per clock
// and SM, and that is less than the tensor cores take at this ratio. With M = 2 tiles of 16 rows
// per warp, the same fragment is used twice while it is in registers, so each mma costs half the
// wavefronts for K and V:
//
//      swizzle   K fragment -> mma with rows 0-15      here    K fragment -> mma with rows  0-15
//                                                                          -> mma with rows 16-31
//
// The price is registers. O, S and Q of 32 rows need more than the 255 that a thread has at d =
// 128. So Q stays in shared memory, and its fragments are fetched again for each K tile: one
// ldmatrix per Bc / 8 mma.
// Parent: swizzle. New: a dimension [M] on every register array, and Br = 128; fragments of Q come
// from shared memory.
// Look at: the loops over i, and what stands outside of them.
// Gained: shared memory no longer sets the pace. Counter: wavefronts of shared loads per mma.
#include "steps/23_warp_tiles/warp_tiles.hpp"

#include <cmath>

#include "common/cuda/cuda.hpp"
#include "common/cuda/derived/epilogue.hpp"
#include "common/cuda/derived/swizzle.hpp"
#include "common/cuda/ptx/ldmatrix.hpp"
#include "common/cuda/ptx/mma.hpp"

namespace warp_tiles {
namespace {

constexpr int warps = 4;
constexpr int threads = 32 * warps;
constexpr int M = 2; // m16 tiles per warp
constexpr int warp_rows = 16 * M;
constexpr int Br = warp_rows * warps; // queries
constexpr int Bc = 64;                // keys

/// Dynamic shared memory: tiles of Q, K and V. 64 KiB at d = 128.
template <int d> struct Shared {
    flash::SwizzledTile<d, Br> Q;
    flash::SwizzledTile<d, Bc> K, V;
};

/// Copies a tile into shared memory, 16 bytes at a time, and zeros in place of rows from `valid`
/// on. `from` is the tile's first element in global memory.
template <int d, int rows, class T>
__device__ void load_tile(flash::SwizzledTile<d, rows>& tile, const T* from, int valid) {
    constexpr int step = threads / (d / 8); // rows that the block copies at once
    const int chunk = threadIdx.x % (d / 8);
#pragma unroll // so that all loads are under way before the first store waits for its data
    for (int r0 = 0; r0 < rows; r0 += step) {
        const int r = r0 + threadIdx.x / (d / 8);
        const uint4 zeros = make_uint4(0, 0, 0, 0);
        *reinterpret_cast<uint4*>(tile.data + tile.offset(r, chunk)) =
            r < valid ? *reinterpret_cast<const uint4*>(from + r * d + 8 * chunk) : zeros;
    }
}

/// S_reg = Q K^T: the warp's 32 queries and the tile's keys. C fragments, 16 rows x 8 keys each.
template <class T, int d>
__device__ void multiply_QK(float (&S_reg)[M][Bc / 8][4], const flash::SwizzledTile<d, Br>& Q,
                            const flash::SwizzledTile<d, Bc>& K) {
    const int warp = threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < Bc / 8; ++n) {
        for (int i = 0; i < M; ++i) {
            for (int c = 0; c < 4; ++c) {
                S_reg[i][n][c] = 0;
            }
        }
    }
#pragma unroll
    for (int k = 0; k < d / 16; ++k) {
        uint32_t Q_reg[M][4]; // A fragments: 16 rows x 16 columns each
        for (int i = 0; i < M; ++i) {
            // Lanes 0-15 name the 16 rows of columns 0-7 of the fragment, lanes 16-31 those of
            // columns 8-15.
            const int row = warp_rows * warp + 16 * i + lane % 16;
            flash::ldmatrix_x4(Q_reg[i], Q.data + Q.offset(row, 2 * k + lane / 16));
        }
#pragma unroll
        for (int n = 0; n < Bc / 8; n += 2) {
            // B = K^T for 16 keys: lanes 0-7 name keys 0-7 of chunk 2k, 8-15 the same of chunk 2k +
            // 1, the rest keys 8-15. The rows of K are the columns of B, and each lane needs
            // neighbours in a column: no transposition.
            const int key = 8 * n + lane / 16 * 8 + lane % 8;
            uint32_t K_reg[4];
            flash::ldmatrix_x4(K_reg, K.data + K.offset(key, 2 * k + lane / 8 % 2));
            for (int i = 0; i < M; ++i) {
                flash::mma_m16n8k16<T>(S_reg[i][n], Q_reg[i], {K_reg[0], K_reg[1]});
                flash::mma_m16n8k16<T>(S_reg[i][n + 1], Q_reg[i], {K_reg[2], K_reg[3]});
            }
        }
    }
}

/// S of an m16 tile becomes P, relative to the running maximum m; what was summed up so far, l and
/// O, is rescaled to it.
template <int d>
__device__ void softmax(float (&S_reg)[Bc / 8][4], float (&m_reg)[2], float (&l_reg)[2],
                        float (&O_reg)[d / 8][4], float scale) {
#pragma unroll
    for (int r = 0; r < 2; ++r) { // rows g and g + 8
        float m_new = S_reg[0][2 * r];
#pragma unroll
        for (int n = 0; n < Bc / 8; ++n) {
            m_new = fmaxf(m_new, fmaxf(S_reg[n][2 * r], S_reg[n][2 * r + 1]));
        }
        m_new = fmaxf(m_reg[r], flash::row_max(m_new));
        // no visible key yet, and -inf - -inf is NaN
        const float shift = m_new == -INFINITY ? 0.0f : m_new;
        const float keep = __expf(scale * (m_reg[r] - shift));
        m_reg[r] = m_new;
        float sum = 0;
#pragma unroll
        for (int n = 0; n < Bc / 8; ++n) {
            for (int c = 2 * r; c < 2 * r + 2; ++c) {
                // scaled after the subtraction, so that no rounding makes an exponent larger than 0
                S_reg[n][c] = __expf(scale * (S_reg[n][c] - shift));
                sum += S_reg[n][c];
            }
        }
        l_reg[r] = keep * l_reg[r] + flash::row_sum(sum);
#pragma unroll
        for (int n = 0; n < d / 8; ++n) {
            O_reg[n][2 * r] *= keep;
            O_reg[n][2 * r + 1] *= keep;
        }
    }
}

/// O_reg += P V.
template <class T, int d>
__device__ void multiply_PV(float (&O_reg)[M][d / 8][4], const float (&P)[M][Bc / 8][4],
                            const flash::SwizzledTile<d, Bc>& V) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int k = 0; k < Bc / 16; ++k) {
        uint32_t P_reg[M][4]; // A fragments: 16 rows x 16 keys each
        for (int i = 0; i < M; ++i) {
            flash::pack_A<T>(P_reg[i], P[i][2 * k], P[i][2 * k + 1]);
        }
#pragma unroll
        for (int n = 0; n < d / 8; n += 2) {
            // B = V, 16 keys and 16 columns: lanes 0-15 name the keys of chunk n, 16-31 those of
            // chunk n + 1. A lane needs elements one below the other: transposed.
            uint32_t V_reg[4];
            flash::ldmatrix_x4_trans(V_reg, V.data + V.offset(16 * k + lane % 16, n + lane / 16));
            for (int i = 0; i < M; ++i) {
                flash::mma_m16n8k16<T>(O_reg[i][n], P_reg[i], {V_reg[0], V_reg[1]});
                flash::mma_m16n8k16<T>(O_reg[i][n + 1], P_reg[i], {V_reg[2], V_reg[3]});
            }
        }
    }
}

template <class T, int d>
__global__ __launch_bounds__(threads, 2) void warp_tiles(const T* Q, const T* K, const T* V, T* O,
                                                         float* LSE, int Tr, int group, int N_q,
                                                         int N_kv, float scale, bool causal) {
    const int g = threadIdx.x % 32 / 4; // the lane's place in a fragment: rows g and g + 8 of C
    // the lane's rows in the tile of Q: row0, row0 + 8, row0 + 16, row0 + 24
    const int row0 = threadIdx.x / 32 * warp_rows + g;
    auto& smem = *flash::dynamic_shared<Shared<d>>();

    const int head = blockIdx.x / Tr;
    const int i0 = blockIdx.x % Tr * Br;
    const int64_t first_row = int64_t{head} * N_q + i0;
    const int64_t first_key = int64_t{head / group} * N_kv;
    Q += first_row * d;
    K += first_key * d;
    V += first_key * d;
    O += first_row * d;
    LSE += first_row;
    const int rows = min(Br, N_q - i0);

    // Query i sees key j if j <= i + (N_kv - N_q): tiles beyond the last query's last key are never
    // loaded.
    const int first_row_keys = causal ? i0 + (N_kv - N_q) + 1 : N_kv;
    const int keys = causal ? first_row_keys + rows - 1 : N_kv;
    const int whole = min(N_kv, first_row_keys); // keys that every row of the block sees

    // All loops over these arrays are unrolled; those of two or four steps the compiler unrolls by
    // itself.
    float m_reg[M][2]; // of rows g and g + 8 of each m16 tile
    float l_reg[M][2] = {};
    float O_reg[M][d / 8][4] = {}; // C fragments: 16 rows x 8 columns each
#pragma unroll
    for (int i = 0; i < M; ++i) {
        m_reg[i][0] = m_reg[i][1] = -INFINITY;
    }

    load_tile(smem.Q, Q, rows);
    for (int j0 = 0; j0 < keys; j0 += Bc) {
        __syncthreads(); // slower warps still read smem.K and smem.V of the tile before
        load_tile(smem.K, K + int64_t{j0} * d, N_kv - j0);
        load_tile(smem.V, V + int64_t{j0} * d, N_kv - j0);
        __syncthreads(); // smem.K and smem.V are complete, and so is smem.Q

        float S_reg[M][Bc / 8][4]; // S, then P in its place
        multiply_QK<T>(S_reg, smem.Q, smem.K);
#pragma unroll
        for (int i = 0; i < M; ++i) {
            if (j0 + Bc > whole) { // an edge: some row does not see the whole tile
                flash::mask(S_reg[i], N_kv - j0, first_row_keys + row0 + 16 * i - j0);
            }
            softmax<d>(S_reg[i], m_reg[i], l_reg[i], O_reg[i], scale);
        }
        multiply_PV<T>(O_reg, S_reg, smem.V);
    }

#pragma unroll
    for (int i = 0; i < M; ++i) {
        const float m[2] = {scale * m_reg[i][0], scale * m_reg[i][1]};
        flash::store_O_and_LSE(O, LSE, O_reg[i], m, l_reg[i], row0 + 16 * i, rows);
    }
}

template <class T, int d>
void run(const flash::Problem& p, const T* Q, const T* K, const T* V, T* O, float* LSE) {
    const int N_q = flash::as_int(p.q_len, "q-len");
    const int N_kv = flash::as_int(p.kv_len, "kv-len");
    // query heads to one K/V head
    const int group = flash::as_int(p.heads / p.kv_heads, "heads / kv-heads");
    const int Tr = static_cast<int>(flash::ceil_div(N_q, Br));
    // One dimension for tiles and heads, because y and z of a grid end at 65535.
    const int blocks = flash::as_int(p.batch * p.heads * Tr, "batch x heads x tiles of Q");
    flash::launch(warp_tiles<T, d>, blocks, threads, sizeof(Shared<d>), Q, K, V, O, LSE, Tr, group,
                  N_q, N_kv, p.scale, p.causal);
}

} // namespace

template <class T>
void attention(const flash::Problem& p, const T* Q, const T* K, const T* V, T* O, float* LSE) {
    flash::for_head_dim<head_dims>(p.head_dim, [&](auto d) { run<T, d>(p, Q, K, V, O, LSE); });
}

template decltype(attention<flash::Half>) attention<flash::Half>;
template decltype(attention<flash::Bfloat16>) attention<flash::Bfloat16>;

} // namespace warp_tiles
