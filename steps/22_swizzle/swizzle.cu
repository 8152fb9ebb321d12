// swizzle: Every access to shared memory moves 128 bytes at a time.
//
// The idea: in mma_sync the 8 rows of a fragment lie d elements apart, so they meet in the same
// banks and are served one after the other, in 8 wavefronts. ldmatrix fetches an 8 x 8 tile of a
// fragment at once, 16 bytes per row, if its rows lie in 8 different 16-byte columns of the banks.
// So chunk c of row r (8 elements, 16 bytes) is stored in column c XOR (r mod 8):
//
//   d = 64, one row = 128 bytes = all banks    stored in 16-byte column
//                                         0  1  2  3  4  5  6  7
//                      row 0   chunk      0  1  2  3  4  5  6  7
//                      row 1              1  0  3  2  5  4  7  6
//                      row 2              2  3  0  1  6  7  4  5    chunk 0 of 8 rows: 8 columns.
//                      ...                                          So has every other chunk.
//                      row 7              7  6  5  4  3  2  1  0
//
// A row is still 128 whole bytes, so writing a tile is free of conflicts too, and no byte is spent
// on padding.
// Parent: mma_sync. New: load2 and the 16-bit loads of V become ldmatrix_x4; the tiles are stored
// swizzled, so places in shared memory are counted in bytes.
// Look at: swizzled, and which row each lane names to ldmatrix.
// Gained: four times the speed. Counter: wavefronts per request to shared memory, all of them at
// their minimum.
#include "steps/22_swizzle/swizzle.hpp"

#include <cmath>

#include "common/cuda/cuda.hpp"
#include "common/cuda/derived/epilogue.hpp"
#include "common/cuda/ptx/ldmatrix.hpp"
#include "common/cuda/ptx/mma.hpp"

namespace swizzle {
namespace {

constexpr int warps = 4;
constexpr int threads = 32 * warps;
constexpr int warp_rows = 16;         // one m16 tile per warp
constexpr int Br = warp_rows * warps; // queries
constexpr int Bc = 64;                // keys

/// Dynamic shared memory: tiles of Q, K and V. 48 KiB at d = 128.
template <int d> struct Shared {
    alignas(16) char Q[Br * d * 2]; // bytes of 16-bit elements
    alignas(16) char K[Bc * d * 2];
    alignas(16) char V[Bc * d * 2];
};

/// Where chunk `chunk` (8 elements, 16 bytes) of row `row` lies in a tile of `rows` rows of d
/// elements, in bytes.
/// A row of d = 128 is two halves of 64 columns, each a tile of its own; two rows of d = 32 share
/// the 128 bytes.
template <int d, int rows> __device__ int swizzled(int row, int chunk) {
    static_assert(rows % 8 == 0, "the pattern repeats every 8 rows");
    constexpr int chunks = d < 64 ? d / 8 : 8;       // in a row of a half
    const int flip = d < 64 ? row / 2 % 4 : row % 8; // of the chunk's number
    return (chunk / chunks * rows + row) * 16 * chunks + (chunk % chunks ^ flip) * 16;
}

/// Copies `rows` rows of d elements into shared memory, 16 bytes at a time, and zeros in place of
/// rows from `valid` on.
template <int d, int rows, class T>
__device__ void load_tile(char* smem, const T* from, int valid) {
    constexpr int chunks = d / 8;
    constexpr int step = threads / chunks; // rows that the block copies at once
    const int chunk = threadIdx.x % chunks;
#pragma unroll // so that all loads are under way before the first store waits for its data
    for (int r0 = 0; r0 < rows; r0 += step) {
        const int r = r0 + threadIdx.x / chunks;
        const uint4 zeros = make_uint4(0, 0, 0, 0);
        *reinterpret_cast<uint4*>(smem + swizzled<d, rows>(r, chunk)) =
            r < valid ? *reinterpret_cast<const uint4*>(from + r * d + 8 * chunk) : zeros;
    }
}

/// S_reg = Q K^T: the warp's 16 queries and the tile's keys. C fragments, 16 rows x 8 keys each.
template <class T, int d>
__device__ void multiply_QK(float (&S_reg)[Bc / 8][4], const uint32_t (&Q_reg)[d / 16][4],
                            const char* K_smem) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < Bc / 8; ++n) {
        for (int c = 0; c < 4; ++c) {
            S_reg[n][c] = 0;
        }
    }
#pragma unroll
    for (int k = 0; k < d / 16; ++k) {
#pragma unroll
        for (int n = 0; n < Bc / 8; n += 2) {
            // B = K^T for 16 keys: lanes 0-7 name keys 0-7 of chunk 2k, 8-15 the same of chunk 2k +
            // 1, the rest keys 8-15. The rows of K are the columns of B, and each lane needs
            // neighbours in a column: no transposition.
            const int key = 8 * n + lane / 16 * 8 + lane % 8;
            uint32_t K_reg[4];
            flash::ldmatrix_x4(K_reg, K_smem + swizzled<d, Bc>(key, 2 * k + lane / 8 % 2));
            flash::mma_m16n8k16<T>(S_reg[n], Q_reg[k], {K_reg[0], K_reg[1]});
            flash::mma_m16n8k16<T>(S_reg[n + 1], Q_reg[k], {K_reg[2], K_reg[3]});
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
__device__ void multiply_PV(float (&O_reg)[d / 8][4], const float (&P)[Bc / 8][4],
                            const char* V_smem) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int k = 0; k < Bc / 16; ++k) {
        uint32_t P_reg[4]; // an A fragment: 16 rows x 16 keys
        flash::pack_A<T>(P_reg, P[2 * k], P[2 * k + 1]);
#pragma unroll
        for (int n = 0; n < d / 8; n += 2) {
            // B = V, 16 keys and 16 columns: lanes 0-15 name the keys of chunk n, 16-31 those of
            // chunk n + 1. A lane needs elements one below the other: transposed.
            uint32_t V_reg[4];
            flash::ldmatrix_x4_trans(V_reg,
                                     V_smem + swizzled<d, Bc>(16 * k + lane % 16, n + lane / 16));
            flash::mma_m16n8k16<T>(O_reg[n], P_reg, {V_reg[0], V_reg[1]});
            flash::mma_m16n8k16<T>(O_reg[n + 1], P_reg, {V_reg[2], V_reg[3]});
        }
    }
}

template <class T, int d>
__global__ __launch_bounds__(threads) void swizzle(const T* Q, const T* K, const T* V, T* O,
                                                   float* LSE, int Tr, int group, int N_q, int N_kv,
                                                   float scale, bool causal) {
    const int warp = threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    const int g = lane / 4; // the lane's place in a fragment: rows g and g + 8 of A and C
    const int row0 = warp_rows * warp + g; // the lane's rows in the tile of Q: row0 and row0 + 8
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

    // Registers have no addresses, so every index into these arrays must be known to the compiler,
    // and all loops over them be unrolled. It does so by itself where there are two or four steps.
    float m_reg[2] = {-INFINITY, -INFINITY}; // of rows row0 and row0 + 8
    float l_reg[2] = {};
    float O_reg[d / 8][4] = {}; // C fragments: 16 rows x 8 columns each

    load_tile<d, Br>(smem.Q, Q, rows);
    __syncthreads();           // smem.Q is complete
    uint32_t Q_reg[d / 16][4]; // A fragments: 16 rows x 16 columns each
#pragma unroll
    for (int k = 0; k < d / 16; ++k) {
        // Lanes 0-15 name the 16 rows of columns 0-7 of the fragment, lanes 16-31 those of columns
        // 8-15.
        flash::ldmatrix_x4(
            Q_reg[k], smem.Q + swizzled<d, Br>(warp_rows * warp + lane % 16, 2 * k + lane / 16));
    }

    for (int j0 = 0; j0 < keys; j0 += Bc) {
        __syncthreads(); // slower warps still read smem.K and smem.V of the tile before
        load_tile<d, Bc>(smem.K, K + int64_t{j0} * d, N_kv - j0);
        load_tile<d, Bc>(smem.V, V + int64_t{j0} * d, N_kv - j0);
        __syncthreads(); // smem.K and smem.V are complete

        float S_reg[Bc / 8][4]; // S, then P in its place
        multiply_QK<T, d>(S_reg, Q_reg, smem.K);
        if (j0 + Bc > whole) { // an edge: some row does not see the whole tile
            flash::mask(S_reg, N_kv - j0, first_row_keys + row0 - j0);
        }
        softmax<d>(S_reg, m_reg, l_reg, O_reg, scale);
        multiply_PV<T, d>(O_reg, S_reg, smem.V);
    }

    const float m[2] = {scale * m_reg[0], scale * m_reg[1]};
    flash::store_O_and_LSE(O, LSE, O_reg, m, l_reg, row0, rows);
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
    flash::launch(swizzle<T, d>, blocks, threads, sizeof(Shared<d>), Q, K, V, O, LSE, Tr, group,
                  N_q, N_kv, p.scale, p.causal);
}

} // namespace

template <class T>
void attention(const flash::Problem& p, const T* Q, const T* K, const T* V, T* O, float* LSE) {
    flash::for_head_dim<head_dims>(p.head_dim, [&](auto d) { run<T, d>(p, Q, K, V, O, LSE); });
}

template decltype(attention<flash::Half>) attention<flash::Half>;
template decltype(attention<flash::Bfloat16>) attention<flash::Bfloat16>;

} // namespace swizzle
