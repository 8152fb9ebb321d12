// Rung double_buffer. While the block multiplies one slice of K or V, the next is on its way.
// Parent: wide_loads. New: K comes in slices of columns and V in slices of keys. There is room for
// two of them in shared memory. A thread loads its part of the next slice into registers,
// multiplies this slice, and only then stores what it has loaded.
//
//      multiply    | K 0 | K 1 | softmax, P to shared | V 0 | V 1 | K 0 of the next tile ..
//      on its way  | K 1 | V 0 |                      | V 1 | K 0 |
//
// Slices also leave room for micro-tiles of 8 x 8 at d = 128. Three smaller changes follow from the
// arithmetic being the limit now: lanes in the order in which a load takes the fewest wavefronts,
// multiply-adds in a zigzag that spares them a register, and 2^x in place of e^x.
// Look at: where the load of a slice stands, where its store stands, and what lies between them.
// Gained: warps hardly wait for memory, so arithmetic is the limit. Counter: on a GPU, the stall
// reason long scoreboard; and a load of shared memory takes two wavefronts on average, not three.
#include "steps/16_double_buffer/double_buffer.hpp"

#include <cmath>

#include "common/cuda/cuda.hpp"
#include "common/cuda/ptx/exp2.hpp"

namespace double_buffer {
namespace {

constexpr unsigned every_lane = 0xffffffff;

template <int d, int warps> struct Tile {
    static constexpr int threads = 32 * warps;
    static constexpr int LC = d == 128 ? 16 : 8; // lanes that share a query
    static constexpr int LR = 32 / LC;           // lanes that share a key
    static constexpr int R = 8;                  // queries of a thread, LR apart
    static constexpr int C = 8;                  // keys of a thread, LC apart
    static constexpr int N = d / LC;             // columns of O of a thread
    static constexpr int warp_rows = LR * R;
    static constexpr int Br = warps * warp_rows; // queries
    static constexpr int Bc = LC * C;            // keys
    // columns of K, or keys of V, that are in shared memory at a time: one square per thread
    static constexpr int slice = 16 * threads / Bc;
    // keys of V that a thread copies of each slice
    static constexpr int V_rows = slice * d / (4 * threads);
    // steps by which the loads of a product are ahead of its multiply-adds; one takes 16 registers
    static constexpr int ahead = warps == 8 ? 1 : 0;
    static_assert(d % slice == 0 && Bc % slice == 0 && slice % 8 == 0);
};

template <int d, int warps> union Slice {
    using T = Tile<d, warps>;
    float K[T::slice][T::Bc + 4]; // transposed
    float V[T::slice][d];         // its rows are keys already
};

/// What a block keeps in shared memory: with four warps at most the 99 KiB that every GPU from
/// compute capability 8.0 on has. Transposed rows are padded by 16 or 32 bytes: lanes that store to
/// several of them at once meet in different banks, and each row still begins at a multiple of 16
/// bytes.
template <int d, int warps> struct alignas(16) Shared {
    using T = Tile<d, warps>;
    float Q[d][T::Br + 4];                   // transposed
    Slice<d, warps> slices[2];               // one is read while the next one is written
    float P[warps][T::Bc][T::warp_rows + 8]; // transposed: of each warp its own rows
};

/// The maximum over the LC lanes that share a query; each of them gets it. Their numbers differ in
/// lane_c, which takes the bits 2 to LC.
template <int LC> __device__ float row_max(float x) {
    for (int distance = LC; distance > 1; distance /= 2) {
        x = fmaxf(x, __shfl_xor_sync(every_lane, x, distance));
    }
    return x;
}

template <int LC> __device__ float row_sum(float x) {
    for (int distance = LC; distance > 1; distance /= 2) {
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

/// sum += A^T B of a thread: an outer product for each row of A and B, of which there are T::slice.
/// The thread's numbers begin at a in a row of A, at b in a row of B: four side by side, and four
/// more after those of the other lanes.
template <class T, int N, int A_stride, int B_stride>
__device__ void add_product(float (&sum)[T::R][N], const float (*A)[A_stride], int a,
                            const float (*B)[B_stride], int b) {
    // what a step multiplies: of even steps the first, of odd ones the second
    alignas(16) float a_reg[2][T::R], b_reg[2][N];
    const auto load = [&](int step) {
        for (int i = 0; i < T::R; i += 4) {
            float4_at(&a_reg[step % 2][i]) = float4_at(&A[step][a + T::LR * i]);
        }
        for (int n = 0; n < N; n += 4) {
            float4_at(&b_reg[step % 2][n]) = float4_at(&B[step][b + T::LC * n]);
        }
    };
    if (T::ahead) {
        load(0);
    }
#pragma unroll 8
    for (int step = 0; step < T::slice; ++step) {
        if (step + T::ahead < T::slice) {
            load(step + T::ahead);
        }
#pragma unroll
        for (int n = 0; n < N; ++n) {
            for (int r = 0; r < T::R; ++r) {
                // In a zigzag, so that each multiply-add shares a number with the one before:
                // reading three registers takes longer than a multiply-add, if all three are new.
                const int i = n % 2 == 0 ? r : T::R - 1 - r;
                sum[i][n] += a_reg[step % 2][i] * b_reg[step % 2][n];
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
    constexpr int Br = T::Br, Bc = T::Bc, LR = T::LR, LC = T::LC, R = T::R, C = T::C, N = T::N;
    const int warp = threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    // A load of 16 bytes per lane takes four wavefronts, but two if each lane's neighbour, or each
    // lane's next but one, asks for the same bytes. So neighbours share their keys, and next but
    // ones their queries. Of LR = 4 by LC = 8 lanes:
    //
    //      0  2  4  6 ..  14     lane_r = 0, lane_c = 0 .. 7
    //      1  3  5  7 ..  15     lane_r = 1
    //     16 18 20 22 ..  30     lane_r = 2
    //     17 19 21 23 ..  31     lane_r = 3
    const int lane_r = lane % 2 + lane / (2 * LC) * 2;
    const int lane_c = lane / 2 % LC;
    // the thread's rows in the tile of Q: row0, row0 + LR, ...
    const int row0 = warp * T::warp_rows + lane_r;
    Shared<d, warps>& smem = *flash::dynamic_shared<Shared<d, warps>>();

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

    // e^(scale s) = 2^(scale2 s), which is one instruction; lean_softmax comes back to it
    const float scale2 = scale * flash::log2_e;
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

    alignas(16) float next[4][4]; // what the thread has loaded of the slice after this one
    int now = 0;                  // which of the two slices is read
    const int thread = threadIdx.x;
    const Square k = square(thread, T::slice, LC);
    const int v_x = thread % (d / 4) * 4;
    const int v_row = thread / (d / 4);
    constexpr int V_apart = T::threads / (d / 4);
    const auto load_K = [&](int j, int x) {
        load_rows<d, 4>(next, K + x + k.x, j + k.row, LC, N_kv - 1);
    };
    const auto load_V = [&](int j) {
        load_rows<d, T::V_rows>(next, V + v_x, j + v_row, V_apart, N_kv - 1);
    };
    const auto store_K = [&] { store_transposed(smem.slices[now].K, k, next); };
    const auto store_V = [&] {
#pragma unroll
        for (int i = 0; i < T::V_rows; ++i) {
            float4_at(&smem.slices[now].V[v_row + V_apart * i][v_x]) = float4_at(next[i]);
        }
    };
    load_K(0, 0);
    store_K();

    for (int j0 = 0; j0 < keys; j0 += Bc) {
        float S_reg[R][C] = {}; // S, then P in its place
#pragma unroll 1
        for (int x = 0; x < d; x += T::slice) {
            // this slice is complete (and Q), and nobody reads the one before, which is replaced
            __syncthreads();
            x + T::slice < d ? load_K(j0, x + T::slice) : load_V(j0);
            add_product<T>(S_reg, smem.Q + x, warp * T::warp_rows + 4 * lane_r, smem.slices[now].K,
                           4 * lane_c);
            now = 1 - now;
            x + T::slice < d ? store_K() : store_V();
        }

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
            const float keep = flash::fast_exp2(scale2 * (m_reg[i] - shift));
            m_reg[i] = m_new;
            float sum = 0;
            for (int n = 0; n < C; ++n) {
                // scaled after the subtraction, so that no rounding makes an exponent larger than 0
                S_reg[i][n] = flash::fast_exp2(scale2 * (S_reg[i][n] - shift));
                sum += S_reg[i][n];
            }
            l_reg[i] = keep * l_reg[i] + sum;
            for (int n = 0; n < N; ++n) {
                O_reg[i][n] *= keep;
            }
        }

        // Nobody still reads the last P: since then the block has met at the slices of K.
#pragma unroll
        for (int n = 0; n < C; ++n) {
            for (int i = 0; i < R; i += 4) {
                const float4 p =
                    make_float4(S_reg[i][n], S_reg[i + 1][n], S_reg[i + 2][n], S_reg[i + 3][n]);
                float4_at(&smem.P[warp][lane_c + LC * n][4 * lane_r + LR * i]) = p;
            }
        }

#pragma unroll 1
        for (int c = 0; c < Bc; c += T::slice) {
            __syncthreads(); // as above; and P is complete
            if (c + T::slice < Bc) {
                load_V(j0 + c + T::slice);
            } else if (j0 + Bc < keys) { // if not, what is stored below is never read
                load_K(j0 + Bc, 0);
            }
            add_product<T>(O_reg, smem.P[warp] + c, 4 * lane_r, smem.slices[now].V, 4 * lane_c);
            now = 1 - now;
            c + T::slice < Bc ? store_V() : store_K();
        }
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

template <int d, int warps>
void run(const flash::Problem& p, const float* Q, const float* K, const float* V, float* O,
         float* LSE) {
    using T = Tile<d, warps>;
    const int N_q = flash::as_int(p.q_len, "q-len");
    const int N_kv = flash::as_int(p.kv_len, "kv-len");
    // query heads to one K/V head
    const int group = flash::as_int(p.heads / p.kv_heads, "heads / kv-heads");
    const int Tr = static_cast<int>(flash::ceil_div(N_q, T::Br));
    // One dimension for tiles and heads, because y and z of a grid end at 65535.
    const int blocks = flash::as_int(p.batch * p.heads * Tr, "batch x heads x tiles of Q");
    static_assert(sizeof(Shared<d, warps>) <= (warps == 4 ? 99 : 227) * 1024);
    flash::launch(double_buffer<d, warps>, blocks, T::threads, sizeof(Shared<d, warps>), Q, K, V, O,
                  LSE, Tr, group, N_q, N_kv, p.scale, p.causal);
}

} // namespace

void attention(const flash::Problem& p, const float* Q, const float* K, const float* V, float* O,
               float* LSE) {
    flash::for_head_dim<head_dims>(p.head_dim, [&](auto d) {
        // Eight warps have twice as many queries, and so read K and V half as often. At d = 128 it
        // pays, if it fits.
        constexpr int most = d == 128 ? 8 : 4;
        const bool fits = sizeof(Shared<d, most>) <= flash::max_shared_memory_per_block();
        fits ? run<d, most>(p, Q, K, V, O, LSE) : run<d, 4>(p, Q, K, V, O, LSE);
    });
}

} // namespace double_buffer
