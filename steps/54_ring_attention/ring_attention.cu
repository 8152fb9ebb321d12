// ring_attention: the sequence is spread over several GPUs, and K and V go round.
//
// The idea: each of P ranks keeps its own rows of Q, and its own rows of K and V start a journey.
// In every step a rank computes attention with the K and V that it holds, while these already
// travel to the next rank, and those of the rank before arrive. After P steps every query has met
// every key. What a step finds is attention over some of the keys, with an LSE of its own; two such
// results can be merged, because LSE says how much weight stands behind each.
//
//      rank 0   own shard | that of rank P - 1 | that of rank P - 2 ..
//      travels  shard 0 ->  shard P - 1 ->       shard P - 2 -> ..
//
// With a causal mask, a rank that held the first rows would be done at once. So each rank holds an
// early and a late chunk of the sequence (common/ranks.hpp), and every step of every rank is a
// rectangle of equal area.
//
// Against overlap: the epilogue merges with what the steps before have left, in fp32; a tensor map
// covers a part of each head; and around the launch there is a loop over the ring's steps.
// Look at: which rows meet which in a step, and what may still be read when something arrives.
// Gained: a sequence that one GPU cannot hold.
// First published: Liu, Zaharia and Abbeel, "Ring Attention" (2023). The order of the chunks:
// zhuzilin's ring-flash-attention (2024), after Brandon et al., "Striped Attention" (2023).
#include "steps/54_ring_attention/ring_attention.hpp"

#include <algorithm>
#include <cfloat>
#include <cmath>

#include "common/cuda/cuda.hpp"
#include "common/cuda/derived/persistent.hpp"
#include "common/cuda/derived/ring.hpp"
#include "common/cuda/derived/store_tile.hpp"
#include "common/cuda/derived/wgmma_forward.hpp"
#include "common/cuda/ptx/mma.hpp"
#include "common/cuda/ptx/warpgroup.hpp"
#include "common/cuda/ptx/wgmma.hpp"

namespace ring_attention {
namespace {

template <class Tiles> using Shared = flash::PersistentShared<Tiles>;

constexpr int warpgroup = 128; // threads

template <int head_dim> struct Tiles {
    static constexpr int d = head_dim;
    static constexpr int stages = d == 64 ? 4 : 2; // tiles of K, and tiles of V, in shared memory
    static constexpr int Q_stages = d == 256 ? 1 : 2; // tiles of Q
    static constexpr int consumers = d == 64 ? 4 : 2;
    static constexpr int Br = 64 * consumers;      // queries
    static constexpr int Bc = d == 128 ? 128 : 64; // keys
    using Q = flash::SwizzledTile<d, 64>;          // of one consumer, and its O
    using KV = flash::SwizzledTile<d, Bc>;

    static constexpr int threads = warpgroup * (consumers + 1);
    // A thread's registers. All there is to distribute is what the block starts with: 65536 /
    // threads for each thread, rounded down to a multiple of 8.
    static constexpr int registers = 65536 / threads / 8 * 8;
    static constexpr int producer_registers = 24;
    static constexpr int consumer_registers = d == 64 ? 112 : 240;
    static_assert(consumers * consumer_registers + producer_registers <=
                  (consumers + 1) * registers);
};

struct Task : flash::Task {
    float* O_sum;      // of all steps so far, for the same rows as O
    int64_t head_rows; // of O_sum and LSE from one head to the next
    bool first, last;
};

/// After this step's keys: divides O by l, merges it with the steps before, and stores LSE and the
/// sum. i is the lane's first row in the head. Every step leaves O as far as it has come, because
/// rows are through at different steps: of rank 0 the early ones see no other rank's keys.
template <class T, int fragments>
__device__ void merge(float (&O_reg)[fragments][4], const flash::Rows& rows, const Task& task,
                      int head, int i) {
    constexpr int d = 8 * fragments;
    const int lane = threadIdx.x % 32, t = lane % 4; // columns 2t and 2t + 1 of a C fragment
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const bool inside = i + 8 * r < task.N_q;
        const int64_t row = head * task.head_rows + i + 8 * r;
        const float l = flash::row_sum(rows.l[r]);
        // Where scaled scores leave fp32, they count as its largest number: two infinities could
        // not be compared.
        const float m = fminf(fmaxf(rows.m[r] * task.scale_log2, -FLT_MAX), FLT_MAX);
        const float LSE = m * flash::ln_2 + logf(l);
        float LSE_before = inside && t == 0 && !task.first ? task.LSE[row] : -INFINITY;
        // the row's first lane reads it for all four, because it will overwrite it
        LSE_before = __shfl_sync(0xffffffff, LSE_before, lane - t);
        const float larger = fmaxf(LSE, LSE_before);
        const float base = larger == -INFINITY ? 0 : larger; // no key on either side: not inf - inf
        const float weight = expf(LSE - base), weight_before = expf(LSE_before - base);
        const float sum = weight + weight_before; // 1 to 2, or 0 if there was no key
        if (inside && t == 0) {
            task.LSE[row] = base + logf(sum);
        }

        const float factor = l == 0 ? 0 : weight / sum / l;
        const float factor_before = sum == 0 ? 0 : weight_before / sum;
        auto* const O_sum = reinterpret_cast<float2*>(task.O_sum + row * d + 2 * t);
        float2 before[fragments] = {};
        if (inside && !task.first) { // all of them are on their way before the first is used
#pragma unroll
            for (int n = 0; n < fragments; ++n) {
                before[n] = O_sum[4 * n];
            }
        }
#pragma unroll
        for (int n = 0; n < fragments; ++n) {
            const float2 O = {O_reg[n][2 * r] * factor + before[n].x * factor_before,
                              O_reg[n][2 * r + 1] * factor + before[n].y * factor_before};
            if (inside && !task.last) {
                O_sum[4 * n] = O;
            }
            O_reg[n][2 * r] = O.x;
            O_reg[n][2 * r + 1] = O.y;
        }
    }
    flash::limit_O<T>(O_reg);
}

/// A consumer's part in a tile of Q: 64 rows of O.
template <class T, class Tiles>
__device__ void compute(const Task& task, flash::Tile tile, Shared<Tiles>& smem, int Q_stage,
                        flash::RingPlace<Tiles::stages>& KV) {
    constexpr int d = Tiles::d, Bc = Tiles::Bc;
    using KV_tile = typename Tiles::KV;
    const int role = flash::warpgroup_of_thread();
    const int i0 = tile.i * Tiles::Br + role * Tiles::Q::rows;
    const int warp = threadIdx.x % warpgroup / 32, lane = threadIdx.x % 32;
    const int row = 16 * warp + lane / 4; // the lane's rows of the 64: this one, and row + 8
    const int loaded = visible_keys(task, tile.i * Tiles::Br, (tile.i + 1) * Tiles::Br);
    const int keys = visible_keys(task, i0, i0 + Tiles::Q::rows); // that some of the 64 rows see
    const int whole = visible_keys(task, i0);                     // that all of them see
    char* const Q_smem = smem.Q.tile[Q_stage][role].data;

    // Q, K: 16 elements of each row in a k16 step. V: 16 rows in a k16 step, its next 64 columns Bc
    // rows further on.
    const uint64_t Q_desc = flash::wgmma_descriptor(Q_smem, 0, 1024);
    const uint64_t K_desc = flash::wgmma_descriptor(smem.K.tile, 0, 1024);
    const uint64_t V_desc = flash::wgmma_descriptor(smem.V.tile, 128 * Bc, 1024);

    flash::Rows rows;
    float keep[2];
    float O_reg[d / 8][4] = {}; // C fragments: 16 rows x 8 columns each
    float S_reg[Bc / 8][4];     // C fragments: 16 rows x 8 keys each
    uint32_t P_reg[Bc / 16][4]; // A fragments: 16 rows x 16 keys each

    flash::RingPlace<Tiles::stages> before = KV; // the tile whose P V has not been asked for yet
    int j0 = 0;
    if (keys > 0) {      // the first tile, which has no P V beside it
        smem.K.wait(KV); // the tile of K has landed
        const uint64_t K_now = flash::advance(K_desc, KV.stage * KV_tile::bytes);
        flash::start_ABt<T, d>(S_reg, Q_desc, K_now); // S = Q K^T
        flash::wgmma_wait<0>(S_reg);
        smem.K.release(KV); // this warp's product no longer reads the tile of K
        if (Bc > whole) {   // an edge: some row does not see the whole tile
            flash::mask(S_reg, task.N_kv, visible_keys(task, i0 + row));
        }
        flash::softmax(S_reg, rows, keep, task.scale_log2); // O is still 0
        flash::pack_A<T>(P_reg, S_reg);
        smem.V.wait(KV); // the tile of V has landed, for the next P V
        KV.next();
        j0 = Bc;
    }
    for (; j0 < keys; j0 += Bc) {
        smem.K.wait(KV); // the tile of K has landed
        const uint64_t K_now = flash::advance(K_desc, KV.stage * KV_tile::bytes);
        const uint64_t V_before = flash::advance(V_desc, before.stage * KV_tile::bytes);
        flash::start_ABt<T, d>(S_reg, Q_desc, K_now); // S = Q K^T of this tile
        flash::start_AB<T>(O_reg, P_reg, V_before);   // O += P V of the tile before
        // S is there, while P V goes on
        flash::wgmma_wait<1>(S_reg);
        if (j0 + Bc > whole) { // an edge, as above
            flash::mask(S_reg, task.N_kv - j0, visible_keys(task, i0 + row) - j0);
        }
        const bool raised = flash::softmax(S_reg, rows, keep, task.scale_log2);
        smem.K.release(KV); // this warp's product no longer reads the tile of K
        // The tile of V has landed, for the next P V. This wait stands before the next one: without
        // a loop between them the compiler would wait for P V first, and compute exponentials
        // afterwards.
        smem.V.wait(KV);
        flash::wgmma_wait<0>(O_reg);
        if (raised) {
            flash::scale_rows(O_reg, keep);
        }
        flash::pack_A<T>(P_reg, S_reg); // now that P V no longer reads P_reg
        smem.V.release(before);         // this warp's product no longer reads the tile of V
        before = KV;
        KV.next();
    }
    if (keys > 0) { // the last P V, which has no S beside it
        const uint64_t V_before = flash::advance(V_desc, before.stage * KV_tile::bytes);
        flash::start_AB<T>(O_reg, P_reg, V_before);
        flash::wgmma_wait<0>(O_reg);
        smem.V.release(before); // as above
    }
    // no row here sees the other tiles; each is given back once it has landed
    for (; j0 < loaded; j0 += Bc) {
        smem.K.wait(KV);    // the tile of K has landed
        smem.K.release(KV); // the producer counts on this warp, too
        smem.V.wait(KV);    // the tile of V has landed
        smem.V.release(KV); // likewise
        KV.next();
    }

    merge<T>(O_reg, rows, task, tile.head, i0 + row);
    flash::named_barrier_sync(1 + role, warpgroup); // no warp's product still reads Q
    flash::store_tile<T, typename Tiles::Q>(task.O, {0, i0, 0, tile.head}, Q_smem, row, O_reg,
                                            1 + role);
    // every thread arrives: it has also read the tile's number
    flash::mbarrier_arrive(&smem.Q.empty[Q_stage]);
}

template <class T, class Tiles>
__global__ __launch_bounds__(Tiles::threads, 1) // one block on an SM
    void ring_attention(const __grid_constant__ Task task, unsigned* drawn) {
    auto& smem = *flash::dynamic_shared<Shared<Tiles>>();
    if (threadIdx.x == 0) {
        smem.Q.init(warpgroup * Tiles::consumers); // one arrival per thread
        smem.K.init(4 * Tiles::consumers);         // one arrival per warp
        smem.V.init(4 * Tiles::consumers);
        flash::fence_mbarrier_init();
    }
    __syncthreads(); // the barriers are there for all

    if (threadIdx.x / warpgroup == Tiles::consumers) { // the producer
        flash::give_registers<Tiles::producer_registers>();
        if (threadIdx.x % warpgroup == 0) {
            flash::produce(task, drawn, smem);
        }
        return;
    }
    flash::take_registers<Tiles::consumer_registers>();
    const int tiles = task.order.heads * task.order.Tr;
    flash::RingPlace<Tiles::Q_stages> Q;
    flash::RingPlace<Tiles::stages> KV;
    while (true) {
        smem.Q.wait(Q); // Q and the tile's number have landed
        const int number = smem.number[Q.stage];
        if (number >= tiles) {
            return;
        }
        compute<T>(task, flash::tile_of(number, task.order), smem, Q.stage, KV);
        Q.next();
    }
}

template <class T, class Tiles>
void run(const Rectangle& rectangle, const T* Q, const T* K, const T* V, T* O, float* LSE,
         float* O_sum, unsigned* drawn) {
    constexpr int smem_bytes = sizeof(Shared<Tiles>);
    const auto kernel = ring_attention<T, Tiles>;
    const int places = flash::resident_blocks(kernel, Tiles::threads, smem_bytes);
    const Task task{flash::make_task<Tiles>(rectangle.p, Q, K, V, O, LSE, places, rectangle.Q_rows,
                                            rectangle.KV_rows),
                    O_sum, rectangle.Q_rows, rectangle.first, rectangle.last};
    const int blocks = std::min(places, task.order.blocks());
    flash::clear(drawn, 1);
    flash::launch(kernel, blocks, Tiles::threads, smem_bytes, task, drawn);
}

/// Which queries of a rank's shard meet which keys of another's: some of the rows, from
/// `first_query` on, and the first `keys` rows.
struct Meeting {
    int64_t first_query, queries, keys;
    bool causal;
};
Meeting meeting(const flash::Shard& own, const flash::Shard& source, bool causal) {
    if (!causal) {
        return {0, own.rows(), source.rows(), false};
    }
    if (source.rank == own.rank) { // its two chunks are in the order of the sequence
        return {0, own.rows(), own.rows(), true};
    }
    if (source.rank < own.rank) { // our chunks lie between the source's
        return {0, own.rows(), source.early_rows(), false};
    }
    return {own.early_rows(), own.late_rows(), source.rows(), false}; // the source's between ours
}

/// Two shards at most have room, because when a third one arrives the first is no longer needed.
int rooms_of(const flash::Shard& own) { return std::min(own.ranks - 1, 2); }

/// Elements of K, and of V, in one rank's shard.
int64_t KV_size(const flash::Problem& p, const flash::Shard& shard) {
    return p.batch * p.kv_heads * shard.rows() * p.head_dim;
}

/// The most that any rank's shard has.
int64_t largest_KV_size(const flash::Problem& p, const flash::Shard& own) {
    int64_t largest = 0;
    for (int rank = 0; rank < own.ranks; ++rank) {
        largest = std::max(largest, KV_size(p, own.of(rank)));
    }
    return largest;
}

} // namespace

template <class T>
void add(const Rectangle& rectangle, const T* Q, const T* K, const T* V, T* O, float* LSE,
         float* O_sum, unsigned* drawn) {
    flash::for_head_dim<head_dims>(rectangle.p.head_dim, [&](auto d) {
        run<T, Tiles<d>>(rectangle, Q, K, V, O, LSE, O_sum, drawn);
    });
}

template <class T>
void attention_of_rank(const flash::Problem& p, const flash::Shard& own, const T* Q, const T* K,
                       const T* V, T* O, float* LSE, void* workspace, flash::Exchange& exchange) {
    if (p.q_len != p.kv_len) {
        throw flash::Error("a ring needs q-len = kv-len, because a rank holds the same rows of Q, "
                           "K and V");
    }
    flash::Workspace parts(workspace);
    auto* const drawn = parts.part<unsigned>(1, "the number of drawn tiles");
    auto* const O_sum = parts.part<float>(p.batch * p.heads * own.rows() * p.head_dim, "sums of O");
    flash::RoomForKV rooms[2] = {};
    for (int room = 0; room < rooms_of(own); ++room) {
        rooms[room].K = parts.part<T>(largest_KV_size(p, own), "K of another rank");
        rooms[room].V = parts.part<T>(largest_KV_size(p, own), "V of another rank");
    }

    const auto bytes_of = [&](const flash::Shard& shard) { return KV_size(p, shard) * sizeof(T); };
    flash::ShardOfKV now{K, V, bytes_of(own)};
    for (int step = 0; step < own.ranks; ++step) {
        // K and V have travelled `step` ranks
        const flash::Shard source = own.of((own.rank - step + own.ranks) % own.ranks);
        const bool last = step == own.ranks - 1;
        if (!last) {
            const flash::Shard next = own.of((source.rank - 1 + own.ranks) % own.ranks);
            rooms[step % 2].bytes = bytes_of(next);
            exchange.start(now, rooms[step % 2]);
        }
        const Meeting m = meeting(own, source, p.causal);
        if (m.queries > 0 && m.keys > 0) {
            Rectangle rectangle{p, own.rows(), source.rows(), step == 0, last};
            rectangle.p.q_len = m.queries;
            rectangle.p.kv_len = m.keys;
            rectangle.p.causal = m.causal;
            const int64_t from = m.first_query * p.head_dim;
            add(rectangle, Q + from, static_cast<const T*>(now.K), static_cast<const T*>(now.V),
                O + from, LSE + m.first_query, O_sum + from, drawn);
        }
        if (!last) {
            now = exchange.finish(); // the next shard has arrived, and this one has left
        }
    }
}

int64_t workspace_bytes_of_rank(const flash::Problem& p, const flash::Shard& own) {
    // K and V are elements of 16 bits
    return flash::part_bytes<unsigned>(1) +
           flash::part_bytes<float>(p.batch * p.heads * own.rows() * p.head_dim) +
           2 * rooms_of(own) * flash::part_bytes<uint16_t>(largest_KV_size(p, own));
}

template <class T>
void attention(const flash::Problem& p, const T* Q, const T* K, const T* V, T* O, float* LSE,
               void* workspace) {
    auto* const drawn = flash::Workspace(workspace).part<unsigned>(1, "the number of drawn tiles");
    add({p, p.q_len, p.kv_len, true, true}, Q, K, V, O, LSE, nullptr, drawn);
}

int64_t workspace_bytes(const flash::Problem&) { return flash::part_bytes<unsigned>(1); }

template decltype(attention<flash::Half>) attention<flash::Half>;
template decltype(attention<flash::Bfloat16>) attention<flash::Bfloat16>;
template decltype(attention_of_rank<flash::Half>) attention_of_rank<flash::Half>;
template decltype(attention_of_rank<flash::Bfloat16>) attention_of_rank<flash::Bfloat16>;
template decltype(add<flash::Half>) add<flash::Half>;
template decltype(add<flash::Bfloat16>) add<flash::Bfloat16>;

} // namespace ring_attention
