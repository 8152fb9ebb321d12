// backward_window: gradients under a sliding window, and of an attention sink.
//
// The idea: with a window a tile of keys is seen by a band of queries, however long the text is. So
// a block's way along the queries has two ends. Both edges of the band cut through tiles: a query
// may come too early for a key, or too late. At d = 128 and W = 128:
//
//      tiles of 64 queries   0     1     2     3     4     5
//      keys   0 - 127      early early late  late
//      keys 128 - 255                  early early late  late
//
// Keys that no query sees any more have no step, and dK = dV = 0. A sink owns no key: it is part of
// LSE, so the loop has to know nothing of it. Its own gradient is a sum over rows, made by a kernel
// of its own, in an order that never changes.
//
// Parent: backward_late_dq. The loop, the writer and what is around them are in
// common/cuda/derived/late_dq.hpp and backward_steps.hpp; the loop asks hide_old_keys for the
// second mask. Look at: in_band, and blocks without a step.
// Gained: not yet timed on a GPU. As counted, at d = 128 and W = 128: four steps per block in place
// of N_q / 64. First published: FlashAttention 2.3 (2023), for windows; FlashAttention-4 (2026),
// for a sink's gradient on Hopper.
#include "steps/48_backward_window/backward_window.hpp"

#include <algorithm>

#include "common/cuda/cuda.hpp"
#include "common/cuda/derived/around_backward.hpp"
#include "common/cuda/derived/backward_steps.hpp"
#include "common/cuda/derived/late_dq.hpp"
#include "common/cuda/derived/ring.hpp"
#include "common/cuda/derived/tile_order.hpp"
#include "common/cuda/ptx/exp2.hpp"
#include "common/cuda/ptx/mbarrier.hpp"
#include "common/cuda/ptx/warpgroup.hpp"

namespace backward_window {
namespace {

using namespace flash::backward; // what backward_wgmma and backward_late_dq have around their loops

template <class Tiles> using Shared = LateShared<Tiles>;

struct Task : flash::backward::Task {
    int window; // W, or N_kv where there is none: no key is seen by more queries
};

/// The same way without the tiles of Q that see none of the block's keys any more. Query i sees key
/// j if i < j - (N_kv - N_q) + W. No tile is left where no query sees a key.
template <class Tiles> __device__ Steps in_band(Steps steps, const Task& task) {
    const int last_key = min(steps.j0 + Tiles::Bc, task.N_kv) - 1;
    const int behind = last_key - (task.N_kv - task.N_q) + task.window; // the first that doesn't
    const int queries = max(0, min(behind, task.N_q));
    const int passed =
        (task.N_q + Tiles::Br - 1) / Tiles::Br - (queries + Tiles::Br - 1) / Tiles::Br;
    steps.i0 += passed * steps.stride;
    steps.tiles -= passed;
    return steps;
}

/// The band's other edge, queries that come too late: P = 0 where a key lies W or more before the
/// query's own. `query` is the tile's first one, counted from the block's first key.
template <class Tiles>
__device__ void hide_old_keys(const Task& task, float (&P_reg)[Tiles::Br / 8][4],
                              const Place<Tiles>& place, int query) {
    // key r of the block is seen by the tile's queries before `behind` + r
    const int behind = task.window - (query + (task.N_kv - task.N_q));
    if (behind >= Tiles::Br) { // all of them see all keys
        return;
    }
#pragma unroll
    for (int n = 0; n < Tiles::Br / 8; ++n) {
        for (int e = 0; e < 4; ++e) {
            const int key = 64 * place.role + place.row + e / 2 * 8;
            if (8 * n + 2 * place.t + e % 2 >= behind + key) {
                P_reg[n][e] = 0;
            }
        }
    }
}

/// What a consumer does where no query sees a key of the block: dK = dV = 0.
template <class T, class Tiles>
__device__ void store_zeros(const Task& task, const Steps& steps, Shared<Tiles>& smem) {
    constexpr int barrier = 6; // any that compute does not need at the same time
    float dK_reg[Tiles::d / 8][4] = {};
    const float dV_reg[Tiles::d / 8][4] = {};
    store_gradients<T>(task, steps, smem, Place<Tiles>(), dK_reg, dV_reg, barrier);
}

/// dK = scale dS^T Q, dV = P^T dO, dQ_sum += dS K: one block per tile of K and V, along the group's
/// tiles of Q that see it.
template <class T, class Tiles>
__global__ __launch_bounds__(Tiles::threads, 1) void gradients(const __grid_constant__ Task task) {
    auto& smem = *flash::dynamic_shared<Shared<Tiles>>();
    if (threadIdx.x == 0) {
        flash::mbarrier_init(&smem.KV_full, 1);
        smem.ring.init(4 * Tiles::consumers); // one arrival per warp
        smem.dQ.init();
        flash::fence_mbarrier_init();
    }
    __syncthreads(); // the barriers are there for all
    const flash::Tile K = flash::tile_of(blockIdx.x, task.order);
    // Tile 0 of K comes first: with a mask it is the longest. With a window most are as long, and
    // the last ones the shortest.
    const Steps steps =
        in_band<Tiles>(Steps(K.head, task.order.Tr - 1 - K.i, Tiles::Bc, Tiles::Br, task), task);
    const bool seen = steps.tiles > 0;
    if (threadIdx.x / warpgroup == Tiles::consumers) {
        flash::give_registers<Tiles::producer_registers>();
        if (threadIdx.x % warpgroup == 0 && seen) { // nobody would wait for K and V
            fetch(task, steps, smem);
        } else if (threadIdx.x % warpgroup == 32) {
            // of another warp: neither may hold up the other
            add_dQ(task, steps, smem.dQ);
        }
    } else {
        flash::take_registers<Tiles::consumer_registers>();
        if (seen) {
            compute<T, Tiles>(task, steps, smem);
        } else {
            store_zeros<T, Tiles>(task, steps, smem);
        }
    }
}

/// dsink of one head: a row gives the sink the weight P = exp(sink - LSE), and the sink has no V,
/// so its dP is 0 and dS = P (0 - delta). The block adds up all rows, always in the same order.
__global__ void sink_gradient(const float* sink, const float* LSE, const flash::TwoRows* Rows,
                              float* dsink, int batch, int N_q, int padded) {
    const int h = blockIdx.x, H = gridDim.x;
    float* const sums = flash::dynamic_shared<float>(); // one per thread
    float sum = 0;
    for (int b = 0; b < batch; ++b) {
        const int64_t head = int64_t{b} * H + h;
        for (int i = threadIdx.x; i < N_q; i += blockDim.x) {
            // In natural units, in which every finite sink has room. Without a sink there is no
            // weight, and exp(-inf - -inf) would be NaN.
            const float x = -fabsf(sink[h] - LSE[head * N_q + i]);
            const float P = sink[h] > -INFINITY ? flash::fast_exp2(x * flash::log2_e) : 0.0f;
            sum -= P * Rows[(head * padded + i) / 2].delta[i % 2];
        }
    }
    sums[threadIdx.x] = sum;
    for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
        __syncthreads(); // both sums have been stored
        if (threadIdx.x < half) {
            sums[threadIdx.x] += sums[threadIdx.x + half];
        }
    }
    if (threadIdx.x == 0) {
        dsink[h] = sums[0];
    }
}

template <class T, class Tiles>
void run(const flash::Problem& p, const T* Q, const T* K, const T* V, const float* sink, const T* O,
         const float* LSE, const T* dO, T* dQ, T* dK, T* dV, float* dsink, void* workspace) {
    flash::Workspace memory(workspace);
    const auto parts = flash::backward_parts(memory, p);
    flash::start_before_backward(p, O, LSE, dO, parts.Rows, parts.dQ_sum);
    const int places =
        flash::resident_blocks(gradients<T, Tiles>, Tiles::threads, sizeof(Shared<Tiles>));
    const auto order = order_of(p, Tiles::Bc, places);
    const int64_t window = p.window > 0 ? std::min(p.window, p.kv_len) : p.kv_len;
    const Task task{task_of<T, Tiles>(p, Q, K, V, dO, dK, dV, parts, order),
                    static_cast<int>(window)};
    flash::launch(gradients<T, Tiles>, order.blocks(), Tiles::threads, sizeof(Shared<Tiles>), task);
    start_after<T, Tiles>(p, parts.dQ_sum, dQ);
    if (sink != nullptr) {
        constexpr int threads = 1024; // a power of 2
        flash::launch(sink_gradient, static_cast<int>(p.heads), threads, threads * sizeof(float),
                      sink, LSE, parts.Rows, dsink, static_cast<int>(p.batch), task.N_q,
                      task.padded);
    }
}

} // namespace

int64_t workspace_bytes(const flash::Problem& p) { return flash::backward_parts_bytes(p); }

template <class T>
void attention_backward(const flash::Problem& p, const T* Q, const T* K, const T* V,
                        const float* sink, const T* O, const float* LSE, const T* dO, T* dQ, T* dK,
                        T* dV, float* dsink, void* workspace) {
    flash::for_head_dim<head_dims>(p.head_dim, [&](auto d) {
        run<T, Tiles<d>>(p, Q, K, V, sink, O, LSE, dO, dQ, dK, dV, dsink, workspace);
    });
}

template decltype(attention_backward<flash::Half>) attention_backward<flash::Half>;
template decltype(attention_backward<flash::Bfloat16>) attention_backward<flash::Bfloat16>;

} // namespace backward_window
