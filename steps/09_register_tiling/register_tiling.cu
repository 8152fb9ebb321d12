// Rung 09: register tiling. Each thread owns a micro-tile of S and of O, and reads memory 16 bytes at a time.
//
// The idea: rung 08 reads two numbers from shared memory for each multiply-add of Q K^T. Shared memory delivers one
// number per lane and clock; the arithmetic units could do four multiply-adds in that clock. Here a thread takes 8
// queries and 8 keys at once: for each column of Q and K it reads 8 + 8 numbers and makes 8 * 8 multiply-adds, an outer
// product. P V does the same with 8 queries and 8 columns of O, for each key.
//
//      lanes of a warp      key  0  1  2 ..  7 |  8  9 ..      d = 64: LR = 4 by LC = 8 lanes
//            query 0             0  2  4 .. 14 |  0  2 ..
//            query 1             1  3  5 .. 15 |  1  3 ..      a lane's queries: lane_r, lane_r + LR, ...   8 of them
//            query 2            16 18 20 .. 30 | 16 18 ..              its keys: lane_c, lane_c + LC, ...   8 of them
//            query 3            17 19 21 .. 31 | 17 19 ..              its columns of O: 4 lane_c + 0 1 2 3,
//            query 4             0  2  4 .. 14 |  0  2 ..                                then 4 LC further
//
// An outer product wants the numbers of one column side by side. So Q, K and P are transposed in shared memory, and the
// four that a lane reads at once stand together. K and V pass through it in slices, of K some columns, of V some keys:
// large tiles would not fit, and while one slice is multiplied, the next one is on its way in registers.
//
// Against rung 08: S_reg in place of one score at a time; float4 loads and stores; slices in place of whole tiles.
// Look at: how many loads stand beside how many multiply-adds in add_product.
// Gained: arithmetic is now the limit. Counter: shared-memory bytes per FLOP.
#include "steps/09_register_tiling/register_tiling.hpp"

#include <cmath>

#include "common/cuda/cuda.hpp"

namespace step09 {
namespace {

constexpr int threads = 128;
constexpr int warps = threads / 32;
constexpr int R = 8; // queries of a thread, LR apart
constexpr int C = 8; // keys of a thread, LC apart
constexpr unsigned every_lane = 0xffffffff;

/// Tile sizes, and what a block keeps in shared memory: at most 99 KiB, which every GPU from compute capability 8.0
/// on has.
template <int d> struct Tile {
    static constexpr int LC = d == 128 ? 16 : 8; // lanes that share a query: together they have its keys and columns
    static constexpr int LR = 32 / LC;           // lanes that share a key
    static constexpr int N = d / LC;             // columns of O of a thread
    static constexpr int warp_rows = LR * R;
    static constexpr int Br = warps * warp_rows; // queries
    static constexpr int Bc = LC * C;            // keys
    static constexpr int slice = 2048 / Bc;      // columns of K, or keys of V, that are in shared memory at a time
    // A quarter of a warp stores 16 bytes per lane at once. Rows of Q and K that are 16 bytes longer, and rows of P
    // that are 32 bytes longer, have these eight in different banks.
    static constexpr int Q_stride = Br + 4;
    static constexpr int K_stride = Bc + 4;
    static constexpr int P_stride = warp_rows + 8;

    static constexpr int Q_smem = 0; // offsets, in floats
    static constexpr int slice_smem = Q_smem + d * Q_stride;
    static constexpr int slice_floats = slice * (K_stride > d ? K_stride : d);
    static constexpr int P_smem = slice_smem + 2 * slice_floats; // one slice is read while the next one is written
    static constexpr int floats = P_smem + warps * Bc * P_stride;
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

/// Maximum over the `lanes` lanes that share a row, in each of them.
template <int lanes> __device__ float row_max(float x) {
    for (int distance = lanes; distance > 1; distance /= 2) {
        x = fmaxf(x, __shfl_xor_sync(every_lane, x, distance));
    }
    return x;
}

template <int lanes> __device__ float row_sum(float x) {
    for (int distance = lanes; distance > 1; distance /= 2) {
        x += __shfl_xor_sync(every_lane, x, distance);
    }
    return x;
}

/// Four columns of four rows of Q or K, which a thread takes to shared memory and transposes on the way. The rows are
/// `apart` rows apart: one lane's rows, which it will read at once. A quarter of a warp has two quads of columns and
/// four of rows, and stores to different banks.
template <int d, int columns, int apart> struct Square {
    int x;    // the first column
    int quad; // number of the quad of rows

    __device__ explicit Square(int number) {
        x = 4 * (number % 2 + number / 8 % (columns / 8) * 2);
        quad = number / 2 % 4 + number / columns * 4;
    }

    /// Rows beyond `last` repeat it. What they become is masked, or not stored.
    __device__ void load(float (&reg)[4][4], const float* from, int from_row, int last) const {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int row = from_row + quad / apart * (4 * apart) + quad % apart + apart * i;
            load4(reg[i], &from[int64_t{min(row, last)} * d + x]);
        }
    }

    __device__ void store(float* smem, int stride, const float (&reg)[4][4]) const {
#pragma unroll
        for (int t = 0; t < 4; ++t) {
            const float column[4] = {reg[0][t], reg[1][t], reg[2][t], reg[3][t]};
            store4(&smem[(x + t) * stride + 4 * quad], column);
        }
    }
};

/// K and V on their way through shared memory. A tile has d + Bc slices: at 0 to d - 1 columns of K, at d and beyond
/// keys of V, and at d + Bc the next tile begins. V needs no transposing.
template <int d> struct Slices {
    using T = Tile<d>;
    static constexpr int pass = threads / (d / 4); // keys of V that the block copies at a time
    const float* K;
    const float* V;
    int last_key;
    float* smem;  // the slice that is there
    float* other; // room for the next one
    Square<d, T::slice, T::LC> square{static_cast<int>(threadIdx.x)};
    float reg[4][4] = {};

    __device__ void load(int j0, int at) {
        if (at % (d + T::Bc) < d) {
            square.load(reg, K + at % (d + T::Bc), at < d ? j0 : j0 + T::Bc, last_key);
            return;
        }
#pragma unroll
        for (int r = 0; r < T::slice; r += pass) {
            const int key = j0 + at - d + r + static_cast<int>(threadIdx.x) / (d / 4);
            load4(reg[r / pass], &V[int64_t{min(key, last_key)} * d + 4 * (threadIdx.x % (d / 4))]);
        }
    }

    __device__ void store(int at) {
        if (at % (d + T::Bc) < d) {
            square.store(other, T::K_stride, reg);
        } else {
#pragma unroll
            for (int r = 0; r < T::slice; r += pass) {
                store4(&other[r * d + 4 * threadIdx.x], reg[r / pass]);
            }
        }
        float* const stored = other;
        other = smem;
        smem = stored;
    }
};

/// sum += A^T B of a thread, where A and B have `steps` rows in shared memory: as many outer products.
template <int steps, int LR, int LC, int N>
__device__ void add_product(float (&sum)[R][N], const float* A, int A_stride, const float* B, int B_stride) {
    // Unrolled: the loads of a step are under way during the multiply-adds of the step before.
#pragma unroll 8
    for (int step = 0; step < steps; ++step) {
        float a[R];
        float b[N];
#pragma unroll
        for (int i = 0; i < R; i += 4) {
            load4(&a[i], &A[step * A_stride + LR * i]);
        }
#pragma unroll
        for (int n = 0; n < N; n += 4) {
            load4(&b[n], &B[step * B_stride + LC * n]);
        }
#pragma unroll
        for (int n = 0; n < N; ++n) {
#pragma unroll
            for (int r = 0; r < R; ++r) {
                // There and back, so that each multiply-add shares a number with the one before: reading three
                // registers takes longer than a multiply-add, if all three are new.
                const int i = n % 2 == 0 ? r : R - 1 - r;
                sum[i][n] += a[i] * b[n];
            }
        }
    }
}

template <int d>
__global__ __launch_bounds__(threads) void register_tiling(const float* Q, const float* K, const float* V, float* O,
                                                           float* LSE, int Tr, int group, int N_q, int N_kv,
                                                           float scale, bool causal) {
    using T = Tile<d>;
    constexpr int LR = T::LR, LC = T::LC, N = T::N, Br = T::Br, Bc = T::Bc, slice = T::slice;
    const int warp = threadIdx.x / 32;
    // A load of 16 bytes per lane takes four wavefronts, but two if each lane's neighbour, or each lane's next but one,
    // asks for the same bytes. So neighbours share their keys, and next but ones their queries.
    const int lane_r = threadIdx.x % 2 + threadIdx.x % 32 / (2 * LC) * 2;
    const int lane_c = threadIdx.x / 2 % LC;
    const int row0 = warp * T::warp_rows + lane_r; // the thread's rows in the tile of Q: row0, row0 + LR, ...
    float* smem = flash::dynamic_shared<float>();
    float* Q_smem = smem + T::Q_smem + warp * T::warp_rows + 4 * lane_r; // these two are the warp's own
    float* P_smem = smem + T::P_smem + warp * Bc * T::P_stride + 4 * lane_r;
    float* slice_smem = smem + T::slice_smem;

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
    const int keys = min(N_kv, causal ? first_row_keys + rows - 1 : N_kv);

    float m_reg[R];
    float l_reg[R] = {};
    float O_reg[R][N] = {};
    // Unrolled here and below, because registers have no addresses: an index into a register array must be a constant.
#pragma unroll
    for (int i = 0; i < R; ++i) {
        m_reg[i] = -INFINITY;
    }

    for (int number = threadIdx.x; number < Br * d / 16; number += threads) {
        const Square<d, d, LR> square(number);
        float reg[4][4];
        square.load(reg, Q, 0, rows - 1);
        square.store(smem + T::Q_smem, T::Q_stride, reg);
    }
    Slices<d> slices{K, V, N_kv - 1, slice_smem, slice_smem + T::slice_floats};
    slices.load(0, 0);
    slices.store(0);

    for (int j0 = 0; j0 < keys; j0 += Bc) {
        float S_reg[R][C] = {}; // S, then P in its place
#pragma unroll 1
        for (int x = 0; x < d; x += slice) {
            __syncthreads(); // this slice is complete, and the one before is read no more
            slices.load(j0, x + slice);
            add_product<slice, LR, LC>(S_reg, Q_smem + x * T::Q_stride, T::Q_stride, slices.smem + 4 * lane_c,
                                       T::K_stride);
            slices.store(x + slice);
        }

        if (j0 + Bc > min(N_kv, first_row_keys)) { // an edge: some row does not see the whole tile
#pragma unroll
            for (int i = 0; i < R; ++i) {
#pragma unroll
                for (int k = 0; k < C; ++k) {
                    const int j = j0 + LC * k + lane_c;
                    if (j >= N_kv || j >= first_row_keys + row0 + LR * i) {
                        S_reg[i][k] = -INFINITY;
                    }
                }
            }
        }

#pragma unroll
        for (int i = 0; i < R; ++i) {
            float m_new = S_reg[i][0];
#pragma unroll
            for (int k = 1; k < C; ++k) {
                m_new = fmaxf(m_new, S_reg[i][k]);
            }
            m_new = fmaxf(m_reg[i], scale * row_max<LC>(m_new));   // scale > 0: the maximum may be scaled in its place
            const float shift = m_new == -INFINITY ? 0.0f : m_new; // no visible key yet, and -inf - -inf is NaN
            const float keep = __expf(m_reg[i] - shift);
            m_reg[i] = m_new;
            float sum = 0;
#pragma unroll
            for (int k = 0; k < C; ++k) {
                S_reg[i][k] = __expf(scale * S_reg[i][k] - shift);
                sum += S_reg[i][k];
            }
            l_reg[i] = keep * l_reg[i] + row_sum<LC>(sum);
#pragma unroll
            for (int n = 0; n < N; ++n) {
                O_reg[i][n] *= keep;
            }
        }

        __syncwarp(); // the P before is read no more; it belongs to this warp alone
#pragma unroll
        for (int k = 0; k < C; ++k) {
#pragma unroll
            for (int i = 0; i < R; i += 4) {
                const float p[4] = {S_reg[i][k], S_reg[i + 1][k], S_reg[i + 2][k], S_reg[i + 3][k]};
                store4(&P_smem[(LC * k + lane_c) * T::P_stride + LR * i], p);
            }
        }
        __syncwarp(); // P_smem is complete
#pragma unroll 1
        for (int c = 0; c < Bc; c += slice) {
            __syncthreads(); // as above
            slices.load(j0, d + c + slice);
            add_product<slice, LR, LC>(O_reg, P_smem + c * T::P_stride, T::P_stride, slices.smem + 4 * lane_c, d);
            slices.store(d + c + slice);
        }
    }

#pragma unroll
    for (int i = 0; i < R; ++i) {
        if (row0 + LR * i < rows) {
            const float normalise = l_reg[i] == 0 ? 0.0f : 1 / l_reg[i]; // a row that sees no key gets O = 0
#pragma unroll
            for (int n = 0; n < N; n += 4) {
                float o[4];
#pragma unroll
                for (int t = 0; t < 4; ++t) {
                    o[t] = O_reg[i][n + t] * normalise;
                }
                store4(&O[(row0 + LR * i) * d + LC * n + 4 * lane_c], o);
            }
            if (lane_c == 0) {
                LSE[row0 + LR * i] = m_reg[i] + logf(l_reg[i]);
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
