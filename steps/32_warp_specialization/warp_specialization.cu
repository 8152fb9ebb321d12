// warp_specialization: One thread fetches, in a warpgroup of its own; the others compute,
// and never fetch.
//
// The idea: in wgmma_tma the threads that compute also start the copies, and all of them must meet
// before a tile may be replaced. Two tiles of Q on an SM fetch K and V twice. Here a block has
// roles:
//   - the producer, one thread, keeps two tiles of K and V under way, in a ring of stages with
//     multistage's barriers: `full` when a tile has landed, `empty` when every warp has read it. It
//     needs few registers and gives the rest away.
//   - the consumers, warpgroups of 64 rows, share the tiles, and never wait for each other. They
//     take the registers.
//
//      producer     K0 V0 K1 V1 | K's stage 0 is empty: K2 | V's stage 0 is empty: V2 | ..
//      consumers       S0 .. release K0 .. P V0, release V0, S1 ..
//
// A causal mask hides the last tiles from the warpgroups above the block's last one: they let those
// pass.
//
// Against wgmma_tma: two roles, a ring, `full` and `empty` in place of __syncthreads(); one block
// per SM. From wgmma_tma, by way of derived/wgmma_forward.hpp: the task, the softmax, the end.
// Look at: the phases. A barrier's phase flips each time its stage is used again, every second
// tile. Gained: half of the traffic between L2 and shared memory, or less; and no barrier of a
// whole block. First published: CudaDMA (2011); on Hopper CUTLASS, and for attention
// FlashAttention-3.
#include "steps/32_warp_specialization/warp_specialization.hpp"

#include "common/cuda/cuda.hpp"
#include "common/cuda/derived/store_tile.hpp"
#include "common/cuda/derived/wgmma_forward.hpp"
#include "common/cuda/ptx/mbarrier.hpp"
#include "common/cuda/ptx/mma.hpp"
#include "common/cuda/ptx/tma.hpp"
#include "common/cuda/ptx/warpgroup.hpp"
#include "common/cuda/ptx/wgmma.hpp"

namespace warp_specialization {
namespace {

using flash::Task;

constexpr int warpgroup = 128; // threads

template <int head_dim> struct Tiles {
    static constexpr int d = head_dim;
    static constexpr int stages = 2; // tiles of K, and tiles of V, that are in shared memory
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

/// How far a thread has come in a ring. A barrier's phase flips each time that its stage is used
/// again.
template <int stages> struct RingPlace {
    int stage = 0;
    int phase = 0; // the parity of `full` in this stage
    __device__ void next() {
        stage = (stage + 1) % stages;
        if (stage == 0) {
            phase ^= 1; // once round: the barriers of stage 0 are in their next phase
        }
    }
};

/// Stages with room for a Tile, and two barriers each: `full` when a tile has landed, `empty` when
/// all have read it.
template <int stages, class Tile> struct Ring {
    using Place = RingPlace<stages>;
    Tile tile[stages];
    uint64_t full[stages], empty[stages];

    __device__ void init(int readers) {
        for (int stage = 0; stage < stages; ++stage) {
            flash::mbarrier_init(&full[stage], 1);
            flash::mbarrier_init(&empty[stage], readers);
        }
    }

    /// The producer waits until all readers have released the stage. `empty` is one phase behind
    /// `full`, so in the first round it waits for the phase before the first, and goes on at once.
    __device__ void acquire(Place at) {
        flash::mbarrier_wait(&empty[at.stage], at.phase ^ 1); // all have read the tile before
    }
    /// A consumer waits until the stage's tile has landed.
    __device__ void wait(Place at) {
        flash::mbarrier_wait(&full[at.stage], at.phase); // the tile has landed
    }
    /// A consumer's warp, all of it, has read the tile: one arrival.
    __device__ void release(Place at) {
        flash::mbarrier_arrive_warp(&empty[at.stage]); // the producer may fill the stage again
    }
};

template <class Tiles> struct Shared {
    typename Tiles::Q Q[Tiles::consumers];
    Ring<Tiles::stages, typename Tiles::KV> K, V;
    uint64_t Q_full;
};

/// The producer's part in a tile of Q, by one thread: it asks for every consumer's rows of Q, then
/// for one tile of K and one of V after the other. `at` is where it goes on in their rings.
template <class Tiles, class Q_tiles, class KV_ring>
__device__ void fetch(const Task& task, flash::Tile tile, Q_tiles& Q_smem, uint64_t* Q_full,
                      KV_ring& K, KV_ring& V, typename KV_ring::Place& at) {
    const int i0 = tile.i * Tiles::Br;
    const int KV_head = tile.head / task.group;
    const int keys = visible_keys(task, i0, i0 + Tiles::Br); // tiles beyond them are never loaded
    flash::mbarrier_expect_tx(Q_full, sizeof(Q_smem));
    for (int w = 0; w < Tiles::consumers; ++w) {
        const int first = i0 + w * Tiles::Q::rows;
        flash::tma_load<4>(Q_smem[w].data, task.Q, {0, first, 0, tile.head}, Q_full);
    }
    for (int j0 = 0; j0 < keys; j0 += Tiles::Bc) {
        uint64_t* const K_full = &K.full[at.stage];
        uint64_t* const V_full = &V.full[at.stage];
        K.acquire(at); // all warps have read the tile of K before
        flash::mbarrier_expect_tx(K_full, Tiles::KV::bytes);
        flash::tma_load<4>(K.tile[at.stage].data, task.K, {0, j0, 0, KV_head}, K_full);
        V.acquire(at); // all warps have read the tile of V before
        flash::mbarrier_expect_tx(V_full, Tiles::KV::bytes);
        flash::tma_load<4>(V.tile[at.stage].data, task.V, {0, j0, 0, KV_head}, V_full);
        at.next();
    }
}

/// A consumer's part in a tile of Q: 64 rows of O.
template <class T, class Tiles>
__device__ void compute(const Task& task, flash::Tile tile, Shared<Tiles>& smem) {
    constexpr int d = Tiles::d, Bc = Tiles::Bc;
    using KV_tile = typename Tiles::KV;
    const int role = flash::warpgroup_of_thread();
    const int i0 = tile.i * Tiles::Br + role * Tiles::Q::rows;
    const int warp = threadIdx.x % warpgroup / 32, lane = threadIdx.x % 32;
    const int row = 16 * warp + lane / 4; // the lane's rows of the 64: this one, and row + 8
    const int loaded = visible_keys(task, tile.i * Tiles::Br, (tile.i + 1) * Tiles::Br);
    const int keys = visible_keys(task, i0, i0 + Tiles::Q::rows); // that some of the 64 rows see
    const int whole = visible_keys(task, i0);                     // that all of them see
    char* const Q_smem = smem.Q[role].data;

    // Q, K: 16 elements of each row in a k16 step. V: 16 rows in a k16 step, its next 64 columns Bc
    // rows further on.
    const uint64_t Q_desc = flash::wgmma_descriptor(Q_smem, 0, 1024);
    const uint64_t K_desc = flash::wgmma_descriptor(smem.K.tile, 0, 1024);
    const uint64_t V_desc = flash::wgmma_descriptor(smem.V.tile, 128 * Bc, 1024);

    flash::Rows rows;
    float keep[2];
    float O_reg[d / 8][4] = {}; // C fragments: 16 rows x 8 columns each

    RingPlace<Tiles::stages> KV;
    flash::mbarrier_wait(&smem.Q_full, 0); // Q has landed
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
}

template <class T, class Tiles>
__global__ __launch_bounds__(Tiles::threads, 1) // one block on an SM
    void warp_specialization(const __grid_constant__ Task task) {
    auto& smem = *flash::dynamic_shared<Shared<Tiles>>();
    if (threadIdx.x == 0) {
        flash::mbarrier_init(&smem.Q_full, 1);
        smem.K.init(4 * Tiles::consumers); // one arrival per warp
        smem.V.init(4 * Tiles::consumers);
        flash::fence_mbarrier_init();
    }
    __syncthreads(); // the barriers are there for all

    const flash::Tile tile = flash::tile_of(blockIdx.x, task.order);
    if (threadIdx.x / warpgroup == Tiles::consumers) { // the producer
        flash::give_registers<Tiles::producer_registers>();
        if (threadIdx.x % warpgroup == 0) {
            RingPlace<Tiles::stages> KV;
            warp_specialization::fetch<Tiles>(task, tile, smem.Q, &smem.Q_full, smem.K, smem.V, KV);
        }
    } else {
        flash::take_registers<Tiles::consumer_registers>();
        compute<T>(task, tile, smem);
    }
}

template <class T, class Tiles>
void run(const flash::Problem& p, const T* Q, const T* K, const T* V, T* O, float* LSE) {
    constexpr int smem_bytes = sizeof(Shared<Tiles>);
    const auto kernel = warp_specialization<T, Tiles>;
    const int places = flash::resident_blocks(kernel, Tiles::threads, smem_bytes);
    const Task task = flash::make_task<Tiles>(p, Q, K, V, O, LSE, places);
    flash::launch(kernel, task.order.blocks(), Tiles::threads, smem_bytes, task);
}

} // namespace

template <class T>
void attention(const flash::Problem& p, const T* Q, const T* K, const T* V, T* O, float* LSE) {
    flash::for_head_dim<head_dims>(p.head_dim,
                                   [&](auto d) { run<T, Tiles<d>>(p, Q, K, V, O, LSE); });
}

template decltype(attention<flash::Half>) attention<flash::Half>;
template decltype(attention<flash::Bfloat16>) attention<flash::Bfloat16>;

} // namespace warp_specialization
