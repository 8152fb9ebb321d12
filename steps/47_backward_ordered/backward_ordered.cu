// backward_ordered: dQ in a fixed order, so that all gradients have the same bits in every run.
//
// The idea: in backward_late_dq blocks add to a tile of dQ in the order in which they come. Here
// they take turns: a semaphore per tile counts who has added. The writer waits for its turn, has
// TMA add, and passes it on once the sum is there.
//
//      consumers  dQ: store | next step ........................... | dQ: store
//      writer               | turn? | TMA adds: read | in memory, pass the turn on
//
// A block may only wait for those that are sure to have begun. So each draws its tile of K when it
// begins, and waits for earlier draws alone: the last keys go first. Blocks then walk from the
// first tile of Q to the last, so that each comes to a tile when the one before has left it. (With
// a mask and few blocks the first half of the keys goes last, the first keys before the others.)
//
// Parent: backward_late_dq. New: the draw, the turns, and the way upwards.
// Look at: `turn`.
// First published: FlashAttention-3's deterministic mode (Shah and others).
#include "steps/47_backward_ordered/backward_ordered.hpp"

#include <algorithm>

#include "common/cuda/cuda.hpp"
#include "common/cuda/derived/around_backward.hpp"
#include "common/cuda/derived/backward_steps.hpp"
#include "common/cuda/derived/late_dq.hpp"
#include "common/cuda/derived/ring.hpp"
#include "common/cuda/derived/swizzle.hpp"
#include "common/cuda/derived/tile_order.hpp"
#include "common/cuda/ptx/mbarrier.hpp"
#include "common/cuda/ptx/mma.hpp"
#include "common/cuda/ptx/semaphore.hpp"
#include "common/cuda/ptx/tma.hpp"
#include "common/cuda/ptx/warpgroup.hpp"
#include "common/cuda/ptx/wgmma.hpp"

namespace backward_ordered {
namespace {

using namespace flash::backward; // what backward_wgmma and backward_late_dq have around their loops

struct Task : flash::backward::Task {
    unsigned* drawn; // how many tiles of K blocks have drawn
    unsigned* turns; // for each 64 rows of dQ, how many blocks have added
    int long_tiles;  // of a head: its first ones, which are drawn after the others
};

template <class Tiles> struct Shared : LateShared<Tiles> {
    unsigned number; // of the block's tile of K
};

/// The same way from the other end: from the first tile of Q that sees one of the keys to the last.
__device__ Steps upwards(Steps steps) {
    steps.i0 += (steps.tiles - 1) * steps.stride;
    steps.stride = -steps.stride;
    return steps;
}

/// The writer's part: one thread. It adds the block's tiles of dQ, each in its turn.
template <class Tiles>
__device__ void add_dQ(const Task& task, const Steps& steps, Outbox<Tiles>& out) {
    int step = 0;
    for (int tile = 0, i0 = steps.i0; tile < steps.tiles; ++tile, i0 += steps.stride) {
        // The tiles of K that see this tile of Q, 0 to `last`, add as they are drawn.
        const int hidden_from = task.causal ? i0 + Tiles::Br + (task.N_kv - task.N_q) : task.N_kv;
        const int last = (min(task.N_kv, hidden_from) - 1) / Tiles::Bc;
        const int j = steps.j0 / Tiles::Bc;
        const unsigned turn =
            j >= task.long_tiles ? last - j : max(0, last + 1 - task.long_tiles) + j;
        for (int head = steps.head; head < steps.head + steps.group; ++head, ++step) {
            const int64_t row = int64_t{head} * task.padded + i0;
            flash::mbarrier_wait(&out.full, step % 2);          // four warps have stored it,
            flash::fence_proxy_async();                         // and TMA sees it
            flash::semaphore_wait(&task.turns[row / 64], turn); // as many blocks have added
            if (turn == 0) {                                    // the first one begins the sum
                flash::bulk_store(task.dQ_sum + row * Tiles::d, out.tile, sizeof(out.tile));
            } else {
                flash::bulk_reduce_add(task.dQ_sum + row * Tiles::d, out.tile, sizeof(out.tile));
            }
            flash::bulk_commit();
            // TMA has read the tile: warps may store the next one, and the block may end
            flash::bulk_wait_read<0>();
            flash::mbarrier_arrive(&out.empty);
            flash::bulk_wait<0>(); // the sum is in memory: the next block may add
            flash::semaphore_add(&task.turns[row / 64]);
        }
    }
}

/// dK = scale dS^T Q, dV = P^T dO, dQ_sum += dS K: one block per tile of K and V, along the group's
/// tiles of Q.
template <class T, class Tiles>
__global__ __launch_bounds__(Tiles::threads, 1) void gradients(const __grid_constant__ Task task) {
    auto& smem = *flash::dynamic_shared<Shared<Tiles>>();
    if (threadIdx.x == 0) {
        smem.number = atomicAdd(task.drawn, 1);
        flash::mbarrier_init(&smem.KV_full, 1);
        smem.ring.init(4 * Tiles::consumers); // one arrival per warp
        smem.dQ.init();
        flash::fence_mbarrier_init();
    }
    __syncthreads(); // the barriers are there for all, and the number
    flash::Tile K = flash::tile_of(smem.number, task.order); // the last tile of K first,
    if (K.i < task.long_tiles) {
        K.i = task.long_tiles - 1 - K.i; // and among the long ones the longest
    }
    const Steps steps = upwards(Steps(K.head, K.i, Tiles::Bc, Tiles::Br, task));
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

/// The order in which tiles of K are drawn: in waves of as many heads as fill the GPU twice. Blocks
/// of one head wait for each other, so it is good to have many heads at work.
flash::TileOrder order_of_turns(const flash::Problem& p, int Bc, int places) {
    const int kv_heads = flash::as_int(p.batch * p.kv_heads, "batch x kv-heads"),
              Tc = static_cast<int>(flash::ceil_div(p.kv_len, Bc));
    flash::as_int(int64_t{kv_heads} * Tc, "batch x kv-heads x tiles of K");
    return {kv_heads, std::clamp(2 * places / Tc, 1, kv_heads), Tc};
}

/// One that counts draws, and one for each 64 rows of dQ that counts turns.
int64_t counters(const flash::Problem& p) {
    return 1 + p.batch * p.heads * flash::padded_rows(p) / 64;
}

template <class T, class Tiles>
void run(const flash::Problem& p, const T* Q, const T* K, const T* V, const T* O, const float* LSE,
         const T* dO, T* dQ, T* dK, T* dV, void* workspace) {
    flash::Workspace memory(workspace);
    const auto parts = flash::backward_parts(memory, p);
    unsigned* const counts = memory.part<unsigned>(counters(p), "turns");
    flash::start_before_backward(p, O, LSE, dO, parts.Rows, parts.dQ_sum, counts, counters(p));
    const int places =
        flash::resident_blocks(gradients<T, Tiles>, Tiles::threads, sizeof(Shared<Tiles>));
    const auto order = order_of_turns(p, Tiles::Bc, places);
    // With few blocks, none of the longest may begin when the others are about to end.
    const bool few = order.blocks() < 4 * places;
    const int long_tiles = p.causal && few ? order.Tr / 2 : 0;
    const Task task{task_of<T, Tiles>(p, Q, K, V, dO, dK, dV, parts, order), counts, counts + 1,
                    long_tiles};
    flash::launch(gradients<T, Tiles>, order.blocks(), Tiles::threads, sizeof(Shared<Tiles>), task);
    start_after<T, Tiles>(p, parts.dQ_sum, dQ);
}

} // namespace

int64_t workspace_bytes(const flash::Problem& p) {
    return flash::backward_parts_bytes(p) + flash::part_bytes<unsigned>(counters(p));
}

template <class T>
void attention_backward(const flash::Problem& p, const T* Q, const T* K, const T* V, const T* O,
                        const float* LSE, const T* dO, T* dQ, T* dK, T* dV, void* workspace) {
    flash::for_head_dim<head_dims>(p.head_dim, [&](auto d) {
        run<T, Tiles<d>>(p, Q, K, V, O, LSE, dO, dQ, dK, dV, workspace);
    });
}

template decltype(attention_backward<flash::Half>) attention_backward<flash::Half>;
template decltype(attention_backward<flash::Bfloat16>) attention_backward<flash::Bfloat16>;

} // namespace backward_ordered
