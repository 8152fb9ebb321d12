// Rung wide_loads. One instruction reads four numbers, so loads take a quarter of the instructions.
// Parent: micro_tiles. New: accesses of 16 bytes, to memory and to shared memory. They need the
// four numbers side by side. An outer product reads rows of one column, and in memory the columns
// of one row are side by side. So Q, K and P are transposed on their way into shared memory, and
// both products become the same loop. (Gray, maxas, 2014.)
//
//      memory: 4 rows of 16 bytes         one thread         shared memory: 4 rows of 16 bytes
//          row 0    a0 a1 a2 a3                                  column 0    a0 b0 c0 d0
//          row LR   b0 b1 b2 b3     ->    16 registers   ->      column 1    a1 b1 c1 d1
//          row 2 LR c0 c1 c2 c3                                  column 2    a2 b2 c2 d2
//          row 3 LR d0 d1 d2 d3                                  column 3    a3 b3 c3 d3
//
// Look at: Shared, where each tile says which way it lies; and add_product.
// Gained: fewer instructions between multiply-adds. Counter: a quarter of the requests to memory
// and to shared memory, for the same bytes.
#include "steps/15_wide_loads/wide_loads.hpp"

#include <cmath>

#include "common/cuda/cuda.hpp"

namespace wide_loads {
namespace {

constexpr int threads = 128;
constexpr int warps = threads / 32;
constexpr unsigned every_lane = 0xffffffff;

template <int d> struct Tile {
    static constexpr int LC = d == 128 ? 16 : 8; // lanes that share a query
    static constexpr int LR = 32 / LC;           // lanes that share a key
    static constexpr int R = 8;                  // queries of a thread, LR apart
    static constexpr int C = d == 128 ? 4 : 8;   // keys of a thread, LC apart: 8 would not fit
    static constexpr int N = d / LC;             // columns of O of a thread
    static constexpr int warp_rows = LR * R;
    static constexpr int Br = warps * warp_rows; // queries
    static constexpr int Bc = LC * C;            // keys
};

/// What a block keeps in shared memory: at most 99 KiB, which every GPU from compute capability 8.0
/// on has. Transposed rows are padded by 16 bytes: lanes that store to several of them at once meet
/// in different banks, and each row still begins at a multiple of 16 bytes.
template <int d> struct alignas(16) Shared {
    using T = Tile<d>;
    float Q[d][T::Br + 4];     // transposed
    union {                    // K, then V in its place
        float K[d][T::Bc + 4]; // transposed
        float V[T::Bc][d];     // its rows are keys already
    };
    float P[warps][T::Bc][T::warp_rows + 4]; // transposed: of each warp its own rows
};

/// The maximum over the LC lanes that share a query; each of them gets it.
template <int LC> __device__ float row_max(float x) {
    for (int distance = LC / 2; distance > 0; distance /= 2) {
        x = fmaxf(x, __shfl_xor_sync(every_lane, x, distance));
    }
    return x;
}

template <int LC> __device__ float row_sum(float x) {
    for (int distance = LC / 2; distance > 0; distance /= 2) {
        x += __shfl_xor_sync(every_lane, x, distance);
    }
    return x;
}

/// Four floats as one, so that 16 bytes are copied at once; the address must be a multiple of 16.
__device__ float4& float4_at(float* p) { return *reinterpret_cast<float4*>(p); }
__device__ const float4& float4_at(const float* p) { return *reinterpret_cast<const float4*>(p); }

/// Four rows by four columns of Q or K, which one thread transposes.
struct Square {
    int x;     // the first column
    int row;   // the first row; the others are `apart` further each
    int place; // in shared memory the four rows are neighbours, from here on
};

/// A thread's square in a tile of `columns` columns. Its rows are LR or LC `apart`, because one
/// lane will read them at once.
__device__ Square square(int number, int columns, int apart) {
    // Eight threads store at the same time: four squares below each other by two side by side go to
    // different banks.
    const int eight = number / 8;
    const int eights_across = columns / 8;
    const int across = number % 2 + 2 * (eight % eights_across);
    const int down = number / 2 % 4 + 4 * (eight / eights_across);
    // `apart` squares are interleaved: together they have 4 * apart rows
    const int row = 4 * apart * (down / apart) + down % apart;
    return {.x = 4 * across, .row = row, .place = 4 * down};
}

/// Four columns of some rows, `apart` from each other. Rows beyond `last` repeat it: results from
/// those rows are masked or never stored.
template <int d, int rows>
__device__ void load_rows(float (&reg)[4][4], const float* from, int row, int apart, int last) {
#pragma unroll
    for (int i = 0; i < rows; ++i) {
        float4_at(reg[i]) = float4_at(&from[int64_t{min(row + apart * i, last)} * d]);
    }
}

template <int columns, int stride>
__device__ void store_transposed(float (&smem)[columns][stride], const Square& at,
                                 const float (&reg)[4][4]) {
#pragma unroll
    for (int t = 0; t < 4; ++t) {
        const float4 column = make_float4(reg[0][t], reg[1][t], reg[2][t], reg[3][t]);
        float4_at(&smem[at.x + t][at.place]) = column;
    }
}

/// Copies a tile into shared memory, transposed.
template <int d, int rows, int apart, int stride>
__device__ void load_transposed(float (&smem)[d][stride], const float* from, int last) {
    for (int number = threadIdx.x; number < rows * d / 16; number += blockDim.x) {
        const Square at = square(number, d, apart);
        alignas(16) float reg[4][4];
        load_rows<d, 4>(reg, from + at.x, at.row, apart, last);
        store_transposed(smem, at, reg);
    }
}

/// Copies a tile as it lies.
template <int d, int rows>
__device__ void load_tile(float (&smem)[rows][d], const float* from, int last) {
    const int x = threadIdx.x % (d / 4) * 4;
#pragma unroll 4
    for (int r = threadIdx.x / (d / 4); r < rows; r += threads / (d / 4)) {
        float4_at(&smem[r][x]) = float4_at(&from[int64_t{min(r, last)} * d + x]);
    }
}

/// sum += A^T B of a thread: an outer product for each row of A and B. The thread's numbers begin
/// at a in a row of A, at b in a row of B: four side by side, and four more after those of the
/// other lanes.
template <class T, int steps, int N, int A_stride, int B_stride>
__device__ void add_product(float (&sum)[T::R][N], const float (*A)[A_stride], int a,
                            const float (*B)[B_stride], int b) {
#pragma unroll 4
    for (int step = 0; step < steps; ++step) {
        alignas(16) float a_reg[T::R], b_reg[N];
        for (int i = 0; i < T::R; i += 4) {
            float4_at(&a_reg[i]) = float4_at(&A[step][a + T::LR * i]);
        }
        for (int n = 0; n < N; n += 4) {
            float4_at(&b_reg[n]) = float4_at(&B[step][b + T::LC * n]);
        }
#pragma unroll
        for (int i = 0; i < T::R; ++i) {
            for (int n = 0; n < N; ++n) {
                sum[i][n] += a_reg[i] * b_reg[n];
            }
        }
    }
}

template <int d>
__global__ __launch_bounds__(threads) void wide_loads(const float* Q, const float* K,
                                                      const float* V, float* O, float* LSE, int Tr,
                                                      int group, int N_q, int N_kv, float scale,
                                                      bool causal) {
    using T = Tile<d>;
    constexpr int Br = T::Br, Bc = T::Bc, LR = T::LR, LC = T::LC, R = T::R, C = T::C, N = T::N;
    const int warp = threadIdx.x / 32;
    const int lane_r = threadIdx.x % 32 / LC;
    const int lane_c = threadIdx.x % LC;
    // the thread's rows in the tile of Q: row0, row0 + LR, ...
    const int row0 = warp * T::warp_rows + lane_r;
    Shared<d>& smem = *flash::dynamic_shared<Shared<d>>();

    const int64_t head = blockIdx.x / Tr;
    const int i0 = blockIdx.x % Tr * Br;
    Q += (head * N_q + i0) * d;
    O += (head * N_q + i0) * d;
    K += head / group * N_kv * d;
    V += head / group * N_kv * d;
    LSE += head * N_q + i0;
    const int rows = min(Br, N_q - i0);

    // Query i sees key j if j <= i + (N_kv - N_q): tiles beyond the last query's last key are never
    // loaded.
    const int first_row_keys = causal ? i0 + (N_kv - N_q) + 1 : N_kv;
    const int keys = causal ? first_row_keys + rows - 1 : N_kv;

    float m_reg[R];
    float l_reg[R] = {}; // the sum over the lane's own keys
    alignas(16) float O_reg[R][N] = {};
    // Unrolled here and below, because registers have no addresses: an index into a register array
    // must be a constant.
#pragma unroll
    for (int i = 0; i < R; ++i) {
        m_reg[i] = -INFINITY;
    }

    load_transposed<d, Br, LR>(smem.Q, Q, rows - 1);
    for (int j0 = 0; j0 < keys; j0 += Bc) {
        __syncthreads(); // slower warps still read V of the tile before
        load_transposed<d, Bc, LC>(smem.K, K + int64_t{j0} * d, N_kv - 1 - j0);
        __syncthreads(); // K is complete, and for the first tile Q

        float S_reg[R][C] = {}; // S, then P in its place
        add_product<T, d>(S_reg, smem.Q, warp * T::warp_rows + 4 * lane_r, smem.K, 4 * lane_c);

        if (j0 + Bc > min(N_kv, first_row_keys)) { // an edge: some row does not see the whole tile
#pragma unroll
            for (int i = 0; i < R; ++i) {
                const int row_keys = min(N_kv, first_row_keys + row0 + LR * i);
                for (int n = 0; n < C; ++n) {
                    S_reg[i][n] = j0 + lane_c + LC * n < row_keys ? S_reg[i][n] : -INFINITY;
                }
            }
        }

#pragma unroll
        for (int i = 0; i < R; ++i) {
            float s_max = S_reg[i][0];
            for (int n = 1; n < C; ++n) {
                s_max = fmaxf(s_max, S_reg[i][n]);
            }
            const float m_new = fmaxf(m_reg[i], row_max<LC>(s_max));
            // no visible key yet, and -inf - -inf is NaN
            const float shift = m_new == -INFINITY ? 0.0f : m_new;
            const float keep = expf(scale * (m_reg[i] - shift));
            m_reg[i] = m_new;
            float sum = 0;
            for (int n = 0; n < C; ++n) {
                // scaled after the subtraction, so that no rounding makes an exponent larger than 0
                S_reg[i][n] = expf(scale * (S_reg[i][n] - shift));
                sum += S_reg[i][n];
            }
            l_reg[i] = keep * l_reg[i] + sum;
            for (int n = 0; n < N; ++n) {
                O_reg[i][n] *= keep;
            }
        }
#pragma unroll
        for (int n = 0; n < C; ++n) {
            for (int i = 0; i < R; i += 4) {
                const float4 p =
                    make_float4(S_reg[i][n], S_reg[i + 1][n], S_reg[i + 2][n], S_reg[i + 3][n]);
                float4_at(&smem.P[warp][lane_c + LC * n][4 * lane_r + LR * i]) = p;
            }
        }

        __syncthreads(); // slower warps still read K
        load_tile<d>(smem.V, V + int64_t{j0} * d, N_kv - 1 - j0);
        __syncthreads(); // V is complete, and P

        add_product<T, Bc>(O_reg, smem.P[warp], 4 * lane_r, smem.V, 4 * lane_c);
    }

#pragma unroll
    for (int i = 0; i < R; ++i) {
        const float l = row_sum<LC>(l_reg[i]);
        if (row0 + LR * i < rows) {
            // a row that sees no key gets O = 0
            const float normalise = l == 0 ? 0.0f : 1 / l;
            for (int n = 0; n < N; ++n) {
                O_reg[i][n] *= normalise;
            }
            for (int n = 0; n < N; n += 4) {
                float4_at(&O[(row0 + LR * i) * d + 4 * lane_c + LC * n]) = float4_at(&O_reg[i][n]);
            }
            if (lane_c == 0) {
                LSE[row0 + LR * i] = scale * m_reg[i] + logf(l);
            }
        }
    }
}

template <int d>
void run(const flash::Problem& p, const float* Q, const float* K, const float* V, float* O,
         float* LSE) {
    const int N_q = flash::as_int(p.q_len, "q-len");
    const int N_kv = flash::as_int(p.kv_len, "kv-len");
    // query heads to one K/V head
    const int group = flash::as_int(p.heads / p.kv_heads, "heads / kv-heads");
    const int Tr = static_cast<int>(flash::ceil_div(N_q, Tile<d>::Br));
    // One dimension for tiles and heads, because y and z of a grid end at 65535.
    const int blocks = flash::as_int(p.batch * p.heads * Tr, "batch x heads x tiles of Q");
    static_assert(sizeof(Shared<d>) <= 99 * 1024);
    flash::launch(wide_loads<d>, blocks, threads, sizeof(Shared<d>), Q, K, V, O, LSE, Tr, group,
                  N_q, N_kv, p.scale, p.causal);
}

} // namespace

void attention(const flash::Problem& p, const float* Q, const float* K, const float* V, float* O,
               float* LSE) {
    flash::for_head_dim<head_dims>(p.head_dim, [&](auto d) { run<d>(p, Q, K, V, O, LSE); });
}

} // namespace wide_loads
