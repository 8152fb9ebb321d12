// overlap: P V of one tile runs while the softmax of the next is computed.
//
// The idea: in persistent_blocks a warpgroup waits for each of its products at once, and the tensor
// cores work only as long as some other warpgroup has a product under way. Here its own products go
// on while it computes exponentials: S of the next tile is asked for before P V of this one, and P
// V is waited for only when the next P is ready.
//
//      persistent_blocks   S0 | softmax | P V0 | S1 | softmax | P V1 | ..
//      here                S1 and P V0 | softmax of S1 | S2 and P V1 | softmax of S2 ..
//
// Against persistent_blocks: the consumers' loop runs one tile behind itself, and O is rescaled
// after P V. Each tile of V stays longer, so the ring has four stages where they fit, at d = 64.
// From persistent_blocks, by way of derived/persistent.hpp: the shared memory and the producer.
// Look at: which registers each product owns, and until when.
// Gained: cycles in which tensor cores are active, at d = 128 and 256. At d = 64 four warpgroups
// overlap one another without any help; there wide tiles gain, for many keys and no mask.
// First published: FlashAttention-3 (2024), section 3.2, "intra-warpgroup pipelining".
#include "steps/34_overlap/overlap.hpp"

#include <algorithm>

#include "common/cuda/cuda.hpp"
#include "common/cuda/derived/persistent.hpp"
#include "common/cuda/derived/ring.hpp"
#include "common/cuda/derived/store_tile.hpp"
#include "common/cuda/derived/wgmma_forward.hpp"
#include "common/cuda/ptx/mma.hpp"
#include "common/cuda/ptx/warpgroup.hpp"
#include "common/cuda/ptx/wgmma.hpp"

namespace overlap {
namespace {

template <class Tiles> using Shared = flash::PersistentShared<Tiles>;
using flash::Task;

constexpr int warpgroup = 128; // threads

/// At d = 64 there are two sizes. Four warpgroups with narrow tiles overlap one another best where
/// keys are few or masked. For many keys without a mask three with wide tiles are better: a product
/// 128 keys wide reads less of shared memory for each of them.
template <int head_dim, bool wide = head_dim == 128> struct Tiles {
    static constexpr int d = head_dim;
    static constexpr int stages = d == 64 ? 4 : 2; // tiles of K, and tiles of V, in shared memory
    static constexpr int Q_stages = d == 256 ? 1 : 2; // tiles of Q
    static constexpr int consumers = d == 64 ? (wide ? 3 : 4) : 2;
    static constexpr int Br = 64 * consumers;  // queries
    static constexpr int Bc = wide ? 128 : 64; // keys
    using Q = flash::SwizzledTile<d, 64>;      // of one consumer, and its O
    using KV = flash::SwizzledTile<d, Bc>;

    static constexpr int threads = warpgroup * (consumers + 1);
    // A thread's registers. All there is to distribute is what the block starts with: 65536 /
    // threads for each thread, rounded down to a multiple of 8.
    static constexpr int registers = 65536 / threads / 8 * 8;
    static constexpr int producer_registers = 24;
    static constexpr int consumer_registers = consumers == 4 ? 112 : consumers == 3 ? 160 : 240;
    static_assert(consumers * consumer_registers + producer_registers <=
                  (consumers + 1) * registers);
};

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
        // This warp's product no longer reads the tile of K. It is given back only here, and V's at
        // the loop's end: an arrival holds up what stands behind it, and the next tile can wait.
        smem.K.release(KV);
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

    flash::finish<T>(O_reg, rows, task, tile.head, i0 + row);
    flash::named_barrier_sync(1 + role, warpgroup); // no warp's product still reads Q
    flash::store_tile<T, typename Tiles::Q>(task.O, {0, i0, 0, tile.head}, Q_smem, row, O_reg,
                                            1 + role);
    // every thread arrives: it has also read the tile's number
    flash::mbarrier_arrive(&smem.Q.empty[Q_stage]);
}

template <class T, class Tiles>
__global__ __launch_bounds__(Tiles::threads, 1) // one block on an SM
    void overlap(const __grid_constant__ Task task, unsigned* drawn) {
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
void run(const flash::Problem& p, const T* Q, const T* K, const T* V, T* O, float* LSE,
         void* workspace) {
    constexpr int smem_bytes = sizeof(Shared<Tiles>);
    const auto kernel = overlap<T, Tiles>;
    const int places = flash::resident_blocks(kernel, Tiles::threads, smem_bytes);
    const Task task = flash::make_task<Tiles>(p, Q, K, V, O, LSE, places);
    const int blocks = std::min(places, task.order.blocks());
    auto* drawn = flash::Workspace(workspace).part<unsigned>(1, "the number of drawn tiles");
    flash::clear(drawn, 1);
    flash::launch(kernel, blocks, Tiles::threads, smem_bytes, task, drawn);
}

} // namespace

int64_t workspace_bytes(const flash::Problem&) { return flash::part_bytes<unsigned>(1); }

template <class T>
void attention(const flash::Problem& p, const T* Q, const T* K, const T* V, T* O, float* LSE,
               void* workspace) {
    flash::for_head_dim<head_dims>(p.head_dim, [&](auto d) {
        if (d == 64 && !p.causal && p.kv_len >= 2048) {
            run<T, Tiles<64, true>>(p, Q, K, V, O, LSE, workspace);
        } else {
            run<T, Tiles<d>>(p, Q, K, V, O, LSE, workspace);
        }
    });
}

template decltype(attention<flash::Half>) attention<flash::Half>;
template decltype(attention<flash::Bfloat16>) attention<flash::Bfloat16>;

} // namespace overlap
