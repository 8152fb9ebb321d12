// backward_packed: gradients of a batch that is one line of tokens.
//
// The idea: whose row is it? Three kernels ask that here, and dQ's sum is in whole tiles, so each
// sequence needs a place for its last one. So give every sequence as many tiles of 128 rows as it
// needs, or one more. Where they begin, the table says already, without a sum over the sequences
// before it:
//
//      first tile of sequence b  =  cu_seqlens[b] / 128 + b
//
//      cu_seqlens            0   20              90  90               150
//      tiles of 32 rows      | 0 |  1    2    3   | 4 |  5    6    7   |     20 / 32 + 1 = 1
//      used                    x    x    x    x          x    x              90 / 32 + 2 = 4
//
// These never fall, so a search by halves finds whose tile it is. The host knows how many there
// are, total / 128 + B: that is the launch, and the rows of the workspace.
//
// Parent: backward_late_dq, whose loop and writer are in common/cuda/derived. A block makes a Task
// of its own, that of its sequence, and the loop does not notice. Kernels before and after the loop
// ask where a row is, and maps end at a sequence's end, as in packed_sequences.
// Look at: Table::at, and a sequence without queries, whose keys take one step all the same.
// Gained: on texts of 512 tokens at d = 64 1.13 to 1.21 times FlashAttention-4, on an H200. Steps
// are those of the sequences, where padding has those of the longest one for each.
// First published: FlashAttention 2 (2023), gradients of lines, and this place of padded rows.
#include "steps/49_backward_packed/backward_packed.hpp"

#include <algorithm>

#include "common/cuda/cuda.hpp"
#include "common/cuda/derived/around_backward.hpp"
#include "common/cuda/derived/backward_steps.hpp"
#include "common/cuda/derived/dq_writer.hpp"
#include "common/cuda/derived/late_dq.hpp"
#include "common/cuda/derived/line_map.hpp"
#include "common/cuda/derived/ring.hpp"
#include "common/cuda/derived/store_tile.hpp"
#include "common/cuda/derived/tile_order.hpp"
#include "common/cuda/ptx/mbarrier.hpp"
#include "common/cuda/ptx/mma.hpp"
#include "common/cuda/ptx/reduction.hpp"
#include "common/cuda/ptx/tma.hpp"
#include "common/cuda/ptx/unpack.hpp"
#include "common/cuda/ptx/warpgroup.hpp"

namespace backward_packed {
namespace {

using namespace flash::backward; // what backward_wgmma and backward_late_dq have around their loops
using flash::packed::far;
using flash::packed::Sequence;

constexpr int tile_rows = 128; // each sequence begins with a new tile

/// A row where sequences have whole tiles.
struct Row {
    int b; // the sequence that has the tile
    int i; // the row is its row i, or padding
    Sequence of;
    __device__ bool padding() const { return i < 0 || i >= of.length; }
    __device__ int64_t token() const { return of.end - of.length + i; } // its row on the line
    __device__ Row plus(int rows) const { return {b, i + rows, of}; }
};

/// A line's sequences in tiles. Sequence b has those from cu_seqlens[b] / tile_rows + b on, up to
/// the next one's: as many as it needs, or one more.
struct Table {
    const int* cu_seqlens;
    int total, sequences;

    /// All rows of the tiles.
    __host__ __device__ int padded() const { return (total / tile_rows + sequences) * tile_rows; }

    __device__ Sequence of(int b) const { return flash::packed::sequence(cu_seqlens, b, total); }
    __device__ int first_row(int b) const {
        const int begin = min(max(cu_seqlens[b], 0), total);
        return (begin / tile_rows + b) * tile_rows;
    }

    /// What is at a row of these: a search for the last sequence that begins there or before.
    __device__ Row at(int row) const {
        int b = 0, behind = sequences;
        while (behind - b > 1) {
            const int middle = (b + behind) / 2;
            if (first_row(middle) <= row) {
                b = middle;
            } else {
                behind = middle;
            }
        }
        return {b, row - first_row(b), of(b)};
    }
};

/// What the host knows.
struct Line {
    flash::TensorMap Q, K, V, dO, dK, dV; // line_map
    const flash::TwoRows* Rows;           // (heads, queries.padded())
    float* dQ_sum;                        // likewise, in the order of the fragments
    Table queries, keys;
    flash::TileOrder order; // of tiles of K
    int group;              // query heads to one K/V head
    float scale;
    bool causal;
};

/// What the mask depends on. It lies in shared memory, because in registers it would cost a quarter
/// more instructions: they do not change in the loop over heads, so nvcc would compare all keys
/// with all queries ahead of it, for every tile, and not only for those at an edge.
struct Mask {
    int N_q, N_kv; // of the sequence
    bool causal;
};

template <class Tiles> struct Shared : LateShared<Tiles> { Mask mask; };

/// What the loop asks of a Task: here it is a sequence's.
struct Task {
    const Line& line;
    const int &N_q, &N_kv; // Mask's
    const bool& causal;
    int q_end, k_end;           // where the sequence ends on the lines
    const flash::TwoRows* Rows; // they begin with the sequence's, of the first head
    float* dQ_sum;
    int padded, group;
    float scale;
};

template <class Tiles>
__device__ Task task_for(const Line& line, const Row& key, const Mask& mask) {
    const int64_t row = line.queries.first_row(key.b);
    return {.line = line,
            .N_q = mask.N_q,
            .N_kv = mask.N_kv,
            .causal = mask.causal,
            .q_end = line.queries.of(key.b).end,
            .k_end = key.of.end,
            .Rows = line.Rows + row / 2,
            .dQ_sum = line.dQ_sum + row * Tiles::d,
            .padded = line.queries.padded(),
            .group = line.group,
            .scale = line.scale};
}

/// The producer's part, as flash::backward::fetch, on lines.
template <class Tiles>
__device__ void fetch(const Task& task, const Steps& steps, Shared<Tiles>& smem) {
    constexpr int panels = Tiles::d / 64; // of a head
    const Line& line = task.line;
    flash::mbarrier_expect_tx(&smem.KV_full, sizeof(smem.K) + sizeof(smem.V));
    for (int w = 0; w < Tiles::consumers; ++w) {
        const int x = far - task.N_kv + steps.j0 + 64 * w;
        const int key[] = {0, x, steps.kv_head * panels, task.k_end, far};
        flash::tma_load<5>(smem.K[w].data, line.K, key, &smem.KV_full);
        flash::tma_load<5>(smem.V[w].data, line.V, key, &smem.KV_full);
    }
    flash::RingPlace<Tiles::stages> at;
    for (int tile = 0, i0 = steps.i0; tile < steps.tiles; ++tile, i0 += steps.stride) {
        for (int head = steps.head; head < steps.head + steps.group; ++head, at.next()) {
            uint64_t* full = &smem.ring.full[at.stage];
            auto& stage = smem.ring.tile[at.stage];
            const int query[] = {0, far - task.N_q + i0, head * panels, task.q_end, far};
            smem.ring.acquire(at); // all warps have read the stage's tiles and rows
            flash::mbarrier_expect_tx(full, stage.bytes);
            flash::tma_load<5>(stage.Q.data, line.Q, query, full);
            flash::tma_load<5>(stage.dO.data, line.dO, query, full);
            flash::bulk_load(stage.rows, task.Rows + (int64_t{head} * task.padded + i0) / 2,
                             sizeof(stage.rows), full);
        }
    }
}

/// dK and dV leave as ever, on lines. The map cuts off what is behind the sequence's last key.
template <class T, class Tiles>
__device__ void store_gradients(const Task& task, const Steps& steps, Shared<Tiles>& smem,
                                const Place<Tiles>& place, float (&dK_reg)[Tiles::d / 8][4],
                                const float (&dV_reg)[Tiles::d / 8][4], int barrier) {
    using KV = typename Tiles::KV;
    const int role = place.role, x = far - task.N_kv + steps.j0 + 64 * role;
    const int key[] = {0, x, steps.kv_head * (Tiles::d / 64), task.k_end, far};
    flash::scale_rows(dK_reg, {task.scale, task.scale});
    flash::store_tile<T, KV>(task.line.dK, key, smem.K[role].data, place.row, dK_reg,
                             barrier + role);
    flash::store_tile<T, KV>(task.line.dV, key, smem.V[role].data, place.row, dV_reg,
                             barrier + role);
}

/// dK = scale dS^T Q, dV = P^T dO, dQ_sum += dS K: one block per tile of K and V, along the group's
/// tiles of Q. K/V heads come eight at a time, all eight of a tile side by side: so L2 holds what
/// the blocks that run together read.
template <class T, class Tiles>
__global__ __launch_bounds__(Tiles::threads, 1) void gradients(const __grid_constant__ Line line) {
    static_assert(Tiles::Bc == tile_rows && tile_rows % Tiles::Br == 0);
    auto& smem = *flash::dynamic_shared<Shared<Tiles>>();
    const flash::Tile K = flash::tile_of(blockIdx.x, line.order);
    const int tile = line.order.Tr - 1 - K.i; // with a mask a sequence's tile 0 is the longest
    const Row key = line.keys.at(tile * tile_rows);
    if (key.padding()) { // the sequence does not need this tile
        return;
    }
    if (threadIdx.x == 0) {
        flash::mbarrier_init(&smem.KV_full, 1);
        smem.ring.init(4 * Tiles::consumers); // one arrival per warp
        smem.dQ.init();
        flash::fence_mbarrier_init();
        smem.mask = {line.queries.of(key.b).length, key.of.length, line.causal};
    }
    __syncthreads(); // the barriers are there for all, and so is the mask
    const Task task = task_for<Tiles>(line, key, smem.mask);
    // Without queries there is one step, for a tile of padding, and dK = dV = 0.
    const Steps steps(K.head, key.i / Tiles::Bc, Tiles::Bc, Tiles::Br, task);
    if (threadIdx.x / warpgroup == Tiles::consumers) {
        flash::give_registers<Tiles::producer_registers>();
        if (threadIdx.x % warpgroup == 0) {
            fetch(task, steps, smem);
        } else if (threadIdx.x % warpgroup == 32) {
            // of another warp: neither may hold up the other
            add_dQ(task, steps, smem.dQ);
        }
    } else {
        flash::take_registers<Tiles::consumer_registers>();
        compute<T, Tiles>(task, steps, smem);
    }
}

/// LSE and delta of every row, and zeros for dQ, in the tiles that sequences need, and in tile 0 of
/// each: as before_backward. A block has 32 rows, with four lanes per row.
template <class T>
__global__ void before(const T* O, const float* LSE, const T* dO, flash::TwoRows* Rows,
                       float* dQ_sum, Table queries, int heads, int d) {
    const int blocks = queries.padded() / 32; // of a head
    const int head = blockIdx.x / blocks;
    const int64_t row = int64_t{blockIdx.x} * 32 + threadIdx.x / 4;
    const Row first = queries.at(blockIdx.x % blocks * 32), own = first.plus(threadIdx.x / 4);
    const int tile_begin = first.i / tile_rows * tile_rows;
    if (tile_begin > 0 && tile_begin >= first.of.length) { // the sequence does not need the tile
        return;
    }
    float delta = 0;
    for (int x = 8 * (threadIdx.x % 4); x < d && !own.padding(); x += 32) {
        const int64_t from = (own.token() * heads + head) * d + x;
        delta += flash::dot<T>(*reinterpret_cast<const uint4*>(dO + from),
                               *reinterpret_cast<const uint4*>(O + from));
    }
    delta = flash::row_sum(delta);
    if (threadIdx.x % 4 == 0) {
        const int64_t of_LSE = int64_t{head} * queries.total + own.token();
        Rows[row / 2].LSE_log2[row % 2] = own.padding() ? 0.0f : LSE[of_LSE] * flash::log2_e;
        Rows[row / 2].delta[row % 2] = delta;
    }
    for (int x = 4 * (threadIdx.x % 4); x < d; x += 16) {
        *reinterpret_cast<float4*>(dQ_sum + row * d + x) = make_float4(0, 0, 0, 0);
    }
}

/// Eight columns of dQ, rounded, from column `x` on: at its place on the line, unless `row` is
/// padding.
template <class T, int d>
__device__ void store_dQ(T* dQ, const Row& row, int64_t heads, int head, int x,
                         const float (&sum)[8], float scale) {
    if (!row.padding()) {
        *reinterpret_cast<uint4*>(dQ + (row.token() * heads + head) * d + x) =
            flash::pack_8<T>(sum, scale);
    }
}

/// dQ on its line, 32 rows per block: as after_transposed where the sum is transposed (d = 64), or
/// as after_backward.
template <class T, int d>
__global__ void after(const float* dQ_sum, T* dQ, Table queries, int heads, float scale) {
    const int blocks = queries.padded() / 32; // of a head
    const int head = blockIdx.x / blocks, i0 = blockIdx.x % blocks * 32;
    const Row first = queries.at(i0);
    if (first.padding()) { // and so are all 32
        return;
    }
    const float* const sum = dQ_sum + int64_t{head} * queries.padded() * d;
    float rows[2][8];
    if constexpr (d == 64) { // a thread makes 8 columns of rows i and i + 1
        const int t = threadIdx.x % 4, half = threadIdx.x / 4 % 2; // of the fragment's 16 columns
        const int warp = threadIdx.x / 8 % 4;                      // that had these columns
        const int i = i0 + threadIdx.x / 32 * 8 + 2 * t;
        const float* C = sum + int64_t{i / 128 * 128} * d; // of a tile of 128 queries
        C += (16 * warp + i % 128 / 8) * 128 + 4 * t + 2 * half;
#pragma unroll
        for (int g = 0; g < 8; ++g) {
            const float2 both = *reinterpret_cast<const float2*>(C + 16 * g); // lane 4g + t's
            rows[0][g] = both.x;
            rows[1][g] = both.y;
        }
        const int x = 16 * warp + 8 * half;
        store_dQ<T, d>(dQ, first.plus(i - i0), heads, head, x, rows[0], scale);
        store_dQ<T, d>(dQ, first.plus(i - i0 + 1), heads, head, x, rows[1], scale);
    } else { // or 8 columns at a time of rows i and i + 8
        const int i = i0 + threadIdx.x / 64 * 16 + threadIdx.x % 8;
        for (int x = threadIdx.x % 64 / 8 * 8; x < d; x += 64) {
            flash::rows_of_sum(rows, sum + int64_t{i / 16 * 16} * d + 16 * x, i % 8);
            store_dQ<T, d>(dQ, first.plus(i - i0), heads, head, x, rows[0], scale);
            store_dQ<T, d>(dQ, first.plus(i - i0 + 8), heads, head, x, rows[1], scale);
        }
    }
}

/// Rows of all heads in the workspace, where sequences have whole tiles.
int64_t rows_of(const flash::Problem& p, const flash::PackedSequences& line) {
    return p.heads * (line.total_q / tile_rows + p.batch) * tile_rows;
}

template <class T, class Tiles>
void run(const flash::Problem& p, const flash::PackedSequences& line, const T* Q, const T* K,
         const T* V, const T* O, const float* LSE, const T* dO, T* dQ, T* dK, T* dV,
         void* workspace) {
    constexpr int d = Tiles::d;
    using Q_tile = typename Tiles::Q;
    using KV_tile = typename Tiles::KV;
    if (std::max(line.total_q, line.total_kv) > far) {
        throw flash::Error("a line has at most 2^30 rows");
    }
    const int64_t rows = rows_of(p, line);
    const int heads = static_cast<int>(p.heads), kv_heads = static_cast<int>(p.kv_heads),
              sequences = flash::as_int(p.batch * tile_rows, "batch x 128") / tile_rows;
    const Table queries{line.cu_seqlens_q, static_cast<int>(line.total_q), sequences},
        keys{line.cu_seqlens_kv, static_cast<int>(line.total_kv), sequences};
    const int blocks_of_rows = flash::as_int(rows / 32, "heads x tiles of Q"),
              tiles = keys.padded() / tile_rows;
    flash::as_int(int64_t{kv_heads} * tiles, "heads x tiles of K");
    const flash::TileOrder order = {kv_heads, std::min(8, kv_heads), tiles};
    flash::Workspace memory(workspace);
    auto* const Rows = memory.part<flash::TwoRows>(rows / 2, "LSE and delta");
    auto* const dQ_sum = memory.part<float>(rows * d, "the sum of dQ");
    flash::launch(before<T>, blocks_of_rows, 128, 0, O, LSE, dO, Rows, dQ_sum, queries, heads, d);
    flash::launch(gradients<T, Tiles>, order.blocks(), Tiles::threads, sizeof(Shared<Tiles>),
                  Line{.Q = flash::packed::line_map<Q_tile>(Q, line.total_q, heads),
                       .K = flash::packed::line_map<KV_tile>(K, line.total_kv, kv_heads),
                       .V = flash::packed::line_map<KV_tile>(V, line.total_kv, kv_heads),
                       .dO = flash::packed::line_map<Q_tile>(dO, line.total_q, heads),
                       .dK = flash::packed::line_map<KV_tile>(dK, line.total_kv, kv_heads),
                       .dV = flash::packed::line_map<KV_tile>(dV, line.total_kv, kv_heads),
                       .Rows = Rows,
                       .dQ_sum = dQ_sum,
                       .queries = queries,
                       .keys = keys,
                       .order = order,
                       .group = heads / kv_heads,
                       .scale = p.scale,
                       .causal = p.causal});
    flash::launch(after<T, d>, blocks_of_rows, 128, 0, dQ_sum, dQ, queries, heads, p.scale);
}

} // namespace

int64_t workspace_bytes(const flash::Problem& p, const flash::PackedSequences& line) {
    const int64_t rows = rows_of(p, line);
    return flash::part_bytes<flash::TwoRows>(rows / 2) +
           flash::part_bytes<float>(rows * p.head_dim);
}

template <class T>
void attention_backward(const flash::Problem& p, const flash::PackedSequences& line, const T* Q,
                        const T* K, const T* V, const T* O, const float* LSE, const T* dO, T* dQ,
                        T* dK, T* dV, void* workspace) {
    flash::for_head_dim<head_dims>(p.head_dim, [&](auto d) {
        run<T, Tiles<d>>(p, line, Q, K, V, O, LSE, dO, dQ, dK, dV, workspace);
    });
}

template decltype(attention_backward<flash::Half>) attention_backward<flash::Half>;
template decltype(attention_backward<flash::Bfloat16>) attention_backward<flash::Bfloat16>;

} // namespace backward_packed
