// mma_sync: Both products are mma.sync, and P never leaves the registers.
//
// The idea: a tensor core multiplies a 16 x 16 by a 16 x 8 matrix in one instruction per warp, 4096
// FLOPs where a multiply-add of 32 lanes makes 64. Its operands are fp16 or bf16, its sums fp32.
// Each lane holds fixed elements of each operand (drawn in common/cuda/ptx/mma.hpp), and the rows
// of Q that a warp owns stay its own from S to O:
//
//      S tile (fp32)    n:   8 columns   8 columns      one lane: c[0] c[1] | c[0] c[1]   row g
//                            mma's C     mma's C                  c[2] c[3] | c[2] c[3]   row g + 8
//                               \          /
//      P (rounded)      k:     16 columns: mma's A      the same lane: a[0] | a[2]        row g
//                                                                      a[1] | a[3]        row g + 8
//
// So P becomes the next operand by rounding alone: no shared memory, no shuffle.
// Parent: double_buffer, of which only the order of the loops is left: this is a new kernel.
// New: tensors have half the bytes; S_reg, O_reg and Q_reg are fragments of a warp, not micro-tiles
// of a thread; P_smem is gone; a row is shared by 4 lanes, not 8. The steps of the loop are
// functions, because they are what the rungs from here on change.
// Look at: which two elements each 32-bit load of K and each pair of 16-bit loads of V brings, and
// where they come from.
// Gained: the arithmetic is nearly free, so the bank conflicts decide everything. Counters: mma
// instructions, and wavefronts per request to shared memory.
#include "steps/21_mma_sync/mma_sync.hpp"

#include <cmath>

#include "common/cuda/cuda.hpp"
#include "common/cuda/ptx/mma.hpp"

namespace mma_sync {
namespace {

constexpr int warps = 4;
constexpr int threads = 32 * warps;
constexpr int warp_rows = 16;         // one m16 tile per warp
constexpr int Br = warp_rows * warps; // queries
constexpr int Bc = 64;                // keys
constexpr unsigned every_lane = 0xffffffff;

/// Dynamic shared memory: tiles of Q, K and V, row by row. 48 KiB at d = 128.
template <class T, int d> struct Shared {
    alignas(16) T Q[Br * d];
    alignas(16) T K[Bc * d];
    alignas(16) T V[Bc * d];
};

/// The maximum over the 4 lanes that share a row; each of them gets it.
__device__ float row_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(every_lane, x, 1));
    return fmaxf(x, __shfl_xor_sync(every_lane, x, 2));
}

__device__ float row_sum(float x) {
    x += __shfl_xor_sync(every_lane, x, 1);
    return x + __shfl_xor_sync(every_lane, x, 2);
}

/// Two neighbouring elements, in one register.
template <class T> __device__ uint32_t load2(const T* from) {
    return *reinterpret_cast<const uint32_t*>(from);
}

/// Copies `rows` rows of d elements into shared memory, 16 bytes at a time, and zeros in place of
/// rows from `valid` on.
template <int d, int rows, class T> __device__ void load_tile(T* smem, const T* from, int valid) {
    for (int e = 8 * threadIdx.x; e < rows * d; e += 8 * threads) {
        const bool inside = e / d < valid;
        const uint4 zeros = make_uint4(0, 0, 0, 0);
        *reinterpret_cast<uint4*>(smem + e) =
            inside ? *reinterpret_cast<const uint4*>(from + e) : zeros;
    }
}

/// S_reg = Q K^T: the warp's 16 queries and the tile's keys. C fragments, 16 rows x 8 keys each.
template <int d, class T>
__device__ void multiply_QK(float (&S_reg)[Bc / 8][4], const uint32_t (&Q_reg)[d / 16][4],
                            const T* K_smem) {
    const int g = threadIdx.x % 32 / 4;
    const int t = threadIdx.x % 4;
#pragma unroll
    for (int n = 0; n < Bc / 8; ++n) {
        for (int c = 0; c < 4; ++c) {
            S_reg[n][c] = 0;
        }
    }
#pragma unroll
    for (int k = 0; k < d / 16; ++k) {
#pragma unroll
        for (int n = 0; n < Bc / 8; ++n) {
            // B = K^T: column g of B is key 8 n + g, and the two elements of a register are
            // neighbours in memory.
            const T* key = K_smem + (8 * n + g) * d + 16 * k + 2 * t;
            const uint32_t K_reg[2] = {load2(key), load2(key + 8)};
            flash::mma_m16n8k16<T>(S_reg[n], Q_reg[k], K_reg);
        }
    }
}

/// Hides keys. Row g of an m16 tile sees `visible` keys from the tile of K on, row g + 8 by
/// causality 8 more, and no row more than `N_left`.
__device__ void mask(float (&S_reg)[Bc / 8][4], int N_left, int visible) {
    const int t = threadIdx.x % 4;
#pragma unroll
    for (int n = 0; n < Bc / 8; ++n) {
        for (int c = 0; c < 4; ++c) {
            if (8 * n + 2 * t + c % 2 >= min(N_left, visible + c / 2 * 8)) {
                S_reg[n][c] = -INFINITY;
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
        m_new = fmaxf(m_reg[r], row_max(m_new));
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
        l_reg[r] = keep * l_reg[r] + row_sum(sum);
#pragma unroll
        for (int n = 0; n < d / 8; ++n) {
            O_reg[n][2 * r] *= keep;
            O_reg[n][2 * r + 1] *= keep;
        }
    }
}

/// O_reg += P V.
template <int d, class T>
__device__ void multiply_PV(float (&O_reg)[d / 8][4], const float (&P)[Bc / 8][4],
                            const T* V_smem) {
    const int g = threadIdx.x % 32 / 4;
    const int t = threadIdx.x % 4;
#pragma unroll
    for (int k = 0; k < Bc / 16; ++k) {
        // Two C fragments side by side, rounded, are an A fragment of 16 rows x 16 keys.
        const uint32_t P_reg[4] = {flash::pack<T>(P[2 * k][0], P[2 * k][1]),
                                   flash::pack<T>(P[2 * k][2], P[2 * k][3]),
                                   flash::pack<T>(P[2 * k + 1][0], P[2 * k + 1][1]),
                                   flash::pack<T>(P[2 * k + 1][2], P[2 * k + 1][3])};
#pragma unroll
        for (int n = 0; n < d / 8; ++n) {
            // B = V: the two elements of a register are one below the other, a whole row apart in
            // memory.
            const T* value = V_smem + (16 * k + 2 * t) * d + 8 * n + g;
            const uint32_t V_reg[2] = {value[0].bits | uint32_t{value[d].bits} << 16,
                                       value[8 * d].bits | uint32_t{value[9 * d].bits} << 16};
            flash::mma_m16n8k16<T>(O_reg[n], P_reg, V_reg);
        }
    }
}

template <class T, int d>
__global__ __launch_bounds__(threads) void mma_sync(const T* Q, const T* K, const T* V, T* O,
                                                    float* LSE, int Tr, int group, int N_q,
                                                    int N_kv, float scale, bool causal) {
    const int warp = threadIdx.x / 32;
    // the lane's place in a fragment: rows g and g + 8 of A and C
    const int g = threadIdx.x % 32 / 4;
    const int t = threadIdx.x % 4;         // columns 2t and 2t + 1
    const int row0 = warp_rows * warp + g; // the lane's rows in the tile of Q: row0 and row0 + 8
    auto& smem = *flash::dynamic_shared<Shared<T, d>>();

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
        const T* row = smem.Q + row0 * d + 16 * k + 2 * t;
        Q_reg[k][0] = load2(row);
        Q_reg[k][1] = load2(row + 8 * d);
        Q_reg[k][2] = load2(row + 8);
        Q_reg[k][3] = load2(row + 8 * d + 8);
    }

    for (int j0 = 0; j0 < keys; j0 += Bc) {
        __syncthreads(); // slower warps still read smem.K and smem.V of the tile before
        load_tile<d, Bc>(smem.K, K + int64_t{j0} * d, N_kv - j0);
        load_tile<d, Bc>(smem.V, V + int64_t{j0} * d, N_kv - j0);
        __syncthreads(); // smem.K and smem.V are complete

        float S_reg[Bc / 8][4]; // S, then P in its place
        multiply_QK<d>(S_reg, Q_reg, smem.K);
        if (j0 + Bc > whole) { // an edge: some row does not see the whole tile
            mask(S_reg, N_kv - j0, first_row_keys + row0 - j0);
        }
        softmax<d>(S_reg, m_reg, l_reg, O_reg, scale);
        multiply_PV<d>(O_reg, S_reg, smem.V);
    }

#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const int row = row0 + 8 * r;
        if (row < rows) {
            // a row that sees no key gets O = 0
            const float normalise = l_reg[r] == 0 ? 0.0f : 1 / l_reg[r];
#pragma unroll
            for (int n = 0; n < d / 8; ++n) {
                *reinterpret_cast<uint32_t*>(O + row * d + 8 * n + 2 * t) =
                    flash::pack_O<T>(O_reg[n][2 * r] * normalise, O_reg[n][2 * r + 1] * normalise);
            }
            if (t == 0) {
                LSE[row] = scale * m_reg[r] + logf(l_reg[r]);
            }
        }
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
    flash::launch(mma_sync<T, d>, blocks, threads, sizeof(Shared<T, d>), Q, K, V, O, LSE, Tr, group,
                  N_q, N_kv, p.scale, p.causal);
}

} // namespace

template <class T>
void attention(const flash::Problem& p, const T* Q, const T* K, const T* V, T* O, float* LSE) {
    flash::for_head_dim<head_dims>(p.head_dim, [&](auto d) { run<T, d>(p, Q, K, V, O, LSE); });
}

template decltype(attention<flash::Half>) attention<flash::Half>;
template decltype(attention<flash::Bfloat16>) attention<flash::Bfloat16>;

} // namespace mma_sync
