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
// The warpgroups also take turns at asking for products, so one's softmax falls into the time of
// the other's products.
// Against persistent_blocks: the consumers' loop runs one tile behind itself, and d = 64 has four
// slots; O is rescaled after P V.
// Look at: which registers each product owns, and until when. Gained: cycles in which tensor cores
// are active.
// First published: FlashAttention-3 (2024), sections 3.1, "ping-pong", and 3.2, "intra-warpgroup
// pipelining".
#include "steps/34_overlap/overlap.hpp"

#include <algorithm>
#include <cfloat>
#include <cmath>

#include "common/cuda/cuda.hpp"
#include "common/cuda/derived/ring.hpp"
#include "common/cuda/derived/swizzle.hpp"
#include "common/cuda/derived/tile_order.hpp"
#include "common/cuda/ptx/exp2.hpp"
#include "common/cuda/ptx/mma.hpp"
#include "common/cuda/ptx/tma.hpp"
#include "common/cuda/ptx/warpgroup.hpp"
#include "common/cuda/ptx/wgmma.hpp"

namespace overlap {
namespace {

// tiles of K, and as many of V, in shared memory
template <int d> constexpr int slots = d == 64 ? 4 : 2;
template <int d> constexpr int Q_slots = d == 256 ? 1 : 2; // tiles of Q
constexpr int warpgroup = 128;                             // threads
constexpr int warpgroup_Br = 64;                           // queries of a warpgroup

// Consumers, the keys of a tile, and each thread's registers, of which the block starts with 65536
// / threads.
template <int d> constexpr int consumers = d == 64 ? 4 : 2;
template <int d> constexpr int Bc = d == 128 ? 128 : 64;
template <int d> constexpr int consumer_registers = d == 64 ? 112 : 240;
constexpr int producer_registers = 24;
template <int d> constexpr int threads = warpgroup*(consumers<d> + 1);
template <int d> constexpr int registers = 65536 / threads<d> / 8 * 8;
// the named barrier of the first warpgroup's turn, behind the one that each warpgroup has
template <int d> constexpr int turn = 1 + consumers<d>;
template <int d> constexpr int Br = consumers<d>* warpgroup_Br;       // queries
template <int d> using Q_tile = flash::SwizzledTile<d, warpgroup_Br>; // of one warpgroup, and its O
template <int d> using KV_tile = flash::SwizzledTile<d, Bc<d>>;

struct Task {
    flash::TensorMap Q, K, V, O;
    float* LSE;
    flash::TileOrder order;
    unsigned* drawn;      // how many tiles blocks have drawn
    int group, N_q, N_kv; // group: query heads to one K/V head
    float scale_log2;
    bool causal;
};

template <int d> struct Shared {
    flash::Ring<Q_slots<d>, consumers<d> * Q_tile<d>::bytes> Q; // a tile per consumer, in each slot
    flash::Ring<slots<d>, KV_tile<d>::bytes> K, V;
    int numbers[Q_slots<d>]; // of the tiles in the slots of Q
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
template <int d>
__device__ void fetch(const Task& task, flash::Tile tile, Shared<d>& smem, int Q_slot,
                      flash::RingPlace<slots<d>>& KV) {
    const int i0 = tile.i * Br<d>;
    // tiles beyond the last query's last are never loaded
    const int keys = visible_keys(task, min(i0 + Br<d>, task.N_q) - 1);
    flash::mbarrier_expect_tx(&smem.Q.full[Q_slot], sizeof(smem.Q.tile[Q_slot]));
    for (int w = 0; w < consumers<d>; ++w) {
        flash::tma_load<4>(smem.Q.tile[Q_slot] + w * Q_tile<d>::bytes, task.Q,
                           {0, i0 + w * warpgroup_Br, 0, tile.head}, &smem.Q.full[Q_slot]);
    }
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
__device__ void compute(const Task& task, flash::Tile tile, Shared<d>& smem, int Q_slot,
                        flash::RingPlace<slots<d>>& KV) {
    constexpr int Bc = overlap::Bc<d>;
    // alike in a warp, as in warp_specialization
    const int role = __shfl_sync(0xffffffff, threadIdx.x / warpgroup, 0);
    // the lane's rows: this, and + 8
    const int row = threadIdx.x % warpgroup / 32 * 16 + threadIdx.x % 32 / 4;
    const int i0 = tile.i * Br<d> + role * warpgroup_Br;
    // Of the keys that the producer loads, `keys` are seen by some row here, and `whole` by all of
    // them.
    const int loaded = visible_keys(task, min((tile.i + 1) * Br<d>, task.N_q) - 1);
    const int keys = i0 < task.N_q ? visible_keys(task, min(i0 + warpgroup_Br, task.N_q) - 1) : 0;
    const int whole = visible_keys(task, i0);
    char* Q_smem = smem.Q.tile[Q_slot] + role * Q_tile<d>::bytes;

    // Q, K: 16 elements of each row in a k16 step. V: 16 rows in a k16 step, its next 64 columns Bc
    // rows further on.
    const uint64_t Q_desc = flash::wgmma_descriptor(Q_smem, 0, 1024);
    const uint64_t K_desc = flash::wgmma_descriptor(smem.K.tile, 0, 1024);
    const uint64_t V_desc = flash::wgmma_descriptor(smem.V.tile, 128 * Bc, 1024);

    // of rows g and g + 8, in units of log2: scale * log2(e) * a score
    float m_reg[2] = {-FLT_MAX, -FLT_MAX};
    float l_reg[2] = {}, keep[2];
    bool low = true;
    float O_reg[d / 8][4] = {}; // C fragments: 16 rows x 8 columns each
    float S_reg[Bc / 8][4];     // C fragments: 16 rows x 8 keys each
    uint32_t P_reg[Bc / 16][4]; // A fragments: 16 rows x 16 keys each
    int before = KV.slot;       // the slot of the tile before
    int j0 = 0;
    if (keys > 0) { // the first tile, which has no P V beside it
        flash::mbarrier_wait(&smem.K.full[KV.slot], KV.phase); // the tile of K has landed
        // the warpgroup before has asked for its products
        flash::named_barrier_sync(turn<d> + role, 2 * warpgroup);
        // S = Q K^T
        flash::start_ABt<T, d>(S_reg, Q_desc, flash::advance(K_desc, KV.slot * KV_tile<d>::bytes));
        // the next one's turn
        flash::named_barrier_arrive(turn<d> + (role + 1) % consumers<d>, 2 * warpgroup);
        flash::wgmma_wait<0>(S_reg);
        // this warp's product no longer reads the tile of K
        flash::mbarrier_arrive_warp(&smem.K.empty[KV.slot]);
        if (Bc > whole) { // an edge: some row does not see the whole tile
            flash::mask(S_reg, task.N_kv, visible_keys(task, i0 + row));
        }
        softmax(S_reg, m_reg, l_reg, keep, low, task.scale_log2); // O is still 0
        flash::pack_A<T>(P_reg, S_reg);
        // the tile of V has landed, for the next P V
        flash::mbarrier_wait(&smem.V.full[KV.slot], KV.phase);
        KV.next();
        j0 = Bc;
    }
    for (; j0 < keys; j0 += Bc) {
        flash::mbarrier_wait(&smem.K.full[KV.slot], KV.phase);    // as above
        flash::named_barrier_sync(turn<d> + role, 2 * warpgroup); // as above
        flash::start_ABt<T, d>(S_reg, Q_desc, flash::advance(K_desc, KV.slot * KV_tile<d>::bytes));
        // O += P V
        flash::start_AB<T>(O_reg, P_reg, flash::advance(V_desc, before * KV_tile<d>::bytes));
        flash::named_barrier_arrive(turn<d> + (role + 1) % consumers<d>, 2 * warpgroup); // as above
        flash::wgmma_wait<1>(S_reg);                         // S is there, while P V goes on
        flash::mbarrier_arrive_warp(&smem.K.empty[KV.slot]); // as above
        if (j0 + Bc > whole) {
            flash::mask(S_reg, task.N_kv - j0, visible_keys(task, i0 + row) - j0);
        }
        const bool raised = softmax(S_reg, m_reg, l_reg, keep, low, task.scale_log2);
        // The tile of V has landed, for the next P V. This wait stands before the next one: without
        // a loop between them the compiler would wait for P V first, and compute exponentials
        // afterwards.
        flash::mbarrier_wait(&smem.V.full[KV.slot], KV.phase);
        flash::wgmma_wait<0>(O_reg);
        // this warp's product no longer reads the tile of V
        flash::mbarrier_arrive_warp(&smem.V.empty[before]);
        if (raised) {
            flash::scale_rows(O_reg, keep);
        }
        flash::pack_A<T>(P_reg, S_reg); // now that P V no longer reads P_reg
        before = KV.slot;
        KV.next();
    }
    if (keys > 0) {
        flash::start_AB<T>(O_reg, P_reg, flash::advance(V_desc, before * KV_tile<d>::bytes));
        flash::wgmma_wait<0>(O_reg);
        flash::mbarrier_arrive_warp(&smem.V.empty[before]); // as above
    }
    for (; j0 < loaded; j0 += Bc) { // the tiles pass, and the turns with them, as above
        flash::mbarrier_wait(&smem.K.full[KV.slot], KV.phase); // redundant: the turns imply it
        flash::named_barrier_sync(turn<d> + role, 2 * warpgroup);
        flash::named_barrier_arrive(turn<d> + (role + 1) % consumers<d>, 2 * warpgroup);
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
        // the tile has been read: its place is free, and the block may leave
        flash::bulk_wait_read<0>();
    }
    // of every thread: it has read the tile's number, too
    flash::mbarrier_arrive(&smem.Q.empty[Q_slot]);
}

template <class T, int d>
__global__ __launch_bounds__(threads<d>, 1) void overlap(const __grid_constant__ Task task) {
    auto& smem = *flash::dynamic_shared<Shared<d>>();
    if (threadIdx.x == 0) {
        smem.Q.init(warpgroup * consumers<d>); // one arrival per thread
        smem.K.init(4 * consumers<d>);         // one arrival per warp
        smem.V.init(4 * consumers<d>);
        flash::fence_mbarrier_init();
    }
    __syncthreads(); // the barriers are there for all

    const int tiles = task.order.heads * task.order.Tr;
    const int role = threadIdx.x / warpgroup;
    flash::RingPlace<slots<d>> KV;
    flash::RingPlace<Q_slots<d>> Q;
    static_assert(warpgroup * (consumers<d> * consumer_registers<d> + producer_registers) <=
                  threads<d> * registers<d>);
    if (role == consumers<d>) { // the producer
        flash::give_registers<producer_registers>();
        if (threadIdx.x % warpgroup == 0) {
            for (int number = blockIdx.x;; number = gridDim.x + atomicAdd(task.drawn, 1)) {
                // O, in its place, has been stored
                flash::mbarrier_wait(&smem.Q.empty[Q.slot], Q.phase ^ 1);
                smem.numbers[Q.slot] = number;
                if (number >= tiles) {
                    // the consumers shall see that there is no more
                    flash::mbarrier_arrive(&smem.Q.full[Q.slot]);
                    break;
                }
                fetch(task, flash::tile_of(number, task.order), smem, Q.slot, KV);
                Q.next();
            }
        }
        return;
    }

    flash::take_registers<consumer_registers<d>>();
    if (role == consumers<d> - 1) {
        // the first turn is the first warpgroup's
        flash::named_barrier_arrive(turn<d>, 2 * warpgroup);
    }
    while (true) {
        flash::mbarrier_wait(&smem.Q.full[Q.slot], Q.phase); // Q and the tile's number have landed
        if (smem.numbers[Q.slot] >= tiles) {
            break;
        }
        compute<T>(task, flash::tile_of(smem.numbers[Q.slot], task.order), smem, Q.slot, KV);
        Q.next();
    }
}

template <class T, int d>
void run(const flash::Problem& p, const T* Q, const T* K, const T* V, T* O, float* LSE,
         void* workspace) {
    const int N_q = flash::as_int(p.q_len, "q-len");
    const int N_kv = flash::as_int(p.kv_len, "kv-len");
    const int heads = flash::as_int(p.batch * p.heads, "batch x heads");
    // query heads to one K/V head
    const int group = flash::as_int(p.heads / p.kv_heads, "heads / kv-heads");
    const int Tr = static_cast<int>(flash::ceil_div(N_q, Br<d>));
    const int tiles = flash::as_int(int64_t{heads} * Tr, "batch x heads x tiles of Q");
    const int places = flash::resident_blocks(overlap<T, d>, threads<d>, sizeof(Shared<d>));
    const flash::TileOrder order{heads, p.causal ? std::clamp(places / Tr, 1, heads) : 1, Tr};
    unsigned* const drawn =
        flash::Workspace(workspace).part<unsigned>(1, "the number of drawn tiles");
    flash::clear(drawn, 1);
    flash::launch(overlap<T, d>, std::min(places, tiles), threads<d>, sizeof(Shared<d>),
                  Task{flash::tile_map<Q_tile<d>>(Q, heads, N_q),
                       flash::tile_map<KV_tile<d>>(K, heads / group, N_kv),
                       flash::tile_map<KV_tile<d>>(V, heads / group, N_kv),
                       flash::tile_map<Q_tile<d>>(O, heads, N_q), LSE, order, drawn, group, N_q,
                       N_kv, p.scale * flash::log2_e, p.causal});
}

} // namespace

int64_t workspace_bytes(const flash::Problem&) { return flash::part_bytes<unsigned>(1); }

template <class T>
void attention(const flash::Problem& p, const T* Q, const T* K, const T* V, T* O, float* LSE,
               void* workspace) {
    flash::for_head_dim<head_dims>(p.head_dim,
                                   [&](auto d) { run<T, d>(p, Q, K, V, O, LSE, workspace); });
}

template decltype(attention<flash::Half>) attention<flash::Half>;
template decltype(attention<flash::Bfloat16>) attention<flash::Bfloat16>;

} // namespace overlap
