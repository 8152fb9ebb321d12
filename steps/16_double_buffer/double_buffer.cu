// double_buffer: Each thread owns a micro-tile of S and of O, and reads memory 16 bytes
// at a time.
//
// The idea: flash_attention_2 reads two numbers from shared memory for each multiply-add of Q K^T.
// Shared memory delivers one number per lane and clock; the arithmetic units could do four
// multiply-adds in that clock. Here a thread takes 8 queries and 8 keys at once: for each column of
// Q and K it reads 8 + 8 numbers and makes 8 * 8 multiply-adds, an outer product. P V does the same
// with queries and columns of O, for each key. (Volkov and Demmel, 2008, for matrices.)
//
//      lanes of a warp      key  0  1  2 ..  7 |  8  9 ..   d = 64: LR = 4 by LC = 8 lanes
//            query 0             0  2  4 .. 14 |  0  2 ..
//            query 1             1  3  5 .. 15 |  1  3 ..   a lane's 8 queries: lane_r, + LR, ..
//            query 2            16 18 20 .. 30 | 16 18 ..   its 8 keys: lane_c, + LC, ..
//            query 3            17 19 21 .. 31 | 17 19 ..   its columns of O: 4 lane_c + 0 .. 3,
//            query 4             0  2  4 .. 14 |  0  2 ..   then 4 LC further
//
// An outer product wants the numbers of one column side by side. So Q, K and P are transposed in
// shared memory, and the four that a lane reads at once stand together. K and V pass through it in
// slices, of K some columns, of V some keys: large tiles would not fit, and while one slice is
// multiplied, the next one is on its way in registers.
//
// Against flash_attention_2: S_reg in place of one score at a time; 16-byte loads and stores;
// slices in place of whole tiles.
// Look at: how many loads stand beside how many multiply-adds in add_product.
// Gained: arithmetic is now the limit. Counter: shared memory gives a lane 1 byte per multiply-add,
// not 7 (d = 64).
#include "steps/16_double_buffer/double_buffer.hpp"

#include <cmath>

#include "common/cuda/cuda.hpp"
#include "common/cuda/ptx/exp2.hpp"

namespace double_buffer {
namespace {

constexpr int R = 8; // queries of a thread, LR apart
constexpr int C = 8; // keys of a thread, LC apart
constexpr unsigned every_lane = 0xffffffff;

/// Tile sizes, and a block's shared memory: with four warps at most the 99 KiB that every GPU from
/// 8.0 on has.
template <int d, int warps> struct Tile {
    static constexpr int threads = 32 * warps;
    // lanes that share a query: together they have its keys and columns
    static constexpr int LC = d == 128 ? 16 : 8;
    static constexpr int LR = 32 / LC; // lanes that share a key
    static constexpr int N = d / LC;   // columns of O of a thread
    static constexpr int warp_rows = LR * R;
    static constexpr int Br = warps * warp_rows; // queries
    static constexpr int Bc = LC * C;            // keys
    // columns of K, or keys of V, that are in shared memory at a time
    static constexpr int slice = 16 * threads / Bc;
    // steps that the loads of a product are ahead: takes 16 registers
    static constexpr int ahead = warps == 8;
    // keys of V that a thread copies of each slice
    static constexpr int V_rows = slice * d / (4 * threads);
    // Padded: the eight lanes of a quarter of a warp, which store 16 bytes each at once, store to
    // different banks.
    static constexpr int Q_stride = Br + 4;
    static constexpr int K_stride = Bc + 4;
    static constexpr int P_stride = warp_rows + 8;
    static constexpr int slice_smem = d * Q_stride; // offset, in floats, behind the tile of Q
    static constexpr int slice_floats = slice * (K_stride > d ? K_stride : d);
    // one slice is read while the next one is written
    static constexpr int P_smem = slice_smem + 2 * slice_floats;
    static constexpr size_t bytes = (P_smem + warps * Bc * P_stride) * sizeof(float);
    static_assert(bytes <= (warps == 4 ? 99 : 227) * 1024);
    static_assert(R % 4 == 0 && C % 4 == 0 && N % 4 == 0 && slice % 8 == 0 && d % slice == 0 &&
                  Bc % slice == 0);
    // one square per thread
    static_assert(Bc * slice == 16 * threads && V_rows <= 4 && Br * d % (16 * threads) == 0);
};

/// Four floats as one, so that 16 bytes are copied at once; the address must be a multiple of 16.
__device__ float4& float4_at(float* p) { return *reinterpret_cast<float4*>(p); }
__device__ const float4& float4_at(const float* p) { return *reinterpret_cast<const float4*>(p); }

/// Four rows by four columns of Q or K, which one thread transposes on their way to shared memory.
struct Square {
    int x; // the first column
    // the first row; the others are LR or LC apart, so that one lane will read all four at once:
    int row;
    int quad; // in shared memory they stand side by side, from 4 * quad on
};

/// A quarter of a warp has two quads of columns and four of rows, and so stores to different banks.
__device__ Square square(int number, int columns, int apart) {
    const int quad = number / 2 % 4 + number / columns * 4;
    return {4 * (number % 2 + number / 8 % (columns / 8) * 2),
            quad / apart * (4 * apart) + quad % apart, quad};
}

/// Four columns of some rows. Rows beyond `last` repeat it: what they become is masked, or not
/// stored.
template <int d, int rows = 4>
__device__ void load_rows(float (&reg)[4][4], const float* from, int row, int apart, int last) {
#pragma unroll
    for (int i = 0; i < rows; ++i) {
        float4_at(reg[i]) = float4_at(&from[int64_t{min(row + apart * i, last)} * d]);
    }
}

__device__ void store_transposed(float* smem, int stride, const Square& at,
                                 const float (&reg)[4][4]) {
#pragma unroll
    for (int t = 0; t < 4; ++t) {
        alignas(16) const float column[4] = {reg[0][t], reg[1][t], reg[2][t], reg[3][t]};
        float4_at(&smem[(at.x + t) * stride + 4 * at.quad]) = float4_at(column);
    }
}

/// sum += A^T B of a thread, where A and B have T::slice rows in shared memory: as many outer
/// products.
template <class T, int N>
__device__ void add_product(float (&sum)[R][N], const float* A, int A_stride, const float* B,
                            int B_stride) {
    // what a step multiplies: even steps the first, odd ones the second
    alignas(16) float a[2][R], b[2][N];
    const auto load = [&](int step) {
        for (int i = 0; i < R; i += 4) {
            float4_at(&a[step % 2][i]) = float4_at(&A[step * A_stride + T::LR * i]);
        }
        for (int n = 0; n < N; n += 4) {
            float4_at(&b[step % 2][n]) = float4_at(&B[step * B_stride + T::LC * n]);
        }
    };
    if (T::ahead) {
        load(0);
    }
#pragma unroll 8 // the loads of a step are under way during the multiply-adds of the step before
    for (int step = 0; step < T::slice; ++step) {
        if (step + T::ahead < T::slice) {
            load(step + T::ahead);
        }
#pragma unroll
        for (int n = 0; n < N; ++n) {
            for (int r = 0; r < R; ++r) {
                // There and back, so that each multiply-add shares a number with the one before:
                // reading three registers takes longer than a multiply-add, if all three are new.
                const int i = n % 2 == 0 ? r : R - 1 - r;
                sum[i][n] += a[step % 2][i] * b[step % 2][n];
            }
        }
    }
}

template <int d, int warps>
__global__ __launch_bounds__(32 * warps) void double_buffer(const float* Q, const float* K,
                                                            const float* V, float* O, float* LSE,
                                                            int Tr, int group, int N_q, int N_kv,
                                                            float scale, bool causal) {
    using T = Tile<d, warps>;
    constexpr int LR = T::LR, LC = T::LC, N = T::N, Br = T::Br, Bc = T::Bc, slice = T::slice,
                  V_rows = T::V_rows;
    const int thread = threadIdx.x, warp = thread / 32;
    // A load of 16 bytes per lane takes four wavefronts, but two if each lane's neighbour, or each
    // lane's next but one, asks for the same bytes. So neighbours share their keys, and next but
    // ones their queries.
    const int lane_r = thread % 2 + thread % 32 / (2 * LC) * 2;
    const int lane_c = thread / 2 % LC;
    // the thread's rows in the tile of Q: row0, row0 + LR, ...
    const int row0 = warp * T::warp_rows + lane_r;
    float* smem = flash::dynamic_shared<float>();
    float* Q_smem = smem + warp * T::warp_rows + 4 * lane_r; // these two are the warp's own
    float* P_smem = smem + T::P_smem + warp * Bc * T::P_stride + 4 * lane_r;
    float* slice_smem = smem + T::slice_smem; // two slices
    int now = 0;                              // where the one is that is read: 0, or slice_floats

    const int64_t head = blockIdx.x / Tr;
    const int i0 = blockIdx.x % Tr * Br;
    Q += (head * N_q + i0) * d;
    O += (head * N_q + i0) * d;
    K += head / group * N_kv * d;
    V += head / group * N_kv * d;
    LSE += head * N_q + i0;
    const int rows = min(Br, N_q - i0);
    // Query i sees key j if j <= i + (N_kv - N_q): tiles beyond the last query's last key are left
    // out.
    const int first_row_keys = causal ? i0 + (N_kv - N_q) + 1 : N_kv;
    const int keys = causal ? first_row_keys + rows - 1 : N_kv;

    // e^(scale s) = 2^(scale2 s): lean_softmax comes back to it
    const float scale2 = scale * flash::log2_e;
    float m_reg[R], l_reg[R] = {}; // maximum of scale2 * S; sum of P over the lane's own keys
    alignas(16) float O_reg[R][N] = {};
    // Unrolled here and below, because registers have no addresses: an index into a register array
    // must be a constant.
#pragma unroll
    for (int i = 0; i < R; ++i) {
        m_reg[i] = -INFINITY;
    }

    alignas(16) float next[4][4]; // the thread's square of the slice after this one
    for (int number = thread; number < Br * d / 16; number += T::threads) {
        const Square q = square(number, d, LR);
        load_rows<d>(next, Q + q.x, q.row, LR, rows - 1);
        store_transposed(smem, T::Q_stride, q, next);
    }
    const Square k = square(thread, slice, LC);
    const int v_x = thread % (d / 4) * 4, v_row = thread / (d / 4); // V needs no transposing
    constexpr int V_apart = T::threads / (d / 4);
    const auto load_K = [&](int j, int x) {
        load_rows<d>(next, K + x + k.x, j + k.row, LC, N_kv - 1);
    };
    const auto load_V = [&](int j) {
        load_rows<d, V_rows>(next, V + v_x, j + v_row, V_apart, N_kv - 1);
    };
    const auto store_K = [&] { store_transposed(slice_smem + now, T::K_stride, k, next); };
    const auto store_V = [&] {
#pragma unroll
        for (int i = 0; i < V_rows; ++i) {
            float4_at(&slice_smem[now + 4 * (thread + T::threads * i)]) = float4_at(next[i]);
        }
    };
    load_K(0, 0);
    store_K();

    for (int j0 = 0; j0 < keys; j0 += Bc) {
        float S_reg[R][C] = {}; // S, then P in its place
#pragma unroll 1
        for (int x = 0; x < d; x += slice) {
            // this slice is complete (and Q_smem), and the one before, now replaced, is read no
            // more
            __syncthreads();
            x + slice < d ? load_K(j0, x + slice) : load_V(j0);
            add_product<T>(S_reg, Q_smem + x * T::Q_stride, T::Q_stride,
                           slice_smem + now + 4 * lane_c, T::K_stride);
            now = T::slice_floats - now;
            x + slice < d ? store_K() : store_V();
        }

        if (j0 + Bc > min(N_kv, first_row_keys)) { // an edge: some row does not see the whole tile
#pragma unroll
            for (int i = 0; i < R; ++i) {
                const int row_keys = min(N_kv, first_row_keys + row0 + LR * i);
                for (int n = 0; n < C; ++n) {
                    S_reg[i][n] = j0 + LC * n + lane_c < row_keys ? S_reg[i][n] : -INFINITY;
                }
            }
        }

#pragma unroll
        for (int i = 0; i < R; ++i) {
            float m_new = S_reg[i][0];
            for (int n = 1; n < C; ++n) {
                m_new = fmaxf(m_new, S_reg[i][n]);
            }
            // of the LC lanes that share the row, in each of them
            for (int lanes = LC; lanes > 1; lanes /= 2) {
                m_new = fmaxf(m_new, __shfl_xor_sync(every_lane, m_new, lanes));
            }
            // scale > 0, so scale2 * S has its maximum there, too
            m_new = fmaxf(m_reg[i], scale2 * m_new);
            // no visible key yet, and -inf - -inf is NaN
            const float shift = m_new == -INFINITY ? 0.0f : m_new;
            const float keep = flash::fast_exp2(m_reg[i] - shift);
            m_reg[i] = m_new;
            float sum = 0;
            for (int n = 0; n < C; ++n) {
                S_reg[i][n] = flash::fast_exp2(scale2 * S_reg[i][n] - shift);
                sum += S_reg[i][n];
            }
            l_reg[i] = keep * l_reg[i] + sum;
            for (int n = 0; n < N; ++n) {
                O_reg[i][n] *= keep;
            }
        }

        // The P before is read no more: since then the block has met at the barriers of the slices
        // of K.
#pragma unroll
        for (int n = 0; n < C; ++n) {
            for (int i = 0; i < R; i += 4) {
                alignas(16) const float p[4] = {S_reg[i][n], S_reg[i + 1][n], S_reg[i + 2][n],
                                                S_reg[i + 3][n]};
                float* to = &P_smem[(LC * n + lane_c) * T::P_stride + LR * i];
                // float4_at costs registers here
                *reinterpret_cast<float4*>(to) = *reinterpret_cast<const float4*>(p);
            }
        }
#pragma unroll 1
        for (int c = 0; c < Bc; c += slice) {
            __syncthreads(); // as above; and P_smem is complete
            if (c + slice < Bc) {
                load_V(j0 + c + slice);
            } else if (j0 + Bc < keys) { // if not, what is stored below is never read
                load_K(j0 + Bc, 0);
            }
            add_product<T>(O_reg, P_smem + c * T::P_stride, T::P_stride,
                           slice_smem + now + 4 * lane_c, d);
            now = T::slice_floats - now;
            c + slice < Bc ? store_V() : store_K();
        }
    }

#pragma unroll
    for (int i = 0; i < R; ++i) {
        for (int lanes = LC; lanes > 1; lanes /= 2) {
            l_reg[i] += __shfl_xor_sync(every_lane, l_reg[i], lanes);
        }
        if (row0 + LR * i < rows) {
            // a row that sees no key gets O = 0
            const float normalise = l_reg[i] == 0 ? 0.0f : 1 / l_reg[i];
            for (int n = 0; n < N; ++n) {
                O_reg[i][n] *= normalise;
            }
            for (int n = 0; n < N; n += 4) {
                float4_at(&O[(row0 + LR * i) * d + LC * n + 4 * lane_c]) = float4_at(&O_reg[i][n]);
            }
            if (lane_c == 0) {
                LSE[row0 + LR * i] = flash::ln_2 * m_reg[i] + logf(l_reg[i]);
            }
        }
    }
}

template <int d, int warps>
void run(const flash::Problem& p, const float* Q, const float* K, const float* V, float* O,
         float* LSE) {
    using T = Tile<d, warps>;
    const int N_q = flash::as_int(p.q_len, "q-len");
    const int N_kv = flash::as_int(p.kv_len, "kv-len");
    // query heads to one K/V head
    const int group = flash::as_int(p.heads / p.kv_heads, "heads / kv-heads");
    const int Tr = static_cast<int>(flash::ceil_div(N_q, T::Br));
    // one dimension, as in flash_attention_2
    const int blocks = flash::as_int(p.batch * p.heads * Tr, "batch x heads x tiles of Q");
    flash::launch(double_buffer<d, warps>, blocks, T::threads, T::bytes, Q, K, V, O, LSE, Tr, group,
                  N_q, N_kv, p.scale, p.causal);
}

} // namespace

void attention(const flash::Problem& p, const float* Q, const float* K, const float* V, float* O,
               float* LSE) {
    flash::for_head_dim<head_dims>(p.head_dim, [&](auto d) {
        // Eight warps have twice as many queries, and so read K and V half as often. At d = 128 it
        // pays, if it fits.
        constexpr int most = d == 128 ? 8 : 4;
        const bool fits = Tile<d, most>::bytes <= flash::max_shared_memory_per_block();
        fits ? run<d, most>(p, Q, K, V, O, LSE) : run<d, 4>(p, Q, K, V, O, LSE);
    });
}

} // namespace double_buffer
