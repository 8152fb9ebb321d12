// warp_specialization: One thread fetches, in a warpgroup of its own; the others compute,
// and never fetch.
//
// The idea: in wgmma_tma the threads that compute also start the copies, and all of them must meet
// before a tile may be replaced. Two tiles of Q on an SM fetch K and V twice. Here a block has
// roles:
//   - the producer, one thread, keeps two tiles of K and V under way, a ring of slots with
//     multistage's barriers: `full` when a tile has landed, `empty` when every warp has read it. It
//     needs few registers and gives the rest away.
//   - the consumers, warpgroups of 64 rows, share the tiles, and never wait for each other. They
//     take the registers.
//
//      producer     K0 V0 K1 V1 | K's slot 0 is empty: K2 | V's slot 0 is empty: V2 | ..
//      consumers       S0 .. release K0 .. P V0, release V0, S1 ..
//
// A causal mask hides the last tiles from the warpgroups above the block's last one: they let those
// pass.
// Against wgmma_tma: two roles, two slots, `full` and `empty` in place of __syncthreads(); one
// block per SM.
// Look at: the phases. A barrier's phase flips each time its slot is used again, every second tile.
// Gained: half of the traffic between L2 and shared memory, or less; and no barrier of a whole
// block.
// First published: CudaDMA (2011); on Hopper CUTLASS, and for attention FlashAttention-3.
#include "steps/32_warp_specialization/warp_specialization.hpp"

#include <algorithm>
#include <cfloat>
#include <cmath>

#include "common/cuda/cuda.hpp"
#include "common/cuda/derived/swizzle.hpp"
#include "common/cuda/derived/tile_order.hpp"
#include "common/cuda/ptx/exp2.hpp"
#include "common/cuda/ptx/mbarrier.hpp"
#include "common/cuda/ptx/mma.hpp"
#include "common/cuda/ptx/tma.hpp"
#include "common/cuda/ptx/warpgroup.hpp"
#include "common/cuda/ptx/wgmma.hpp"

namespace warp_specialization {
namespace {

constexpr int slots = 2;         // tiles of K, and tiles of V, that are in shared memory
constexpr int warpgroup = 128;   // threads
constexpr int warpgroup_Br = 64; // queries of a warpgroup

// Consumers, the keys of a tile, and each thread's registers. All there is to distribute is what
// the block starts with: 65536 / threads for each thread, rounded down to a multiple of 8.
template <int d> constexpr int consumers = d == 64 ? 4 : 2;
template <int d> constexpr int Bc = d == 128 ? 128 : 64;
template <int d> constexpr int consumer_registers = d == 64 ? 112 : 240;
constexpr int producer_registers = 24;
template <int d> constexpr int threads = warpgroup*(consumers<d> + 1);
template <int d> constexpr int registers = 65536 / threads<d> / 8 * 8;

template <int d> constexpr int Br = consumers<d>* warpgroup_Br;       // queries
template <int d> using Q_tile = flash::SwizzledTile<d, warpgroup_Br>; // of one warpgroup, and its O
template <int d> using KV_tile = flash::SwizzledTile<d, Bc<d>>;

struct Task {
    flash::TensorMap Q, K, V, O;
    float* LSE;
    flash::TileOrder order;
    int group, N_q, N_kv; // group: query heads to one K/V head
    float scale_log2;
    bool causal;
};

/// Slots for tiles of K or V, each with two barriers: `full` when a tile has landed, `empty` when
/// all have read it.
template <int bytes> struct Ring {
    alignas(1024) char tile[slots][bytes];
    uint64_t full[slots], empty[slots];

    __device__ void init(int readers) {
        for (int slot = 0; slot < slots; ++slot) {
            flash::mbarrier_init(&full[slot], 1);
            flash::mbarrier_init(&empty[slot], readers);
        }
    }
};

/// How far a thread has come in a ring. A barrier's phase flips each time that its slot is used
/// again.
struct RingPlace {
    int slot = 0;
    // of `full` in this slot; `empty` is one behind, so that the first waits fall through
    int phase = 0;
    __device__ void next() {
        slot = (slot + 1) % slots;
        phase ^= slot == 0;
    }
};

template <int d> struct Shared {
    char Q[consumers<d>][Q_tile<d>::bytes]; // a tile per consumer
    Ring<KV_tile<d>::bytes> K, V;
    uint64_t Q_full;
};

/// How many keys query i sees: key j if j <= i + (N_kv - N_q).
__device__ int visible_keys(const Task& task, int i) {
    return task.causal ? i + (task.N_kv - task.N_q) + 1 : task.N_kv;
}

/// S becomes P, and l adds up the lane's own part of the row sums. m is raised where a score asks
/// for it, as in lazy_maximum: if in the warp some weight would not be less than 2^headroom, every
/// row's m becomes its running maximum. Then the result is true, and `keep` is what remains of l
/// and O, of which l is done here. `low`: in some row of the warp m + headroom is less than 0, so
/// that the cheaper maximum would not tell whether a score is above it.
template <int n_tiles>
__device__ bool softmax(float (&S_reg)[n_tiles][4], float (&m_reg)[2], float (&l_reg)[2],
                        float (&keep)[2], bool& low, float scale_log2) {
    constexpr float headroom = 15; // fp16 ends at 2^16, and O needs room for V
    float top[2];                  // of rows g and g + 8
    if (low) {
        flash::lane_max(S_reg, top);
    } else {
        flash::lane_max_if_positive(S_reg, top);
    }
    const bool raise = __any_sync(0xffffffff, top[0] * scale_log2 > m_reg[0] + headroom ||
                                                  top[1] * scale_log2 > m_reg[1] + headroom);
    if (raise) {
        for (int r = 0; r < 2; ++r) {
            const float m_new = fmaxf(m_reg[r], flash::row_max(top[r] * scale_log2));
            keep[r] = flash::fast_exp2(m_reg[r] - m_new);
            m_reg[r] = m_new;
            l_reg[r] *= keep[r];
        }
        low = __any_sync(0xffffffff, m_reg[0] < -headroom || m_reg[1] < -headroom);
    }
#pragma unroll
    for (int n = 0; n < n_tiles; ++n) {
        for (int c = 0; c < 4; ++c) {
            S_reg[n][c] = flash::fast_exp2(fmaf(S_reg[n][c], scale_log2, -m_reg[c / 2]));
            l_reg[c / 2] += S_reg[n][c];
        }
    }
    return raise;
}

/// The producer's part in a tile of Q.
template <int d> __device__ void fetch(const Task& task, flash::Tile tile, Shared<d>& smem) {
    const int i0 = tile.i * Br<d>;
    // tiles beyond the last query's last are never loaded
    const int keys = visible_keys(task, min(i0 + Br<d>, task.N_q) - 1);
    flash::mbarrier_expect_tx(&smem.Q_full, sizeof(smem.Q));
    for (int w = 0; w < consumers<d>; ++w) {
        flash::tma_load<4>(smem.Q[w], task.Q, {0, i0 + w * warpgroup_Br, 0, tile.head},
                           &smem.Q_full);
    }
    RingPlace KV;
    for (int j0 = 0; j0 < keys; j0 += Bc<d>) {
        // all warps have read the tile before
        flash::mbarrier_wait(&smem.K.empty[KV.slot], KV.phase ^ 1);
        flash::mbarrier_expect_tx(&smem.K.full[KV.slot], KV_tile<d>::bytes);
        flash::tma_load<4>(smem.K.tile[KV.slot], task.K, {0, j0, 0, tile.head / task.group},
                           &smem.K.full[KV.slot]);
        flash::mbarrier_wait(&smem.V.empty[KV.slot], KV.phase ^ 1); // likewise
        flash::mbarrier_expect_tx(&smem.V.full[KV.slot], KV_tile<d>::bytes);
        flash::tma_load<4>(smem.V.tile[KV.slot], task.V, {0, j0, 0, tile.head / task.group},
                           &smem.V.full[KV.slot]);
        KV.next();
    }
}

/// A consumer's part in a tile of Q: 64 rows of O.
template <class T, int d>
__device__ void compute(const Task& task, flash::Tile tile, Shared<d>& smem) {
    constexpr int Bc = warp_specialization::Bc<d>;
    // The warpgroup's number. The shuffle tells the compiler that it is the same in all lanes of a
    // warp: loop counts and descriptors that depend on it then stand in uniform registers, where
    // wgmma reads them.
    const int role = __shfl_sync(0xffffffff, threadIdx.x / warpgroup, 0);
    // the lane's rows: this, and + 8
    const int row = threadIdx.x % warpgroup / 32 * 16 + threadIdx.x % 32 / 4;
    const int i0 = tile.i * Br<d> + role * warpgroup_Br;
    // Of the keys that the producer loads, `keys` are seen by some row here, and `whole` by all of
    // them.
    const int loaded = visible_keys(task, min((tile.i + 1) * Br<d>, task.N_q) - 1);
    const int keys = i0 < task.N_q ? visible_keys(task, min(i0 + warpgroup_Br, task.N_q) - 1) : 0;
    const int whole = visible_keys(task, i0);
    char* Q_smem = smem.Q[role];

    // Q, K: 16 elements of each row in a k16 step. V: 16 rows in a k16 step, its next 64 columns Bc
    // rows further on.
    const uint64_t Q_desc = flash::wgmma_descriptor(Q_smem, 0, 1024);
    const uint64_t K_desc = flash::wgmma_descriptor(smem.K.tile, 0, 1024);
    const uint64_t V_desc = flash::wgmma_descriptor(smem.V.tile, 128 * Bc, 1024);

    // of rows g and g + 8, in units of log2: scale * log2(e) * a score
    float m_reg[2] = {-FLT_MAX, -FLT_MAX};
    float l_reg[2] = {};
    float keep[2];
    bool low = true;
    float O_reg[d / 8][4] = {}; // C fragments: 16 rows x 8 columns each

    RingPlace KV;
    flash::mbarrier_wait(&smem.Q_full, 0); // Q has landed
    int j0 = 0;
    for (; j0 < keys; j0 += Bc) {
        float S_reg[Bc / 8][4];                                // C fragments: 16 rows x 8 keys each
        flash::mbarrier_wait(&smem.K.full[KV.slot], KV.phase); // the tile of K has landed
        // S = Q K^T
        flash::start_ABt<T, d>(S_reg, Q_desc, flash::advance(K_desc, KV.slot * KV_tile<d>::bytes));
        flash::wgmma_wait<0>(S_reg);
        // this warp's product no longer reads the tile of K
        flash::mbarrier_arrive_warp(&smem.K.empty[KV.slot]);
        if (j0 + Bc > whole) { // an edge: some row does not see the whole tile
            flash::mask(S_reg, task.N_kv - j0, visible_keys(task, i0 + row) - j0);
        }
        if (softmax(S_reg, m_reg, l_reg, keep, low, task.scale_log2)) {
            flash::scale_rows(O_reg, keep);
        }
        uint32_t P_reg[Bc / 16][4]; // A fragments: 16 rows x 16 keys each
        flash::pack_A<T>(P_reg, S_reg);
        flash::mbarrier_wait(&smem.V.full[KV.slot], KV.phase); // the tile of V has landed
        // O += P V
        flash::start_AB<T>(O_reg, P_reg, flash::advance(V_desc, KV.slot * KV_tile<d>::bytes));
        flash::wgmma_wait<0>(O_reg);
        // this warp's product no longer reads the tile of V
        flash::mbarrier_arrive_warp(&smem.V.empty[KV.slot]);
        KV.next();
    }
    // no row here sees the other tiles; each is given back once it has landed
    for (; j0 < loaded; j0 += Bc) {
        flash::mbarrier_wait(&smem.K.full[KV.slot], KV.phase);
        flash::mbarrier_arrive_warp(&smem.K.empty[KV.slot]);
        flash::mbarrier_wait(&smem.V.full[KV.slot], KV.phase);
        flash::mbarrier_arrive_warp(&smem.V.empty[KV.slot]);
        KV.next();
    }

    // O goes to shared memory, to where the warpgroup's Q was, and TMA writes the rows that exist.
    float normalise[2];
    for (int r = 0; r < 2; ++r) {
        const float l = flash::row_sum(l_reg[r]);
        normalise[r] = l == 0 ? 0.0f : 1 / l; // a row that sees no key gets O = 0
        if (threadIdx.x % 4 == 0 && i0 + row + 8 * r < task.N_q) {
            task.LSE[int64_t{tile.head} * task.N_q + i0 + row + 8 * r] =
                m_reg[r] * flash::ln_2 + logf(l);
        }
    }
    flash::scale_rows(O_reg, normalise);
    flash::named_barrier_sync(1 + role, warpgroup); // redundant: each warp's rows of Q are its own
    flash::store_C<T, Q_tile<d>>(Q_smem, row, O_reg);
    flash::fence_proxy_async();                     // TMA sees what this thread has written,
    flash::named_barrier_sync(1 + role, warpgroup); // and what the warpgroup's others have
    if (threadIdx.x % warpgroup == 0) {
        flash::tma_store<4>(task.O, {0, i0, 0, tile.head}, Q_smem);
        flash::bulk_commit();
        flash::bulk_wait_read<0>(); // a block must not leave before its tile has been read
    }
}

template <class T, int d>
__global__ __launch_bounds__(threads<d>,
                             1) void warp_specialization(const __grid_constant__ Task task) {
    auto& smem = *flash::dynamic_shared<Shared<d>>();
    if (threadIdx.x == 0) {
        flash::mbarrier_init(&smem.Q_full, 1);
        smem.K.init(4 * consumers<d>); // one arrival per warp
        smem.V.init(4 * consumers<d>);
        flash::fence_mbarrier_init();
    }
    __syncthreads(); // the barriers are there for all

    const flash::Tile tile = flash::tile_of(blockIdx.x, task.order);
    static_assert(warpgroup * (consumers<d> * consumer_registers<d> + producer_registers) <=
                  threads<d> * registers<d>);
    if (threadIdx.x / warpgroup == consumers<d>) { // the producer
        flash::give_registers<producer_registers>();
        if (threadIdx.x % warpgroup == 0) {
            fetch(task, tile, smem);
        }
    } else {
        flash::take_registers<consumer_registers<d>>();
        compute<T>(task, tile, smem);
    }
}

template <class T, int d>
void run(const flash::Problem& p, const T* Q, const T* K, const T* V, T* O, float* LSE) {
    const int N_q = flash::as_int(p.q_len, "q-len");
    const int N_kv = flash::as_int(p.kv_len, "kv-len");
    const int heads = flash::as_int(p.batch * p.heads, "batch x heads");
    // query heads to one K/V head
    const int group = flash::as_int(p.heads / p.kv_heads, "heads / kv-heads");
    const int Tr = static_cast<int>(flash::ceil_div(N_q, Br<d>));
    // One dimension for tiles and heads, because y and z of a grid end at 65535.
    const int blocks = flash::as_int(int64_t{heads} * Tr, "batch x heads x tiles of Q");
    const int places =
        flash::resident_blocks(warp_specialization<T, d>, threads<d>, sizeof(Shared<d>));
    const flash::TileOrder order{heads, p.causal ? std::clamp(places / Tr, 1, heads) : 1, Tr};
    flash::launch(warp_specialization<T, d>, blocks, threads<d>, sizeof(Shared<d>),
                  Task{flash::tile_map<Q_tile<d>>(Q, heads, N_q),
                       flash::tile_map<KV_tile<d>>(K, heads / group, N_kv),
                       flash::tile_map<KV_tile<d>>(V, heads / group, N_kv),
                       flash::tile_map<Q_tile<d>>(O, heads, N_q), LSE, order, group, N_q, N_kv,
                       p.scale * flash::log2_e, p.causal});
}

} // namespace

template <class T>
void attention(const flash::Problem& p, const T* Q, const T* K, const T* V, T* O, float* LSE) {
    flash::for_head_dim<head_dims>(p.head_dim, [&](auto d) { run<T, d>(p, Q, K, V, O, LSE); });
}

template void attention(const flash::Problem&, const flash::Half*, const flash::Half*,
                        const flash::Half*, flash::Half*, float*);
template void attention(const flash::Problem&, const flash::Bfloat16*, const flash::Bfloat16*,
                        const flash::Bfloat16*, flash::Bfloat16*, float*);

} // namespace warp_specialization
