// lazy_maximum: The row maximum is computed only where it has to change.
//
// The idea: softmax does not need the maximum. Any number m near it will do, as long as no weight
// overflows. So m stays until a weight would reach 2^window. Only then it is raised, and O and l
// are rescaled. To ask takes no maximum:
//   - The accumulators of Q K^T start at -m, which costs nothing. So S holds scores less m.
//   - A score has reached m where S is not negative. That is one bit, and one instruction ANDs
//     three registers: 32 of them for a lane's 64 scores, and one vote of the warp, in place of 64
//     maxima.
//
//      lean_softmax   Q K^T | max, shuffle, rescale | exp2 | P V
//      here           Q K^T - m | signs, vote | exp2 | P V
//
// Weights are exp2(scale * S + window): below 2^window, and 1 for the largest score when m was
// raised last.
// Rescaling only where it is needed was published with FlashAttention-4 (2026).
// Against lean_softmax: softmax falls apart into all_negative, raise_maximum and exponentials. m is
// a score, not its log2.
// Look at: what is left between the two products when nothing is raised.
// Gained: no shuffles and no rescaling in most tiles, whatever the scores are. Counter:
// instructions per mma.
#include "steps/27_lazy_maximum/lazy_maximum.hpp"

#include <algorithm>
#include <cfloat>
#include <cmath>

#include "common/cuda/cuda.hpp"
#include "common/cuda/derived/swizzle.hpp"
#include "common/cuda/ptx/cp_async.hpp"
#include "common/cuda/ptx/exp2.hpp"
#include "common/cuda/ptx/ldmatrix.hpp"
#include "common/cuda/ptx/mma.hpp"

namespace lazy_maximum {
namespace {

constexpr int warps = 4;
constexpr int threads = 32 * warps;
constexpr int M = 2; // m16 tiles per warp
constexpr int warp_rows = 16 * M;
constexpr int Br = warp_rows * warps; // queries
constexpr int Bc = 64;                // keys

/// Two elements of T that are 1, in one register.
template <class T> constexpr uint32_t ones = flash::from_float<T>(1).bits * 0x10001u;

/// Weights are less than 2^window, so that P fits T. bf16 has the range of fp32, of which O needs
/// some for large V.
template <class T> constexpr float window = flash::dtype_of<T> == flash::DType::fp16 ? 14 : 30;

template <int d> using Q_tile = flash::SwizzledTile<d, Br>;
template <int d> using KV_tile = flash::SwizzledTile<d, Bc>;

/// S_reg = Q K^T - m: the warp's 32 queries and the tile's keys. C fragments, 16 rows x 8 keys
/// each.
template <class T, int d>
__device__ void multiply_QK(float (&S_reg)[M][Bc / 8][4], const float (&m_reg)[M][2],
                            const char* Q_smem, const char* K_smem) {
    const int Q_lane = Q_tile<d>::lane_of_A(threadIdx.x / 32 * warp_rows, threadIdx.x % 32);
    const int K_lane = KV_tile<d>::lane_of_B(threadIdx.x % 32);
#pragma unroll
    for (int n = 0; n < Bc / 8; ++n) {
        for (int e = 0; e < 4 * M; ++e) {
            S_reg[e / 4][n][e % 4] = -m_reg[e / 4][e % 4 / 2];
        }
    }
#pragma unroll
    for (int k = 0; k < d / 16; ++k) {
        uint32_t Q_reg[M][4]; // A fragments: 16 rows x 16 columns each
        for (int i = 0; i < M; ++i) {
            flash::ldmatrix_x4(Q_reg[i], Q_smem + Q_tile<d>::fragment(Q_lane, 16 * i, k));
        }
#pragma unroll
        for (int n = 0; n < Bc / 8; n += 2) {
            uint32_t K_reg[4];
            flash::ldmatrix_x4(K_reg, K_smem + KV_tile<d>::fragment(K_lane, 8 * n, k));
            for (int i = 0; i < M; ++i) {
                flash::mma_m16n8k16<T>(S_reg[i][n], Q_reg[i], {K_reg[0], K_reg[1]});
                flash::mma_m16n8k16<T>(S_reg[i][n + 1], Q_reg[i], {K_reg[2], K_reg[3]});
            }
        }
    }
}

/// Is S negative in the whole warp, so that no score has reached its row's m?
__device__ bool all_negative(const float (&S_reg)[M][Bc / 8][4]) {
    // four chains of ANDs: in a single one, each waits for the one before
    unsigned sign[4] = {~0u, ~0u, ~0u, ~0u};
#pragma unroll
    for (int n = 0; n < Bc / 8; ++n) {
        for (int e = 0; e < 4 * M; ++e) {
            sign[e % 4] &= __float_as_uint(S_reg[e / 4][n][e % 4]);
        }
    }
    return __all_sync(0xffffffff, (sign[0] & sign[1] & sign[2] & sign[3]) >> 31);
}

/// Raises m of each row whose largest weight is above 1 (of every row in the first tile) to make it
/// 1. S, O, l follow.
template <class T, int d>
__device__ void raise_maximum(float (&S_reg)[M][Bc / 8][4], float (&m_reg)[M][2],
                              float (&l_reg)[M][4], float (&O_reg)[M][d / 8][4], float scale_log2,
                              bool first) {
    const float room = window<T> / scale_log2; // scores from a weight of 1 up to m
    // a row that sees no key has top = -inf, and keeps m = 0
    const float lowest = first ? -FLT_MAX : -room;
// rows g and g + 8 of each m16 tile: elements c and c + 1 of C
#pragma unroll
    for (int row = 0; row < 2 * M; ++row) {
        const int i = row / 2, c = row % 2 * 2;
        float top = S_reg[i][0][c];
#pragma unroll
        for (int n = 0; n < Bc / 8; ++n) {
            top = fmaxf(top, fmaxf(S_reg[i][n][c], S_reg[i][n][c + 1]));
        }
        top = flash::row_max(top);
        const float rise = top >= lowest ? top + room : 0.0f;
        // m may fall in the first tile: O = l = 0
        const float keep = flash::fast_exp2(fminf(-rise * scale_log2, 0.0f));
        m_reg[i][row % 2] += rise;
        l_reg[i][c] *= keep;
#pragma unroll
        for (int n = 0; n < Bc / 8; ++n) {
            S_reg[i][n][c] -= rise;
            S_reg[i][n][c + 1] -= rise;
        }
#pragma unroll
        for (int n = 0; n < d / 8; ++n) {
            O_reg[i][n][c] *= keep;
            O_reg[i][n][c + 1] *= keep;
        }
    }
}

/// The weight of s, a score less m.
template <class T> __device__ float weight(float s, float scale_log2) {
    return flash::fast_exp2(fmaf(s, scale_log2, window<T>));
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
                P_reg[i][a] = flash::pack<T>(C[a % 2 * 2], C[a % 2 * 2 + 1]);
            }
            flash::mma_m16n8k16<T>(l_reg[i], P_reg[i], {ones<T>, ones<T>});
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
__global__ __launch_bounds__(threads, d == 128 ? 2 : 3) void lazy_maximum(
    const T* Q, const T* K, const T* V, T* O, float* LSE, int heads, int wave_heads, int Tr,
    int group, int N_q, int N_kv, float scale_log2, bool causal) {
    const int warp = threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    const int g = lane / 4; // the lane's place in a fragment: row g and g + 8 of A and C,
    const int t = lane % 4; // columns 2t and 2t + 1
    // the lane's rows in the tile of Q: row0, row0 + 8, row0 + 16, row0 + 24
    const int row0 = warp_rows * warp + g;
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
    if (keys > 0) {
        start_tile(0, 0);
    }
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

        float S_reg[M][Bc / 8][4]; // S, then P in its place
        multiply_QK<T, d>(S_reg, m_reg, Q_smem, K_smem + now);
        if (j0 + Bc > whole) { // an edge: some row does not see the whole tile
            for (int i = 0; i < M; ++i) {
                flash::mask(S_reg[i], N_kv - j0, first_row_keys + row0 + 16 * i - j0);
            }
        }
        if (j0 == 0 || !all_negative(S_reg)) {
            raise_maximum<T, d>(S_reg, m_reg, l_reg, O_reg, scale_log2, j0 == 0);
        }
        exponentials<T>(S_reg, scale_log2);
        multiply_PV<T, d>(O_reg, l_reg, S_reg, V_smem + now);
    }
    // with no key to see, Q is still landing: a block must not leave before its copies have
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
                LSE[row] = (m_reg[r / 2][r % 2] * scale_log2 - window<T>)*flash::ln_2 + logf(l);
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
    const int places = flash::resident_blocks(lazy_maximum<T, d>, threads, smem_bytes);
    const int wave_heads = std::clamp(2 * places / Tr, 1, heads);
    flash::launch(lazy_maximum<T, d>, blocks, threads, smem_bytes, Q, K, V, O, LSE, heads,
                  wave_heads, Tr, group, N_q, N_kv, p.scale * flash::log2_e, p.causal);
}

} // namespace

template <class T>
void attention(const flash::Problem& p, const T* Q, const T* K, const T* V, T* O, float* LSE) {
    flash::for_head_dim<head_dims>(p.head_dim, [&](auto d) { run<T, d>(p, Q, K, V, O, LSE); });
}

template decltype(attention<flash::Half>) attention<flash::Half>;
template decltype(attention<flash::Bfloat16>) attention<flash::Bfloat16>;

} // namespace lazy_maximum
