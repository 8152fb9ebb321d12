// block_order: The longest blocks start first, and those that run together share K and V in L2.
//
// The idea: with a causal mask the last tile of Q sees all keys and the first hardly any, so blocks
// are of very unequal length. Blocks start in the order of blockIdx, each as soon as a place on an
// SM is free. Two things follow:
//   - If long blocks start last, most SMs have nothing left to do while they end. So the long ones
//     start first.
//   - If all heads run at once, their K and V do not fit in L2. So heads run in waves, each of
//     about twice as many blocks as the GPU holds: enough for short blocks to fill the gaps that
//     long ones leave.
//
//      in order   h0: i0 i1 .. i127 | h1: i0 i1 .. i127 | ... : the longest start last
//      here       wave of h0 .. h3: i127 of each, i126 of each, .. i0 of each | wave of h4 ..
//
// Without a mask all blocks are equally long, and heads follow one another: then one head's K and V
// at a time are in L2.
// Parent: async_copy. New: which head and which tile of Q a block takes. Nothing in the loop
// changes.
// Look at: the six lines that turn blockIdx.x into head and i0, and the launcher's choice of
// wave_heads.
// Gained: speed with a causal mask, where SMs used to stand idle at the end. Counter: the share of
// the time that SMs are at work.
#include "steps/25_block_order/block_order.hpp"

#include <algorithm>
#include <cmath>

#include "common/cuda/cuda.hpp"
#include "common/cuda/derived/epilogue.hpp"
#include "common/cuda/derived/swizzle.hpp"
#include "common/cuda/ptx/cp_async.hpp"
#include "common/cuda/ptx/ldmatrix.hpp"
#include "common/cuda/ptx/mma.hpp"

namespace block_order {
namespace {

constexpr int warps = 4;
constexpr int threads = 32 * warps;
constexpr int M = 2; // m16 tiles per warp
constexpr int warp_rows = 16 * M;
constexpr int Br = warp_rows * warps; // queries
constexpr int Bc = 64;                // keys

/// How many blocks an SM should have room for: a thread gets no more registers than that allows.
template <int d> constexpr int blocks_per_sm = d == 32 ? 3 : 2;

/// Dynamic shared memory: Q, and two tiles each of K and V. 96 KiB at d = 128.
template <int d> struct Shared {
    flash::SwizzledTile<d, Br> Q;
    flash::SwizzledTile<d, Bc> K[2], V[2];
};

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
__global__ __launch_bounds__(threads, blocks_per_sm<d>) void block_order(
    const T* Q, const T* K, const T* V, T* O, float* LSE, int heads, int wave_heads, int Tr,
    int group, int N_q, int N_kv, float scale, bool causal) {
    const int g = threadIdx.x % 32 / 4; // the lane's place in a fragment: rows g and g + 8 of C
    // the lane's rows in the tile of Q: row0, row0 + 8, row0 + 16, row0 + 24
    const int row0 = threadIdx.x / 32 * warp_rows + g;
    auto& smem = *flash::dynamic_shared<Shared<d>>();

    // Blocks start in the order of blockIdx: wave by wave, in a wave the last tile of Q of each
    // head first.
    const int wave = blockIdx.x / (wave_heads * Tr);
    const int first_head = wave * wave_heads;
    const int wave_size = min(wave_heads, heads - first_head); // the last wave may have fewer heads
    const int in_wave = blockIdx.x - first_head * Tr;
    const int head = first_head + in_wave % wave_size;
    const int i0 = (Tr - 1 - in_wave / wave_size) * Br;
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

    const auto start_KV = [&](int j0, int buffer) {
        flash::start_tile<threads>(smem.K[buffer], K + int64_t{j0} * d, N_kv - j0);
        flash::start_tile<threads>(smem.V[buffer], V + int64_t{j0} * d, N_kv - j0);
    };
    flash::start_tile<threads>(smem.Q, Q, rows);
    if (keys > 0) {
        start_KV(0, 0);
    }
    flash::cp_async_commit(); // Q, and K and V of the first tile

    for (int j0 = 0; j0 < keys; j0 += Bc) {
        const int now = j0 / Bc % 2; // which of the two buffers
        flash::cp_async_wait<0>();   // this thread's copies of tile j0 have landed
        // so have all other threads'; and no warp still reads the tile before, in the other buffer
        __syncthreads();
        if (j0 + Bc < keys) {
            start_KV(j0 + Bc, 1 - now);
            flash::cp_async_commit();
        }

        float S_reg[M][Bc / 8][4]; // S, then P in its place
        multiply_QK<T>(S_reg, smem.Q, smem.K[now]);
#pragma unroll
        for (int i = 0; i < M; ++i) {
            if (j0 + Bc > whole) { // an edge: some row does not see the whole tile
                flash::mask(S_reg[i], N_kv - j0, first_row_keys + row0 + 16 * i - j0);
            }
            softmax<d>(S_reg[i], m_reg[i], l_reg[i], O_reg[i], scale);
        }
        multiply_PV<T>(O_reg, S_reg, smem.V[now]);
    }
    // with no key to see, Q is still landing: a block must not leave before its copies have
    flash::cp_async_wait<0>();

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
    const int heads = flash::as_int(p.batch * p.heads, "batch x heads");
    // query heads to one K/V head
    const int group = flash::as_int(p.heads / p.kv_heads, "heads / kv-heads");
    const int Tr = static_cast<int>(flash::ceil_div(N_q, Br));
    // One dimension for tiles and heads, because y and z of a grid end at 65535.
    const int blocks = flash::as_int(int64_t{heads} * Tr, "batch x heads x tiles of Q");
    const auto kernel = block_order<T, d>;
    const int places = flash::resident_blocks(kernel, threads, sizeof(Shared<d>));
    const int wave_heads = p.causal ? std::clamp(2 * places / Tr, 1, heads) : 1;
    flash::launch(kernel, blocks, threads, sizeof(Shared<d>), Q, K, V, O, LSE, heads, wave_heads,
                  Tr, group, N_q, N_kv, p.scale, p.causal);
}

} // namespace

template <class T>
void attention(const flash::Problem& p, const T* Q, const T* K, const T* V, T* O, float* LSE) {
    flash::for_head_dim<head_dims>(p.head_dim, [&](auto d) { run<T, d>(p, Q, K, V, O, LSE); });
}

template decltype(attention<flash::Half>) attention<flash::Half>;
template decltype(attention<flash::Bfloat16>) attention<flash::Bfloat16>;

} // namespace block_order
