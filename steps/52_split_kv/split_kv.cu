// split_kv: Many warps and blocks read the keys of one tile of rows, and their results are merged.
//
// The idea: attention over a part of the keys gives O and LSE of that part. Two such results make
// one, whatever the parts and in whatever order: each O counts with the weight e^LSE. So
//
//      the keys of a tile     | split 0           | split 1           | split 2           |
//      warps of a block        0 1 2 3 0 1 2 3 ..  0 1 2 3 0 1 2 3 ..  0 1 2 3 0 1 2 3 ..
//      merged in               shared memory       shared memory       shared memory
//                                        \___________  |  ____________/
//      by the block that comes last                 O, LSE
//
//   - The rows are those of packed_heads, 16 to a tile. A warp multiplies all of them by 16 keys
//     of its own, and takes the next 16. It needs no other warp, so there is no barrier of the
//     block in the loop.
//   - Each warp has a ring of three slots of its own, so K and V of two steps are on their way
//     while it computes a third.
//   - A tile's keys are split so that every SM gets a block (of small heads a few), but into no
//     more parts than pay (splits_of).
//
// Splitting keys over blocks is Flash-Decoding (T. Dao, D. Haziza, F. Massa, G. Sizov, 2023).
// Parent: packed_heads. A new kernel: its rows and its softmax are the parent's.
// Look at: what a part is, and that `merge` stands twice in the kernel. Gained: all SMs read.
#include "steps/52_split_kv/split_kv.hpp"

#include <algorithm>
#include <cfloat>
#include <cmath>

#include "common/cuda/cuda.hpp"
#include "common/cuda/derived/fixed_maximum.hpp"
#include "common/cuda/derived/packed_rows.hpp"
#include "common/cuda/derived/swizzle.hpp"
#include "common/cuda/ptx/cp_async.hpp"
#include "common/cuda/ptx/ldmatrix.hpp"
#include "common/cuda/ptx/mma.hpp"
#include "common/cuda/ptx/semaphore.hpp"

namespace split_kv {
namespace {

constexpr int warps = 4;
constexpr int threads = 32 * warps;
constexpr int Br = 16;           // packed rows, the same for all warps
constexpr int Bc = 16;           // keys in a warp's step
constexpr int slots = 3;         // in a warp's ring, each for a step
constexpr int ahead = slots - 1; // steps: so far in advance keys are copied
// So few that an SM has 64 KiB on their way. More would only make more parts to merge.
template <int d> constexpr int blocks_per_sm = 128 / d;

/// The result for some of the keys: O, divided by its sum of weights, and LSE in units of log2. A
/// row that sees none of these keys has O = 0 and LSE = -inf.
template <int d> struct Part {
    float O[Br][d + 8]; // 8 more, so that rows of a C fragment lie in different banks
    float LSE[Br];
};

template <int d> struct Slot { flash::SwizzledTile<d, Bc> K, V; };

/// Dynamic shared memory: first the rings of all warps, later what is merged, in the same place.
template <int d> union Shared {
    Slot<d> ring[warps][slots];
    struct {
        Part<d> of_warp[warps];
        bool is_last;
    } merge;
};

/// Starts the warp's copies of 16 keys. Rows from `valid` on become zeros.
template <class T, int d>
__device__ void start_step(flash::SwizzledTile<d, Bc>& tile, const T* from, int valid) {
    constexpr int step = 32 / (d / 8); // rows that the warp copies at once
    const int row = threadIdx.x % 32 / (d / 8);
    const int chunk = threadIdx.x % (d / 8);
#pragma unroll
    for (int r = row; r < row + Bc; r += step) {
        flash::cp_async_16(tile.data + tile.offset(r, chunk), from + r * d + 8 * chunk, r < valid);
    }
}

/// Reads the tile's rows of Q as A fragments: 16 rows x 16 columns each. Rows from `rows` on are 0.
template <class T, int d>
__device__ void load_Q(uint32_t (&Q_reg)[d / 16][4], const T* Q, flash::PackedRows packed,
                       int first, int rows) {
    const int g = threadIdx.x % 32 / 4; // the lane's rows in a fragment: g and g + 8
    const int t = threadIdx.x % 4;      // its columns: 2t and 2t + 1, and 8 more
    for (int r = 0; r < 2; ++r) {
        const T* row = Q + packed.place(first + g + 8 * r) * d + 2 * t;
#pragma unroll
        for (int k = 0; k < d / 8; ++k) {
            Q_reg[k / 2][k % 2 * 2 + r] =
                g + 8 * r < rows ? *reinterpret_cast<const uint32_t*>(row + 8 * k) : 0;
        }
    }
}

/// S_reg = Q K^T - m: 16 rows and the step's keys. C fragments, 16 rows x 8 keys each.
template <class T, int d>
__device__ void multiply_QK(float (&S_reg)[1][Bc / 8][4], const float (&m_reg)[1][2],
                            const uint32_t (&Q_reg)[d / 16][4],
                            const flash::SwizzledTile<d, Bc>& K) {
    const int K_lane = K.offset_of_B(threadIdx.x % 32);
    for (int n = 0; n < Bc / 8; ++n) {
        for (int c = 0; c < 4; ++c) {
            S_reg[0][n][c] = -m_reg[0][c / 2];
        }
    }
#pragma unroll
    for (int k = 0; k < d / 16; ++k) {
        uint32_t K_reg[4];
        flash::ldmatrix_x4(K_reg, K.data + K.fragment(K_lane, 0, k));
        flash::mma_m16n8k16<T>(S_reg[0][0], Q_reg[k], {K_reg[0], K_reg[1]});
        flash::mma_m16n8k16<T>(S_reg[0][1], Q_reg[k], {K_reg[2], K_reg[3]});
    }
}

/// O_reg += P V, and l_reg += P times ones: a C fragment whose every column is the row sum.
template <class T, int d>
__device__ void multiply_PV(float (&O_reg)[1][d / 8][4], float (&l_reg)[1][4],
                            const float (&P)[1][Bc / 8][4], const flash::SwizzledTile<d, Bc>& V) {
    const int V_lane = V.offset_of_B_transposed(threadIdx.x % 32);
    uint32_t P_reg[4]; // an A fragment: 16 rows x 16 keys
    flash::pack_A_saturated<T>(P_reg, P[0][0], P[0][1]);
    flash::mma_m16n8k16<T>(l_reg[0], P_reg, {flash::ones<T>, flash::ones<T>});
#pragma unroll
    for (int n = 0; n < d / 8; n += 2) {
        uint32_t V_reg[4];
        flash::ldmatrix_x4_trans(V_reg, V.data + V.fragment(V_lane, 0, n / 2));
        flash::mma_m16n8k16<T>(O_reg[0][n], P_reg, {V_reg[0], V_reg[1]});
        flash::mma_m16n8k16<T>(O_reg[0][n + 1], P_reg, {V_reg[2], V_reg[3]});
    }
}

/// The warp's own result, from registers: the rows that exist.
template <class T, int d>
__device__ void store_part(Part<d>& part, const float (&O_reg)[1][d / 8][4],
                           const float (&m_reg)[1][2], const float (&l_reg)[1][4], float scale_log2,
                           int rows) {
    const int g = threadIdx.x % 32 / 4; // rows g and g + 8 of C
    const int t = threadIdx.x % 4;      // columns 2t and 2t + 1
    for (int r = 0; r < 2; ++r) {
        if (g + 8 * r >= rows) { // nobody merges them
            return;
        }
        const float l = l_reg[0][2 * r];
        const float normalise = l == 0 ? 0.0f : 1 / l;
        float* const O = part.O[g + 8 * r] + 2 * t;
#pragma unroll
        for (int n = 0; n < d / 8; ++n) {
            *reinterpret_cast<float2*>(O + 8 * n) =
                make_float2(O_reg[0][n][2 * r] * normalise, O_reg[0][n][2 * r + 1] * normalise);
        }
        if (t == 0) {
            part.LSE[g + 8 * r] = m_reg[0][r] * scale_log2 - flash::window<T> + log2f(l);
        }
    }
}

/// The result for some of the keys, of 4 columns of a row.
struct Merged {
    float4 O;
    float LSE; // of the row, in units of log2
};

/// Merges `count` parts: columns x to x + 3 of a row. The parts may be in shared or in global
/// memory.
template <int d> __device__ Merged merge(const Part<d>* parts, int count, int row, int x) {
    float top = -FLT_MAX; // the largest LSE so far. Not -inf, because -inf - -inf is NaN
    float sum = 0;        // of the weights 2^(LSE - top)
    float4 O = make_float4(0, 0, 0, 0);
#pragma unroll 16
    for (int n = 0; n < count; ++n) { // as one_pass_softmax takes keys
        const float4 O_n = *reinterpret_cast<const float4*>(parts[n].O[row] + x);
        const float LSE = parts[n].LSE[row];
        const float rescale = flash::fast_exp2(top - fmaxf(top, LSE));
        top = fmaxf(top, LSE);
        const float weight = flash::fast_exp2(LSE - top);
        sum = fmaf(sum, rescale, weight);
        O.x = fmaf(O.x, rescale, weight * O_n.x);
        O.y = fmaf(O.y, rescale, weight * O_n.y);
        O.z = fmaf(O.z, rescale, weight * O_n.z);
        O.w = fmaf(O.w, rescale, weight * O_n.w);
    }
    const float normalise = sum == 0 ? 0.0f : 1 / sum;
    O = make_float4(O.x * normalise, O.y * normalise, O.z * normalise, O.w * normalise);
    return {O, top + log2f(sum)};
}

/// How the blocks are numbered: the splits of a tile are neighbours, and so are a K/V head's tiles.
struct Tiling {
    int Tr;     // tiles of packed rows for each K/V head
    int splits; // blocks for each tile
};

template <class T, int d>
__global__ __launch_bounds__(threads, blocks_per_sm<d>) void split_kv(
    const T* Q, const T* K, const T* V, T* O, float* LSE, Part<d>* parts, unsigned* finished,
    Tiling tiling, flash::PackedRows packed, int N_kv, float scale_log2, bool causal) {
    const int warp = threadIdx.x / 32;
    const int g = threadIdx.x % 32 / 4; // the lane's place in a fragment: rows g and g + 8 of C
    auto& smem = *flash::dynamic_shared<Shared<d>>();

    const int tile = blockIdx.x / tiling.splits; // of all K/V heads
    const int split = blockIdx.x % tiling.splits;
    const int kv_head = tile / tiling.Tr;
    const int i0 = tile % tiling.Tr * Br;                                   // a packed row
    const int64_t first_row = int64_t{kv_head} * packed.group * packed.N_q; // of the group
    Q += first_row * d;
    K += int64_t{kv_head} * N_kv * d;
    V += int64_t{kv_head} * N_kv * d;
    O += first_row * d;
    LSE += first_row;
    const int rows = min(Br, packed.group * packed.N_q - i0);

    // as in packed_heads: the keys that a row of the tile sees, if they exist
    const auto visible = [&](int row) {
        return causal ? packed.query(i0 + row) + (N_kv - packed.N_q) + 1 : N_kv;
    };
    const int whole = min(N_kv, visible(0)); // keys that every row sees
    // the tile's steps of 16 keys, and those of this split
    const int64_t steps = (max(0, visible(rows - 1)) + Bc - 1) / Bc;
    const int first = static_cast<int>(steps * split / tiling.splits);
    const int end = static_cast<int>(steps * (split + 1) / tiling.splits);

    Slot<d>(&ring)[slots] = smem.ring[warp];
    const auto start_KV = [&](int step, int slot) {
        if (step < end) {
            const int j0 = step * Bc;
            start_step(ring[slot].K, K + int64_t{j0} * d, N_kv - j0);
            start_step(ring[slot].V, V + int64_t{j0} * d, N_kv - j0);
        }
        flash::cp_async_commit(); // one group per step, even if it is empty: the waits count groups
    };
    for (int n = 0; n < ahead; ++n) {
        start_KV(first + warp + n * warps, n);
    }
    uint32_t Q_reg[d / 16][4];
    load_Q<T, d>(Q_reg, Q, packed, i0, rows);

    float m_reg[1][2] = {};        // of rows g and g + 8: what is subtracted from their scores
    float l_reg[1][4] = {};        // a C fragment
    float O_reg[1][d / 8][4] = {}; // C fragments: 16 rows x 8 columns each
    int slot = 0;
    for (int step = first + warp; step < end; step += warps) {
        const bool is_first = step == first + warp;
        flash::cp_async_wait<ahead - 1>(); // this lane's copies of the step have landed
        // so have those of the other lanes; and all have left the step before, whose slot is filled
        __syncwarp();
        start_KV(step + ahead * warps, (slot + ahead) % slots);

        const int j0 = step * Bc;
        float S_reg[1][Bc / 8][4]; // S, then P in its place
        multiply_QK<T, d>(S_reg, m_reg, Q_reg, ring[slot].K);
        if (j0 + Bc > whole) {
            flash::mask(S_reg[0], N_kv - j0, {visible(g) - j0, visible(g + 8) - j0});
        }
        if (is_first || !flash::all_negative(S_reg)) {
            flash::raise_maximum<T>(S_reg, m_reg, l_reg, O_reg, scale_log2, is_first);
        }
        flash::exponentials<T>(S_reg, scale_log2);
        multiply_PV<T, d>(O_reg, l_reg, S_reg, ring[slot].V);
        slot = (slot + 1) % slots;
    }

    __syncthreads(); // all warps have left the rings, in whose place the parts are
    store_part<T>(smem.merge.of_warp[warp], O_reg, m_reg, l_reg, scale_log2, rows);
    __syncthreads(); // the parts of all warps are there

    constexpr int chunks = d / 4; // of a row: a thread merges 4 columns of it at one go
    const Part<d>* from = smem.merge.of_warp;
    int count = warps;
    if (tiling.splits > 1) {
        Part<d>* const parts_of_tile = parts + int64_t{tile} * tiling.splits;
        Part<d>& part = parts_of_tile[split];
        for (int e = threadIdx.x; e < rows * chunks; e += threads) {
            const int row = e / chunks;
            const int x = e % chunks * 4;
            const Merged merged = merge(smem.merge.of_warp, warps, row, x);
            *reinterpret_cast<float4*>(part.O[row] + x) = merged.O;
            if (x == 0) {
                part.LSE[row] = merged.LSE;
            }
        }
        __syncthreads(); // all threads have stored what they have merged
        if (threadIdx.x == 0) {
            // release: the block's part is there before it counts as finished
            // acquire: the other parts are read after they count as finished
            const int others = flash::semaphore_fetch_add(&finished[tile]);
            smem.merge.is_last = others + 1 == tiling.splits;
        }
        __syncthreads(); // all threads know whether the block is the last one
        if (!smem.merge.is_last) {
            return;
        }
        from = parts_of_tile;
        count = tiling.splits;
    }
    for (int e = threadIdx.x; e < rows * chunks; e += threads) {
        const int row = e / chunks;
        const int x = e % chunks * 4;
        const Merged merged = merge(from, count, row, x);
        const int64_t place = packed.place(i0 + row);
        *reinterpret_cast<uint2*>(O + place * d + x) = make_uint2(
            flash::pack_O<T>(merged.O.x, merged.O.y), flash::pack_O<T>(merged.O.z, merged.O.w));
        if (x == 0) {
            LSE[place] = flash::ln_2 * merged.LSE;
        }
    }
}

/// Rows that one K/V head serves.
int64_t packed_rows(const flash::Problem& p) { return p.heads / p.kv_heads * p.q_len; }

/// Tiles of all K/V heads.
int64_t tiles_of(const flash::Problem& p) {
    return p.batch * p.kv_heads * flash::ceil_div(packed_rows(p), Br);
}

/// How many blocks share the keys of a tile.
template <int d> int splits_of(const flash::Problem& p) {
    // all blocks run at the same time
    const int64_t room = int64_t{flash::multiprocessors()} * blocks_per_sm<d> / tiles_of(p);
    // After N_kv / splits keys the last block reads `rows` rows of each part. A key, 2 d numbers of
    // 16 bits, has as many bytes as a row of O, d numbers of 32: the sum of both is least here.
    const auto rows = static_cast<double>(std::min<int64_t>(Br, packed_rows(p)));
    const auto pays = static_cast<int64_t>(std::sqrt(static_cast<double>(p.kv_len) / rows));
    // every warp has a step of its own
    const int64_t busy = flash::ceil_div(p.kv_len, warps * Bc);
    return static_cast<int>(std::max<int64_t>(std::min({room, pays, busy}), 1));
}

template <class T, int d>
void run(const flash::Problem& p, const T* Q, const T* K, const T* V, T* O, float* LSE,
         void* workspace) {
    const int N_kv = flash::as_int(p.kv_len, "kv-len");
    const int rows = flash::as_int(packed_rows(p), "heads / kv-heads x q-len");
    // neither is larger than `rows`
    const flash::PackedRows packed{static_cast<int>(p.heads / p.kv_heads),
                                   static_cast<int>(p.q_len)};
    const Tiling tiling{static_cast<int>(flash::ceil_div(rows, Br)), splits_of<d>(p)};
    const int tiles = flash::as_int(tiles_of(p), "batch x kv-heads x tiles of rows");
    Part<d>* parts = nullptr;
    unsigned* finished = nullptr;
    if (tiling.splits > 1) { // so there are no more blocks than all SMs get
        flash::Workspace memory(workspace);
        parts = memory.part<Part<d>>(int64_t{tiles} * tiling.splits, "the parts");
        finished = memory.part<unsigned>(tiles, "the parts' counters");
        flash::clear(finished, tiles);
    }
    flash::launch(split_kv<T, d>, tiles * tiling.splits, threads, sizeof(Shared<d>), Q, K, V, O,
                  LSE, parts, finished, tiling, packed, N_kv, p.scale * flash::log2_e, p.causal);
}

} // namespace

int64_t workspace_bytes(const flash::Problem& p) {
    int64_t bytes = 0;
    flash::for_head_dim<head_dims>(p.head_dim, [&](auto d) {
        if (const int splits = splits_of<d>(p); splits > 1) {
            bytes = flash::part_bytes<Part<d>>(tiles_of(p) * splits) +
                    flash::part_bytes<int>(tiles_of(p));
        }
    });
    return bytes;
}

template <class T>
void attention(const flash::Problem& p, const T* Q, const T* K, const T* V, T* O, float* LSE,
               void* workspace) {
    flash::for_head_dim<head_dims>(p.head_dim,
                                   [&](auto d) { run<T, d>(p, Q, K, V, O, LSE, workspace); });
}

template decltype(attention<flash::Half>) attention<flash::Half>;
template decltype(attention<flash::Bfloat16>) attention<flash::Bfloat16>;

} // namespace split_kv
