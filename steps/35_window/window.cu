// window: tiles outside a window of keys are never fetched, and a sink is a score that owns no key.
//
// The idea: query i sees its own key and the W - 1 keys before it, so of K and V a tile of Q needs
// a band that is a little wider than W, however long the sequence is. The band has two edges, and
// both cut through tiles. A sink is a logit that each head has learned: it joins the sum of every
// row as a key's score would, but it has no row of V. At d = 64 and W = 128, for four warpgroups:
//
//      tiles of 64 keys     0     1     2     3     4     5
//      rows   0 -  63     lower whole upper
//      rows  64 - 127           lower whole upper
//      rows 128 - 191                 lower whole upper
//      rows 192 - 255                       lower whole upper
//
// Against overlap: the producer begins at first_key, and each warpgroup passes the tiles below its
// own window, as it passed those above it. There is a second mask. When all keys are through, the
// sink comes in, by one more step of the online softmax. Tiles, rings and the loop are overlap's.
// From persistent_blocks, by way of derived/persistent.hpp: the shared memory and the producer.
// Look at: first_key, and who begins where.
// Gained: at d = 64 and N = 16384 a window of 128 keys takes about a twentieth of a causal kernel's
// time on an H200. Tiles of keys fetched: six in place of N / 64.
// First published: Longformer (2020), for windows; StreamingLLM (2023) and gpt-oss (2025), for
// sinks.
#include "steps/35_window/window.hpp"

#include <algorithm>

#include "common/cuda/cuda.hpp"
#include "common/cuda/derived/persistent.hpp"
#include "common/cuda/derived/ring.hpp"
#include "common/cuda/derived/store_tile.hpp"
#include "common/cuda/derived/wgmma_forward.hpp"
#include "common/cuda/ptx/mma.hpp"
#include "common/cuda/ptx/warpgroup.hpp"
#include "common/cuda/ptx/wgmma.hpp"

namespace window {
namespace {

template <class Tiles> using Shared = flash::PersistentShared<Tiles>;
constexpr int warpgroup = 128; // threads

struct Task : flash::Task {
    int window;        // W, or N_kv where there is none: no query sees more keys
    const float* sink; // of the H heads of a batch entry, or null
    int H;
};

/// The first key that query i sees: its own is the last of W. The producer asks, too, for the first
/// row of a block. TMA fetches from any key on, so tiles need not begin at multiples of Bc.
__device__ inline int first_key(const Task& task, int i) {
    return max(visible_keys(task, i) - task.window, 0);
}

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

/// The lower edge: row g sees no key before column `from`, and row g + 8 none of 8 more.
template <int fragments> __device__ void mask_before(float (&S_reg)[fragments][4], int from) {
    const int t = threadIdx.x % 4;
#pragma unroll
    for (int n = 0; n < fragments; ++n) {
        for (int c = 0; c < 4; ++c) {
            if (8 * n + 2 * t + c % 2 < from + c / 2 * 8) {
                S_reg[n][c] = -INFINITY;
            }
        }
    }
}

/// After all keys: the sink joins as one more score of each row, whose V is 0; then O is divided by
/// l, and LSE stored. i is the lane's first row in the head.
template <class T, int fragments>
__device__ void finish(float (&O_reg)[fragments][4], const flash::Rows& rows, const Task& task,
                       int head, int i) {
    // not scaled, and in natural units, in which every finite sink has room
    const float sink = task.sink == nullptr ? -INFINITY : task.sink[head % task.H];
    float normalise[2];
    for (int r = 0; r < 2; ++r) {
        const float m = rows.m[r] * task.scale_log2 * flash::ln_2, m_new = fmaxf(m, sink);
        const float keep = flash::fast_exp2((m - m_new) * flash::log2_e);
        const float keys = flash::row_sum(rows.l[r]);
        const float l = keys * keep + flash::fast_exp2((sink - m_new) * flash::log2_e);
        const bool blind = keys == 0; // a row that sees no key: O = 0, and the sink alone is LSE
        normalise[r] = blind ? 0.0f : keep / l;
        if (threadIdx.x % 4 == 0 && i + 8 * r < task.N_q) {
            task.LSE[int64_t{head} * task.N_q + i + 8 * r] = blind ? sink : m_new + logf(l);
        }
    }
    flash::scale_rows(O_reg, normalise);
    flash::limit_O<T>(O_reg);
}

/// A warpgroup that sees nothing of a tile of keys gives it back once it has landed.
template <class Tiles>
__device__ void pass(Shared<Tiles>& smem, flash::RingPlace<Tiles::stages>& KV) {
    smem.K.wait(KV);    // the tile of K has landed
    smem.K.release(KV); // the producer counts on this warp, too
    smem.V.wait(KV);    // the tile of V has landed
    smem.V.release(KV); // likewise
    KV.next();
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
    const int keys = visible_keys(task, i0, i0 + Tiles::Q::rows);  // that some of the 64 rows see
    const int whole = visible_keys(task, i0);                      // that all of them see
    const int first = first_key(task, i0);                         // that some of them see
    const int complete = first_key(task, i0 + Tiles::Q::rows - 1); // that all of them see
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

    int j0 = first_key(task, tile.i * Tiles::Br);       // where the producer begins
    for (; j0 < loaded && j0 + Bc <= first; j0 += Bc) { // below the window of these 64 rows
        pass<Tiles>(smem, KV);
    }
    flash::RingPlace<Tiles::stages> before = KV; // the tile whose P V has not been asked for yet
    if (keys > 0) {                              // the first tile, which has no P V beside it
        smem.K.wait(KV);                         // the tile of K has landed
        const uint64_t K_now = flash::advance(K_desc, KV.stage * KV_tile::bytes);
        flash::start_ABt<T, d>(S_reg, Q_desc, K_now); // S = Q K^T
        flash::wgmma_wait<0>(S_reg);
        smem.K.release(KV);    // this warp's product no longer reads the tile of K
        if (j0 + Bc > whole) { // the upper edge: some row does not see the end of the tile
            flash::mask(S_reg, task.N_kv - j0, visible_keys(task, i0 + row) - j0);
        }
        if (j0 < complete) { // the lower edge: some row does not see its beginning
            mask_before(S_reg, visible_keys(task, i0 + row) - task.window - j0);
        }
        flash::softmax(S_reg, rows, keep, task.scale_log2); // O is still 0
        flash::pack_A<T>(P_reg, S_reg);
        smem.V.wait(KV); // the tile of V has landed, for the next P V
        KV.next();
        j0 += Bc;
    }
    for (; j0 < keys; j0 += Bc) {
        smem.K.wait(KV); // the tile of K has landed
        const uint64_t K_now = flash::advance(K_desc, KV.stage * KV_tile::bytes);
        const uint64_t V_before = flash::advance(V_desc, before.stage * KV_tile::bytes);
        flash::start_ABt<T, d>(S_reg, Q_desc, K_now); // S = Q K^T of this tile
        flash::start_AB<T>(O_reg, P_reg, V_before);   // O += P V of the tile before
        // S is there, while P V goes on
        flash::wgmma_wait<1>(S_reg);
        if (j0 + Bc > whole) { // the upper edge, as above
            flash::mask(S_reg, task.N_kv - j0, visible_keys(task, i0 + row) - j0);
        }
        if (j0 < complete) { // the lower edge
            mask_before(S_reg, visible_keys(task, i0 + row) - task.window - j0);
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
    for (; j0 < loaded; j0 += Bc) { // above the window
        pass<Tiles>(smem, KV);
    }

    finish<T>(O_reg, rows, task, tile.head, i0 + row);
    flash::named_barrier_sync(1 + role, warpgroup); // no warp's product still reads Q
    flash::store_tile<T, typename Tiles::Q>(task.O, {0, i0, 0, tile.head}, Q_smem, row, O_reg,
                                            1 + role);
    // every thread arrives: it has also read the tile's number
    flash::mbarrier_arrive(&smem.Q.empty[Q_stage]);
}

template <class T, class Tiles>
__global__ __launch_bounds__(Tiles::threads, 1) // one block on an SM
    void window(const __grid_constant__ Task task, unsigned* drawn) {
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
void run(const flash::Problem& p, const T* Q, const T* K, const T* V, const float* sink, T* O,
         float* LSE, void* workspace) {
    constexpr int smem_bytes = sizeof(Shared<Tiles>);
    const auto kernel = window<T, Tiles>;
    const int places = flash::resident_blocks(kernel, Tiles::threads, smem_bytes);
    const int64_t window = p.window > 0 ? std::min(p.window, p.kv_len) : p.kv_len;
    const Task task = {flash::make_task<Tiles>(p, Q, K, V, O, LSE, places),
                       static_cast<int>(window), sink, static_cast<int>(p.heads)};
    const int blocks = std::min(places, task.order.blocks());
    auto* drawn = flash::Workspace(workspace).part<unsigned>(1, "the number of drawn tiles");
    flash::clear(drawn, 1);
    flash::launch(kernel, blocks, Tiles::threads, smem_bytes, task, drawn);
}

} // namespace

int64_t workspace_bytes(const flash::Problem&) { return flash::part_bytes<unsigned>(1); }

template <class T>
void attention(const flash::Problem& p, const T* Q, const T* K, const T* V, const float* sink, T* O,
               float* LSE, void* workspace) {
    flash::for_head_dim<head_dims>(
        p.head_dim, [&](auto d) { run<T, Tiles<d>>(p, Q, K, V, sink, O, LSE, workspace); });
}

template decltype(attention<flash::Half>) attention<flash::Half>;
template decltype(attention<flash::Bfloat16>) attention<flash::Bfloat16>;

} // namespace window
