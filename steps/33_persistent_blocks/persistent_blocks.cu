// persistent_blocks: A block does not end with its tile of Q; it takes the next one.
//
// The idea: in warp_specialization an SM holds one block, so it idles while that block ends and the
// next begins: barriers, Q and the first K on their way from memory, O on its way back. Here there
// are only as many blocks as SMs. The producer draws the number of the next tile from a counter in
// global memory as soon as it has started the last copies of this one, and fetches Q into a second
// stage; K and V go on through the same ring. The consumers find work when they return.
//
// A block that is done early draws more often, so the order of block_order and wgmma_tma works as
// before.
//
// Against warp_specialization: a loop around each role, a ring for Q, too (two stages, if d <=
// 128), and the counter. It lies in memory that the caller brings, so that calls that run at the
// same time draw from counters of their own. From warp_specialization, by way of derived/: the ring
// and fetch. Look at: which tiles are given to blocks, and which are drawn. Gained: time at short
// N, if d <= 128. First published: Gupta, Stuart and Owens, "A study of persistent threads style
// GPU programming" (2012).
#include "steps/33_persistent_blocks/persistent_blocks.hpp"

#include <algorithm>

#include "common/cuda/cuda.hpp"
#include "common/cuda/derived/fetch.hpp"
#include "common/cuda/derived/ring.hpp"
#include "common/cuda/derived/store_tile.hpp"
#include "common/cuda/derived/wgmma_forward.hpp"
#include "common/cuda/ptx/mma.hpp"
#include "common/cuda/ptx/warpgroup.hpp"
#include "common/cuda/ptx/wgmma.hpp"

namespace persistent_blocks {
namespace {

using flash::Task;

constexpr int warpgroup = 128; // threads

template <int head_dim> struct Tiles {
    static constexpr int d = head_dim;
    static constexpr int stages = 2; // tiles of K, and tiles of V, that are in shared memory
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

template <class Tiles> struct Shared {
    using Q_tiles = typename Tiles::Q[Tiles::consumers];
    flash::Ring<Tiles::Q_stages, Q_tiles> Q;
    flash::Ring<Tiles::stages, typename Tiles::KV> K, V;
    int number[Tiles::Q_stages]; // of the tile of Q in each stage
};

/// The producer, one thread: it draws tiles of Q from a counter and fetches what they need. A
/// number that no tile has tells the consumers that there are no more.
template <class Tiles>
__device__ void produce(const Task& task, unsigned* drawn, Shared<Tiles>& smem) {
    const int tiles = task.order.heads * task.order.Tr;
    flash::RingPlace<Tiles::Q_stages> Q;
    flash::RingPlace<Tiles::stages> KV;
    for (int number = blockIdx.x;; number = gridDim.x + atomicAdd(drawn, 1)) {
        smem.Q.acquire(Q); // O, in Q's place, has been stored, and the number before has been read
        smem.number[Q.stage] = number;
        if (number >= tiles) {
            flash::mbarrier_arrive(&smem.Q.full[Q.stage]); // the consumers may read the number
            return;
        }
        flash::fetch<Tiles>(task, flash::tile_of(number, task.order), smem.Q.tile[Q.stage],
                            &smem.Q.full[Q.stage], smem.K, smem.V, KV);
        Q.next();
    }
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

    int j0 = 0;
    for (; j0 < keys; j0 += Bc) {
        const int stage_bytes = KV.stage * KV_tile::bytes; // from the first stage to this one

        float S_reg[Bc / 8][4]; // C fragments: 16 rows x 8 keys each
        smem.K.wait(KV);        // the tile of K has landed
        flash::start_ABt<T, d>(S_reg, Q_desc, flash::advance(K_desc, stage_bytes)); // S = Q K^T
        flash::wgmma_wait<0>(S_reg);
        smem.K.release(KV); // this warp's product no longer reads the tile of K

        if (j0 + Bc > whole) { // an edge: some row does not see the whole tile
            flash::mask(S_reg, task.N_kv - j0, visible_keys(task, i0 + row) - j0);
        }
        if (flash::softmax(S_reg, rows, keep, task.scale_log2)) {
            flash::scale_rows(O_reg, keep);
        }
        uint32_t P_reg[Bc / 16][4]; // A fragments: 16 rows x 16 keys each
        flash::pack_A<T>(P_reg, S_reg);

        smem.V.wait(KV); // the tile of V has landed
        flash::start_AB<T>(O_reg, P_reg, flash::advance(V_desc, stage_bytes)); // O += P V
        flash::wgmma_wait<0>(O_reg);
        smem.V.release(KV); // this warp's product no longer reads the tile of V
        KV.next();
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
    void persistent_blocks(const __grid_constant__ Task task, unsigned* drawn) {
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
            produce(task, drawn, smem);
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
    const auto kernel = persistent_blocks<T, Tiles>;
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
    flash::for_head_dim<head_dims>(
        p.head_dim, [&](auto d) { run<T, Tiles<d>>(p, Q, K, V, O, LSE, workspace); });
}

template decltype(attention<flash::Half>) attention<flash::Half>;
template decltype(attention<flash::Bfloat16>) attention<flash::Bfloat16>;

} // namespace persistent_blocks
