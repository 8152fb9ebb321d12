// Rung 18: Hopper. Its copy engine (TMA) brings whole tiles, and its tensor cores (wgmma) read them in shared memory.
//
// The idea: on rungs 10 to 17 every warp fetches its operands itself: cp.async 16 bytes at a time, ldmatrix once per
// fragment, and mma.sync waits for both. mma.sync reaches two thirds of what the tensor cores of Hopper can do. Here
//   - one thread asks TMA for a tile, and an mbarrier tells when it has landed, swizzled, with zeros beyond the tensor;
//   - four warps together, a warpgroup, ask wgmma for 64 rows of a product. It takes K and V from shared memory, and
//     needs registers only for what it computes. P goes back in as it came out: C fragments are A fragments.
//
// A block is one warpgroup, and does one thing after the other: S, softmax, O. Several blocks share an SM, and while
// one computes exponentials, another's products run.
// Against rung 17: no copies by threads, no ldmatrix, no addresses; O leaves through TMA, too. The maximum is raised as
// on rung 16, by need, but S is scaled afterwards: the products are no longer ours to begin with -m.
// Look at: who waits for whom when a tile of K is replaced, and at the descriptors.
// Gained: the other third of the tensor cores. Counter: wgmma instructions in place of mma.
#include "steps/18_wgmma_tma/wgmma_tma.hpp"

#include <algorithm>
#include <cfloat>
#include <cmath>

#include "common/cuda/cuda.hpp"
#include "common/cuda/exp2.hpp"
#include "common/cuda/mbarrier.hpp"
#include "common/cuda/mma.hpp"
#include "common/cuda/swizzle.hpp"
#include "common/cuda/tma.hpp"
#include "common/cuda/wgmma.hpp"

namespace step18 {
namespace {

constexpr int threads = 128; // one warpgroup
constexpr int Br = 64;       // queries

// Keys: as many as leave room on an SM, for registers and shared memory, for so many blocks.
template <int d> constexpr int Bc = d == 256 ? 80 : 96;
template <int d> constexpr int blocks_per_sm = d == 64 ? 4 : d == 128 ? 3 : 2;

/// Weights are less than 2^headroom: by so much may scores rise before m follows.
constexpr float headroom = 8;

template <int d> using Q_tile = flash::SwizzledTile<d, Br>; // and O's
template <int d> using KV_tile = flash::SwizzledTile<d, Bc<d>>;

/// Hides keys. Row g of the warp sees `visible` keys from the tile of K on, row g + 8 by causality 8 more, and no row
/// more than `N_left`.
template <int n_tiles> __device__ void mask(float (&S_reg)[n_tiles][4], int N_left, int visible) {
    const int t = threadIdx.x % 4;
#pragma unroll
    for (int n = 0; n < n_tiles; ++n) {
        for (int c = 0; c < 4; ++c) {
            if (8 * n + 2 * t + c % 2 >= min(N_left, visible + c / 2 * 8)) {
                S_reg[n][c] = -INFINITY;
            }
        }
    }
}

/// Raises m where a score asks for it, as on rung 16: if in the warp some weight would not be less than 2^headroom,
/// every row's m becomes its running maximum. Then `keep` is what remains of l and O, of which l is done here.
template <int n_tiles>
__device__ bool raise_maximum(const float (&S_reg)[n_tiles][4], float (&m_reg)[2], float (&l_reg)[2], float (&keep)[2],
                              float scale_log2) {
    float top[4] = {S_reg[0][0], S_reg[0][1], S_reg[0][2], S_reg[0][3]}; // four short chains, not one long one
#pragma unroll
    for (int n = 1; n < n_tiles; ++n) {
        for (int c = 0; c < 4; ++c) {
            top[c] = fmaxf(top[c], S_reg[n][c]);
        }
    }
    const float row_top[2] = {fmaxf(top[0], top[1]) * scale_log2, fmaxf(top[2], top[3]) * scale_log2};
    if (!__any_sync(0xffffffff, row_top[0] > m_reg[0] + headroom || row_top[1] > m_reg[1] + headroom)) {
        return false;
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) { // rows g and g + 8
        const float m_new = fmaxf(m_reg[r], flash::row_max(row_top[r]));
        keep[r] = flash::fast_exp2(m_reg[r] - m_new);
        m_reg[r] = m_new;
        l_reg[r] *= keep[r];
    }
    return true;
}

template <int n_tiles> __device__ void rescale(float (&O_reg)[n_tiles][4], const float (&keep)[2]) {
#pragma unroll
    for (int n = 0; n < n_tiles; ++n) {
        for (int c = 0; c < 4; ++c) {
            O_reg[n][c] *= keep[c / 2];
        }
    }
}

/// S becomes P, rounded, as A fragments of 16 rows x 16 keys: two C fragments side by side. l adds up the lane's own
/// part of the row sums.
template <class T, int k_tiles>
__device__ void exponentials(uint32_t (&P_reg)[k_tiles][4], float (&S_reg)[2 * k_tiles][4], const float (&m_reg)[2],
                             float (&l_reg)[2], float scale_log2) {
#pragma unroll
    for (int n = 0; n < 2 * k_tiles; ++n) {
        for (int c = 0; c < 4; ++c) {
            S_reg[n][c] = flash::fast_exp2(fmaf(S_reg[n][c], scale_log2, -m_reg[c / 2]));
            l_reg[c / 2] += S_reg[n][c];
        }
        P_reg[n / 2][n % 2 * 2] = flash::pack<T>(S_reg[n][0], S_reg[n][1]);
        P_reg[n / 2][n % 2 * 2 + 1] = flash::pack<T>(S_reg[n][2], S_reg[n][3]);
    }
}

/// Starts S = Q K^T. k16 steps are 32 bytes apart in a panel of 64 columns, and panels a whole tile.
template <class T, int d> __device__ void start_QK(float (&S_reg)[Bc<d> / 8][4], uint64_t Q_desc, uint64_t K_desc) {
    flash::wgmma_fence();
#pragma unroll
    for (int k = 0; k < d / 16; ++k) {
        const int panel = 128 * (k / 4);
        flash::wgmma_m64k16<T, Bc<d>>(S_reg, flash::advance(Q_desc, panel * Br + 32 * (k % 4)),
                                      flash::advance(K_desc, panel * Bc<d> + 32 * (k % 4)), k > 0);
    }
    flash::wgmma_commit();
}

/// Starts O += P V. 16 rows of V are 2048 bytes.
template <class T, int d>
__device__ void start_PV(float (&O_reg)[d / 8][4], const uint32_t (&P_reg)[Bc<d> / 16][4], uint64_t V_desc) {
    flash::wgmma_fence();
#pragma unroll
    for (int k = 0; k < Bc<d> / 16; ++k) {
        flash::wgmma_m64k16<T, d, true>(O_reg, P_reg[k], flash::advance(V_desc, 2048 * k));
    }
    flash::wgmma_commit();
}

template <class T, int d>
__global__ __launch_bounds__(threads, blocks_per_sm<d>) void wgmma_tma(
    const __grid_constant__ flash::TensorMap Q, const __grid_constant__ flash::TensorMap K,
    const __grid_constant__ flash::TensorMap V, const __grid_constant__ flash::TensorMap O, float* LSE, int heads,
    int wave_heads, int Tr, int group, int N_q, int N_kv, float scale_log2, bool causal) {
    constexpr int Bc = step18::Bc<d>;
    const int warp = threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    const int g = lane / 4; // the lane's place in a fragment: row g and g + 8 of A and C,
    const int t = lane % 4; // columns 2t and 2t + 1
    const int row0 = 16 * warp + g;
    char* Q_smem = flash::dynamic_shared<char>();
    char* K_smem = Q_smem + Q_tile<d>::bytes;
    char* V_smem = K_smem + KV_tile<d>::bytes;
    __shared__ uint64_t Q_landed, K_landed, V_landed;

    // Blocks start in the order of blockIdx: wave by wave, in a wave the last tile of Q of each head first.
    const int wave = blockIdx.x / (wave_heads * Tr);
    const int first_head = wave * wave_heads;
    const int wave_size = min(wave_heads, heads - first_head); // the last wave may have fewer heads
    const int in_wave = blockIdx.x - first_head * Tr;
    const int head = first_head + in_wave % wave_size;
    const int KV_head = head / group;
    const int i0 = (Tr - 1 - in_wave / wave_size) * Br;

    // Query i sees key j if j <= i + (N_kv - N_q): tiles beyond the last query's last key are never loaded.
    const int first_row_keys = causal ? i0 + (N_kv - N_q) + 1 : N_kv;
    const int keys = causal ? min(N_kv, first_row_keys + Br - 1) : N_kv;
    const int whole = min(N_kv, first_row_keys); // keys that every row of the block sees

    if (threadIdx.x == 0) {
        flash::mbarrier_init(&Q_landed, 1);
        flash::mbarrier_init(&K_landed, 1);
        flash::mbarrier_init(&V_landed, 1);
        flash::fence_mbarrier_init();
        if (keys > 0) {
            flash::mbarrier_expect_tx(&Q_landed, Q_tile<d>::bytes);
            flash::tma_load<4>(Q_smem, Q, {0, i0, 0, head}, &Q_landed);
            flash::mbarrier_expect_tx(&K_landed, KV_tile<d>::bytes);
            flash::tma_load<4>(K_smem, K, {0, 0, 0, KV_head}, &K_landed);
            flash::mbarrier_expect_tx(&V_landed, KV_tile<d>::bytes);
            flash::tma_load<4>(V_smem, V, {0, 0, 0, KV_head}, &V_landed);
        }
    }
    __syncthreads(); // the barriers are there for all

    // Q, K: 16 elements of each row in a k16 step. V: 16 rows in a k16 step, its next 64 columns Bc rows further on.
    const uint64_t Q_desc = flash::wgmma_descriptor(Q_smem, 0, 1024);
    const uint64_t K_desc = flash::wgmma_descriptor(K_smem, 0, 1024);
    const uint64_t V_desc = flash::wgmma_descriptor(V_smem, 128 * Bc, 1024);

    float m_reg[2] = {-FLT_MAX, -FLT_MAX}; // of rows g and g + 8, in units of log2: scale * log2(e) * a score
    float l_reg[2] = {};
    float keep[2];
    float O_reg[d / 8][4] = {}; // C fragments: 16 rows x 8 columns each

    if (keys > 0) {
        flash::mbarrier_wait(&Q_landed, 0);
    }
    for (int j0 = 0, phase = 0; j0 < keys; j0 += Bc, phase ^= 1) {
        float S_reg[Bc / 8][4]; // C fragments: 16 rows x 8 keys each
        flash::mbarrier_wait(&K_landed, phase);
        start_QK<T, d>(S_reg, Q_desc, K_desc);
        flash::wgmma_wait<0>(S_reg);
        __syncthreads(); // no warp's product still reads the tile of K
        if (threadIdx.x == 0 && j0 + Bc < keys) {
            flash::mbarrier_expect_tx(&K_landed, KV_tile<d>::bytes);
            flash::tma_load<4>(K_smem, K, {0, j0 + Bc, 0, KV_head}, &K_landed);
        }

        if (j0 + Bc > whole) { // an edge: some row does not see the whole tile
            mask(S_reg, N_kv - j0, first_row_keys + row0 - j0);
        }
        if (raise_maximum(S_reg, m_reg, l_reg, keep, scale_log2)) {
            rescale(O_reg, keep);
        }
        uint32_t P_reg[Bc / 16][4];
        exponentials<T>(P_reg, S_reg, m_reg, l_reg, scale_log2);

        flash::mbarrier_wait(&V_landed, phase);
        start_PV<T, d>(O_reg, P_reg, V_desc);
        flash::wgmma_wait<0>(O_reg);
        __syncthreads(); // no warp's product still reads the tile of V
        if (threadIdx.x == 0 && j0 + Bc < keys) {
            flash::mbarrier_expect_tx(&V_landed, KV_tile<d>::bytes);
            flash::tma_load<4>(V_smem, V, {0, j0 + Bc, 0, KV_head}, &V_landed);
        }
    }

    // O goes to shared memory, to where Q was, and TMA writes the rows that exist.
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const float l = flash::row_sum(l_reg[r]);
        const float normalise = l == 0 ? 0.0f : 1 / l; // a row that sees no key gets O = 0
#pragma unroll
        for (int n = 0; n < d / 8; ++n) {
            *reinterpret_cast<uint32_t*>(Q_smem + Q_tile<d>::offset(row0 + 8 * r, n) + 4 * t) =
                flash::pack<T>(O_reg[n][2 * r] * normalise, O_reg[n][2 * r + 1] * normalise);
        }
        if (t == 0 && i0 + row0 + 8 * r < N_q) {
            LSE[int64_t{head} * N_q + i0 + row0 + 8 * r] = l == 0 ? -INFINITY : m_reg[r] * flash::ln_2 + logf(l);
        }
    }
    flash::fence_proxy_async(); // TMA sees what this thread has written,
    __syncthreads();            // and what all others have
    if (threadIdx.x == 0) {
        flash::tma_store<4>(O, {0, i0, 0, head}, Q_smem);
        flash::bulk_commit();
        flash::bulk_wait_read<0>(); // a block must not leave before its tile has been read
    }
}

/// (H, N, d) as TMA sees it, {64, N, d / 64, H}, so that a tile arrives as panels of 64 columns, 128 bytes wide.
template <int d, class T> flash::TensorMap tensor_map(const T* tensor, int64_t heads, int64_t N, int rows) {
    return flash::make_tensor_map<4>(tensor, {64, N, d / 64, heads}, {d, 64, N * d}, {64, rows, d / 64, 1});
}

template <class T, int d> void run(const flash::Problem& p, const T* Q, const T* K, const T* V, T* O, float* LSE) {
    const int N_q = flash::as_int(p.q_len, "q-len");
    const int N_kv = flash::as_int(p.kv_len, "kv-len");
    const int heads = flash::as_int(p.batch * p.heads, "batch x heads");
    const int group = flash::as_int(p.heads / p.kv_heads, "heads / kv-heads"); // query heads to one K/V head
    const int Tr = static_cast<int>(flash::ceil_div(N_q, Br));
    // One dimension for tiles and heads, because y and z of a grid end at 65535.
    const int blocks = flash::as_int(int64_t{heads} * Tr, "batch x heads x tiles of Q");
    constexpr int smem_bytes = Q_tile<d>::bytes + 2 * KV_tile<d>::bytes; // 64 KiB at d = 128
    const int places = flash::resident_blocks(wgmma_tma<T, d>, threads, smem_bytes);
    const int wave_heads = std::clamp(2 * places / Tr, 1, heads);
    flash::launch(wgmma_tma<T, d>, blocks, threads, smem_bytes, tensor_map<d>(Q, heads, N_q, Br),
                  tensor_map<d>(K, heads / group, N_kv, Bc<d>), tensor_map<d>(V, heads / group, N_kv, Bc<d>),
                  tensor_map<d>(O, heads, N_q, Br), LSE, heads, wave_heads, Tr, group, N_q, N_kv,
                  p.scale * flash::log2_e, p.causal);
}

} // namespace

template <class T> void attention(const flash::Problem& p, const T* Q, const T* K, const T* V, T* O, float* LSE) {
    flash::for_head_dim<head_dims>(p.head_dim, [&](auto d) { run<T, d>(p, Q, K, V, O, LSE); });
}

template void attention(const flash::Problem&, const flash::Half*, const flash::Half*, const flash::Half*, flash::Half*,
                        float*);
template void attention(const flash::Problem&, const flash::Bfloat16*, const flash::Bfloat16*, const flash::Bfloat16*,
                        flash::Bfloat16*, float*);

} // namespace step18
