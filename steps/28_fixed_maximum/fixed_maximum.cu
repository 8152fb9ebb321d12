// fixed_maximum: After the first tile, nothing stands between the two products but
// exponentials.
//
// The idea: lazy_maximum asks before each P V whether m still holds, and P V must wait for the
// answer. Here the question comes after P V, and a tile whose weights did not fit is mended:
//
//      lazy_maximum   Q K^T - m | signs, vote | exp2 | P V
//      here           Q K^T - m .. exp2 .. P V | vote
//
//   - The product with ones gives each tile's own row sums for nothing: columns 1 and 3 of l start
//     at 0 in every tile.
//   - A sum that is too large tells that weights have left their window. fp16 saturates them at
//     65504, so O stays finite. S is computed again, m is raised, O gets what the weights lacked,
//     and the warp goes on as in lazy_maximum.
// In one straight run of instructions the compiler mixes the exponentials of some scores with the
// products of others.
// A fixed maximum, and recomputation where it fails, were published with FlashDecoding++ (2023).
// Against lazy_maximum: two kinds of tiles, the mending of one, none beyond the mask, Q in
// registers if d <= 64. Look at: what becomes of O when a weight is infinite. Gained: speed, as
// long as scores do not rise by more than the window.
#include "steps/28_fixed_maximum/fixed_maximum.hpp"

#include <algorithm>
#include <cfloat>
#include <cmath>

#include "common/cuda/cuda.hpp"
#include "common/cuda/derived/swizzle.hpp"
#include "common/cuda/ptx/cp_async.hpp"
#include "common/cuda/ptx/exp2.hpp"
#include "common/cuda/ptx/ldmatrix.hpp"
#include "common/cuda/ptx/mma.hpp"

namespace fixed_maximum {
namespace {

constexpr int warps = 4, threads = 32 * warps;
constexpr int M = 2; // m16 tiles per warp
constexpr int warp_rows = 16 * M;
constexpr int Br = warp_rows * warps; // queries
constexpr int Bc = 64;                // keys

/// Weights should be below 2^window, and are 2^top_weight for the largest score when m is raised:
/// scores may rise by 16 powers of two in fp16, and by 80 in bf16. A tile's sum of `limit` tells
/// that a weight was too large. In the first tile, a score `far_below` m (2.5 such rises below its
/// row's largest) tells that later ones will be.
constexpr float window = 16;
template <class T> constexpr bool is_fp16 = flash::dtype_of<T> == flash::DType::fp16;
template <class T> constexpr float top_weight = is_fp16<T> ? 0 : -64; // in log2
template <class T> constexpr float limit = is_fp16<T> ? 65504 : 0x1p22f;
// as large as an element of P can be
template <class T> constexpr float most = is_fp16<T> ? 65504 : FLT_MAX;
template <class T> constexpr float far_below = is_fp16<T> ? -56 : -280;

/// Where a tile is mended, O and l of a row that keeps less than this are dropped: they may be
/// infinite. Before, N keys summed up to less than N 2^window; now one key alone weighs
/// 2^top_weight. So less than N 2^(80 - 122) of the sum is lost, 2^-11 of it with 2^31 keys.
constexpr float negligible = 0x1p-122f;

template <int d> using Q_tile = flash::SwizzledTile<d, Br>;
template <int d> using KV_tile = flash::SwizzledTile<d, Bc>;

/// Columns 16 k to 16 k + 15 of the warp's rows of Q.
template <int d> __device__ void load_Q(uint32_t (&Q_reg)[M][4], const char* Q_smem, int k) {
    const int Q_lane = Q_tile<d>::lane_of_A(threadIdx.x / 32 * warp_rows, threadIdx.x % 32);
    for (int i = 0; i < M; ++i) {
        flash::ldmatrix_x4(Q_reg[i], Q_smem + Q_tile<d>::fragment(Q_lane, 16 * i, k));
    }
}

/// S_reg = Q K^T - m: the warp's 32 queries and the tile's keys. C fragments, 16 rows x 8 keys
/// each.
template <class T, int d>
__device__ void multiply_QK(float (&S_reg)[M][Bc / 8][4], const float (&m_reg)[M][2],
                            uint32_t (&Q_reg)[d / 16][M][4], const char* Q_smem,
                            const char* K_smem) {
    const int K_lane = KV_tile<d>::lane_of_B(threadIdx.x % 32);
#pragma unroll
    for (int n = 0; n < Bc / 8; ++n) {
        for (int e = 0; e < 4 * M; ++e) {
            S_reg[e / 4][n][e % 4] = -m_reg[e / 4][e % 4 / 2];
        }
    }
#pragma unroll
    for (int k = 0; k < d / 16; ++k) {
        if constexpr (d > 64) { // else it is in registers since the first tile
            load_Q<d>(Q_reg[k], Q_smem, k);
        }
#pragma unroll
        for (int n = 0; n < Bc / 8; n += 2) {
            uint32_t K_reg[4];
            flash::ldmatrix_x4(K_reg, K_smem + KV_tile<d>::fragment(K_lane, 8 * n, k));
            for (int i = 0; i < M; ++i) {
                flash::mma_m16n8k16<T>(S_reg[i][n], Q_reg[k][i], {K_reg[0], K_reg[1]});
                flash::mma_m16n8k16<T>(S_reg[i][n + 1], Q_reg[k][i], {K_reg[2], K_reg[3]});
            }
        }
    }
}

/// The weight of s, a score less m.
template <class T> __device__ float weight(float s, float scale_log2) {
    return flash::fast_exp2(fmaf(s, scale_log2, window));
}

/// Raises m of each row whose largest weight is above 2^top_weight (of every row in the first tile)
/// to make it that. S, O and l follow. `mend`: O and l have this tile's weights, as far as they did
/// fit, and S becomes what they lack.
template <bool mend, class T, int d>
__device__ void raise_maximum(float (&S_reg)[M][Bc / 8][4], float (&m_reg)[M][2],
                              float (&l_reg)[M][4], float (&O_reg)[M][d / 8][4], float scale_log2,
                              bool first) {
// rows g and g + 8 of each m16 tile: elements c and c + 1 of C
#pragma unroll
    for (int row = 0; row < 2 * M; ++row) {
        const int i = row / 2, c = row % 2 * 2;
        float top = S_reg[i][0][c];
#pragma unroll
        for (int n = 0; n < Bc / 8; ++n) {
            top = fmaxf(top, fmaxf(S_reg[i][n][c], S_reg[i][n][c + 1]));
        }
        top = flash::row_max(top); // of a row that sees no key: -inf, and m stays 0
        const float room = (window - top_weight<T>) / scale_log2; // scores from there up to m
        const float rise = top >= (first ? -FLT_MAX : -room) ? top + room : 0.0f;
        // m may fall in the first tile: O = l = 0
        float keep = flash::fast_exp2(fminf(-rise * scale_log2, 0.0f));
        keep = mend && keep < negligible ? 0.0f : keep;
        m_reg[i][row % 2] += rise;
        l_reg[i][c] = mend && keep == 0 ? 0.0f : l_reg[i][c] * keep; // not infinity times 0
#pragma unroll
        for (int n = 0; n < Bc / 8; ++n) {
            for (int e = c; e < c + 2; ++e) {
                const float had = keep * fminf(weight<T>(S_reg[i][n][e], scale_log2), most<T>);
                S_reg[i][n][e] -= rise;
                S_reg[i][n][e] =
                    mend ? weight<T>(S_reg[i][n][e], scale_log2) - had : S_reg[i][n][e];
            }
        }
#pragma unroll
        for (int n = 0; n < d / 8; ++n) {
            O_reg[i][n][c] = mend && keep == 0 ? 0.0f : O_reg[i][n][c] * keep;
            O_reg[i][n][c + 1] = mend && keep == 0 ? 0.0f : O_reg[i][n][c + 1] * keep;
        }
    }
}

/// S becomes P.
template <class T> __device__ void exponentials(float (&S_reg)[M][Bc / 8][4], float scale_log2) {
#pragma unroll
    for (int n = 0; n < Bc / 8; ++n) {
        for (int e = 0; e < 4 * M; ++e) {
            S_reg[e / 4][n][e % 4] = weight<T>(S_reg[e / 4][n][e % 4], scale_log2);
        }
    }
}

/// O_reg += P V, and l_reg += P times ones: a C fragment whose every column is the row sum.
template <class T, int d>
__device__ void multiply_PV(float (&O_reg)[M][d / 8][4], float (&l_reg)[M][4],
                            const float (&P)[M][Bc / 8][4], const char* V_smem) {
    const int V_lane = KV_tile<d>::lane_of_A(0, threadIdx.x % 32);
#pragma unroll
    for (int k = 0; k < Bc / 16; ++k) {
        // two C fragments side by side, rounded, are an A fragment of 16 rows x 16 keys
        uint32_t P_reg[M][4];
        for (int i = 0; i < M; ++i) {
            for (int a = 0; a < 4; ++a) {
                const auto& C = P[i][2 * k + a / 2];
                P_reg[i][a] = flash::pack_saturated<T>(C[a % 2 * 2], C[a % 2 * 2 + 1]);
            }
            flash::mma_m16n8k16<T>(l_reg[i], P_reg[i], {flash::ones<T>, flash::ones<T>});
        }
#pragma unroll
        for (int n = 0; n < d / 8; n += 2) {
            uint32_t V_reg[4];
            flash::ldmatrix_x4_trans(V_reg, V_smem + KV_tile<d>::fragment(V_lane, 16 * k, n / 2));
            for (int i = 0; i < M; ++i) {
                flash::mma_m16n8k16<T>(O_reg[i][n], P_reg[i], {V_reg[0], V_reg[1]});
                flash::mma_m16n8k16<T>(O_reg[i][n + 1], P_reg[i], {V_reg[2], V_reg[3]});
            }
        }
    }
}

template <class T, int d>
__global__ __launch_bounds__(threads, d == 32 ? 3 : 2) void fixed_maximum(
    const T* Q, const T* K, const T* V, T* O, float* LSE, int heads, int wave_heads, int Tr,
    int group, int N_q, int N_kv, float scale_log2, bool causal) {
    // the lane's columns in a C fragment are 2t and 2t + 1, its rows in the tile of Q
    const int t = threadIdx.x % 4;
    // row0, row0 + 8, row0 + 16, row0 + 24
    const int row0 = threadIdx.x / 32 * warp_rows + threadIdx.x % 32 / 4;
    char* Q_smem = flash::dynamic_shared<char>();
    char* K_smem = Q_smem + Q_tile<d>::bytes; // two tiles, and two of V
    char* V_smem = K_smem + 2 * KV_tile<d>::bytes;

    // Blocks start in the order of blockIdx: wave by wave, in a wave the last tile of Q of each
    // head first.
    const int first_head = blockIdx.x / (wave_heads * Tr) * wave_heads;
    const int wave_size = min(wave_heads, heads - first_head); // the last wave may have fewer heads
    const int in_wave = blockIdx.x - first_head * Tr;
    const int64_t head = first_head + in_wave % wave_size;
    const int i0 = (Tr - 1 - in_wave / wave_size) * Br;
    // the thread's first 16 bytes
    const int copy_row = threadIdx.x / (d / 8), copy_chunk = threadIdx.x % (d / 8);
    const int64_t KV_from = (head / group * N_kv + copy_row) * d + 8 * copy_chunk;
    Q += (head * N_q + i0 + copy_row) * d + 8 * copy_chunk;
    O += (head * N_q + i0) * d;
    LSE += head * N_q + i0;
    const int rows = min(Br, N_q - i0);

    // Query i sees key j if j <= i + (N_kv - N_q): tiles beyond the last query's last key are never
    // loaded.
    const int first_row_keys = causal ? i0 + (N_kv - N_q) + 1 : N_kv;
    const int keys = causal ? first_row_keys + rows - 1 : N_kv;
    const int whole = min(N_kv, first_row_keys); // keys that every row of the block sees

    // All loops over these arrays are unrolled; those of two or four steps the compiler unrolls by
    // itself.
    // of rows g and g + 8 of each m16 tile: what is subtracted from their scores
    float m_reg[M][2] = {};
    float l_reg[M][4] = {};        // C fragments
    float O_reg[M][d / 8][4] = {}; // C fragments: 16 rows x 8 columns each
    uint32_t Q_reg[d / 16][M][4];  // A fragments: 16 rows x 16 columns each
    int lazy_until = Bc;           // keys; in the first tile every m is raised

    const int copy_to = KV_tile<d>::offset(copy_row, copy_chunk);
    const auto start_tile = [&](int j0, int buffer) { // buffer: 0 or KV_tile<d>::bytes
        const int64_t from = KV_from + int64_t{j0} * d;
        flash::start_copy<d, Bc, threads>(K_smem + buffer + copy_to, K + from,
                                          N_kv - copy_row - j0);
        flash::start_copy<d, Bc, threads>(V_smem + buffer + copy_to, V + from,
                                          N_kv - copy_row - j0);
    };
    flash::start_copy<d, Br, threads>(Q_smem + Q_tile<d>::offset(copy_row, copy_chunk), Q,
                                      rows - copy_row);
    start_tile(0, 0);
    flash::cp_async_commit(); // Q, and K and V of the first tile

    for (int j0 = 0; j0 < keys; j0 += Bc) {
        const int now = j0 / Bc % 2 * KV_tile<d>::bytes; // which of the two buffers
        flash::cp_async_wait<0>(); // this thread's copies of tile j0 have landed
        // so have all other threads'; and no warp still reads the tile before, in the other buffer
        __syncthreads();
        if (j0 + Bc < keys) {
            start_tile(j0 + Bc, KV_tile<d>::bytes - now);
            flash::cp_async_commit();
        }
        if (d <= 64 && j0 == 0) {
#pragma unroll
            for (int k = 0; k < d / 16; ++k) {
                load_Q<d>(Q_reg[k], Q_smem, k);
            }
        }
        float S_reg[M][Bc / 8][4];                // S, then P in its place
        if (j0 < lazy_until || j0 + Bc > whole) { // as in lazy_maximum: first m, then P V
            if (j0 >= first_row_keys + (row0 | (warp_rows - 1))) {
                continue; // beyond the mask for all rows of this warp
            }
            multiply_QK<T, d>(S_reg, m_reg, Q_reg, Q_smem, K_smem + now);
            if (j0 + Bc > whole) { // an edge: some row does not see the whole tile
                for (int i = 0; i < M; ++i) {
                    flash::mask(S_reg[i], N_kv - j0, first_row_keys + row0 + 16 * i - j0);
                }
            }
            if (j0 == 0 || !flash::all_negative(S_reg)) {
                raise_maximum<false, T, d>(S_reg, m_reg, l_reg, O_reg, scale_log2, j0 == 0);
                // two of the lane's scores
                const float low = fminf(S_reg[0][0][0], S_reg[1][0][2]) * scale_log2;
                lazy_until = __any_sync(0xffffffff, low < far_below<T>) ? keys : lazy_until;
            }
            exponentials<T>(S_reg, scale_log2);
            multiply_PV<T, d>(O_reg, l_reg, S_reg, V_smem + now);
        } else { // first P V, then the question whether m was large enough
            multiply_QK<T, d>(S_reg, m_reg, Q_reg, Q_smem, K_smem + now);
            exponentials<T>(S_reg, scale_log2);
            l_reg[0][1] = l_reg[0][3] = l_reg[1][1] = l_reg[1][3] = 0;
            multiply_PV<T, d>(O_reg, l_reg, S_reg, V_smem + now);
            // the largest
            const float sum =
                fmaxf(fmaxf(l_reg[0][1], l_reg[0][3]), fmaxf(l_reg[1][1], l_reg[1][3]));
            if (__any_sync(0xffffffff, sum >= limit<T>)) {
                // it was overwritten by P
                multiply_QK<T, d>(S_reg, m_reg, Q_reg, Q_smem, K_smem + now);
                raise_maximum<true, T, d>(S_reg, m_reg, l_reg, O_reg, scale_log2, false);
                multiply_PV<T, d>(O_reg, l_reg, S_reg, V_smem + now);
                lazy_until = keys;
            }
        }
    }
    // with no key to see, copies are still landing: a block must not leave before them
    flash::cp_async_wait<0>();

#pragma unroll
    for (int r = 0; r < 2 * M; ++r) {
        const int row = row0 + 8 * r;
        if (row < rows) {
            const int c = r % 2 * 2; // the row's elements in C fragments: c and c + 1
            const float l = l_reg[r / 2][c];
            const float normalise = l == 0 ? 0.0f : 1 / l; // a row that sees no key gets O = 0
#pragma unroll
            for (int n = 0; n < d / 8; ++n) {
                *reinterpret_cast<uint32_t*>(O + row * d + 8 * n + 2 * t) = flash::pack<T>(
                    O_reg[r / 2][n][c] * normalise, O_reg[r / 2][n][c + 1] * normalise);
            }
            if (t == 0) {
                LSE[row] = (m_reg[r / 2][r % 2] * scale_log2 - window) * flash::ln_2 + logf(l);
            }
        }
    }
}

template <class T, int d>
void run(const flash::Problem& p, const T* Q, const T* K, const T* V, T* O, float* LSE) {
    const int N_q = flash::as_int(p.q_len, "q-len"), N_kv = flash::as_int(p.kv_len, "kv-len");
    const int heads = flash::as_int(p.batch * p.heads, "batch x heads");
    // query heads to one K/V head
    const int group = flash::as_int(p.heads / p.kv_heads, "heads / kv-heads");
    const int Tr = static_cast<int>(flash::ceil_div(N_q, Br));
    // One dimension for tiles and heads, because y and z of a grid end at 65535.
    const int blocks = flash::as_int(int64_t{heads} * Tr, "batch x heads x tiles of Q");
    // Q, and two tiles each of K and V: 96 KiB at d = 128
    constexpr int smem_bytes = (Br + 4 * Bc) * d * sizeof(T);
    const int places = flash::resident_blocks(fixed_maximum<T, d>, threads, smem_bytes);
    const int wave_heads = std::clamp(2 * places / Tr, 1, heads);
    flash::launch(fixed_maximum<T, d>, blocks, threads, smem_bytes, Q, K, V, O, LSE, heads,
                  wave_heads, Tr, group, N_q, N_kv, p.scale * flash::log2_e, p.causal);
}

} // namespace

template <class T>
void attention(const flash::Problem& p, const T* Q, const T* K, const T* V, T* O, float* LSE) {
    flash::for_head_dim<head_dims>(p.head_dim, [&](auto d) { run<T, d>(p, Q, K, V, O, LSE); });
}

template decltype(attention<flash::Half>) attention<flash::Half>;
template decltype(attention<flash::Bfloat16>) attention<flash::Bfloat16>;

} // namespace fixed_maximum
