// backward_wgmma: The backward pass with Hopper's units.
//
// The idea: the five products of backward_one_kernel by TMA and wgmma. One thread fetches Q and dO,
// as in warp_specialization. Two warpgroups own 64 keys each, and with them dK and dV. A tile of dQ
// adds up over all 128 keys, so it needs dS of both. In each step they meet at a barrier when both
// halves of dS are in shared memory. Then each makes one half of dQ, and adds it to memory by
// atomics.
//
//   tensor cores  S, dP ....... | dV .................. | dQ .. dK ........
//   consumers     | P = exp(S)  | dS, store it | meet    |     | add dQ
//
// A new kernel: of its parent, backward_one_kernel, only the products are left, and what happens
// before and after the loop.
// Look at: what each wait leaves running, which operands are read across their rows (transpose_B),
// and how dS is turned.
// First published: FlashAttention-3 (Shah and others, 2024) has these products and roles.
#include "steps/45_backward_wgmma/backward_wgmma.hpp"

#include <algorithm>

#include "common/cuda/cuda.hpp"
#include "common/cuda/derived/around_backward.hpp"
#include "common/cuda/derived/ring.hpp"
#include "common/cuda/derived/store_tile.hpp"
#include "common/cuda/derived/swizzle.hpp"
#include "common/cuda/derived/tile_order.hpp"
#include "common/cuda/ptx/exp2.hpp"
#include "common/cuda/ptx/mbarrier.hpp"
#include "common/cuda/ptx/mma.hpp"
#include "common/cuda/ptx/reduction.hpp"
#include "common/cuda/ptx/stmatrix.hpp"
#include "common/cuda/ptx/tma.hpp"
#include "common/cuda/ptx/unpack.hpp"
#include "common/cuda/ptx/warpgroup.hpp"
#include "common/cuda/ptx/wgmma.hpp"

namespace backward_wgmma {
namespace {

constexpr int warpgroup = 128; // threads

/// A block owns Bc keys, 64 per consumer, and walks along the queries in tiles of Br.
template <int d_> struct Tiles {
    static constexpr int d = d_;
    static constexpr int consumers = 2; // warpgroups that compute; one more fetches
    static constexpr int threads = warpgroup * (consumers + 1);
    static constexpr int stages = 2; // tiles of Q, and of dO, that are in shared memory
    static constexpr int Bc = 64 * consumers;
    static constexpr int Br = d == 64 ? 128 : 64; // as many as the registers of S and dP allow
    using KV = flash::SwizzledTile<d, 64>;        // of one consumer
    using Q = flash::SwizzledTile<d, Br>;         // and dO
    using dS = flash::SwizzledTile<Bc, Br>;       // a row is a query
    // of a thread, which begins with 168
    static constexpr int consumer_registers = 240, producer_registers = 24;
    static_assert(warpgroup * (consumers * consumer_registers + producer_registers) <=
                  threads * 168);
};

struct Task {
    flash::TensorMap Q, K, V, dO, dK, dV;
    const flash::TwoRows* Rows;
    float* dQ_sum;          // in the order of the fragments
    flash::TileOrder order; // of the tiles of K
    int padded;             // rows of a head in Rows and dQ_sum
    int group;              // query heads to one K/V head
    int N_q, N_kv;
    float scale;
    bool causal;
};

/// What one step needs of the queries: it comes and goes together.
template <class Tiles> struct Stage {
    typename Tiles::Q Q, dO;
    flash::TwoRows rows[Tiles::Br / 2]; // LSE and delta
    static constexpr int bytes = 2 * Tiles::Q::bytes + Tiles::Br / 2 * sizeof(flash::TwoRows);
};

template <class Tiles> struct Shared {
    typename Tiles::KV K[Tiles::consumers], V[Tiles::consumers];
    flash::Ring<Tiles::stages, Stage<Tiles>> ring;
    typename Tiles::dS dS[2]; // of even and of odd steps
    uint64_t KV_full;
};

/// A block's way along the queries: from the last tile of Q to the first that sees one of its keys,
/// and at each tile through the heads of its group. Blocks of the same heads are then near the same
/// queries at the same time, and share them in L2.
struct Steps {
    int kv_head, j0;       // of K and V; the block's first key
    int head, group;       // the first head of Q; how many
    int i0, stride, tiles; // the first query of the first tile; from tile to tile; how many tiles

    __device__ Steps(int kv_head_, int j, int Bc, int Br, const Task& task)
        : kv_head(kv_head_), j0(j * Bc), head(kv_head * task.group), group(task.group) {
        // Query i sees key j if i >= j - (N_kv - N_q). The last query sees every key, so there is a
        // tile to begin with.
        const int first = task.causal ? max(0, j0 - (task.N_kv - task.N_q)) / Br : 0;
        const int last = (task.N_q - 1) / Br;
        i0 = last * Br;
        stride = -Br;
        tiles = last - first + 1;
    }
};

/// The producer's part: one thread.
template <class Tiles>
__device__ void fetch(const Task& task, const Steps& steps, Shared<Tiles>& smem) {
    flash::mbarrier_expect_tx(&smem.KV_full, sizeof(smem.K) + sizeof(smem.V));
    for (int w = 0; w < Tiles::consumers; ++w) {
        const int key[] = {0, steps.j0 + 64 * w, 0, steps.kv_head};
        flash::tma_load<4>(smem.K[w].data, task.K, key, &smem.KV_full);
        flash::tma_load<4>(smem.V[w].data, task.V, key, &smem.KV_full);
    }
    flash::RingPlace<Tiles::stages> at;
    for (int tile = 0, i0 = steps.i0; tile < steps.tiles; ++tile, i0 += steps.stride) {
        for (int head = steps.head; head < steps.head + steps.group; ++head, at.next()) {
            uint64_t* full = &smem.ring.full[at.stage];
            auto& stage = smem.ring.tile[at.stage];
            smem.ring.acquire(at); // all warps have read the stage's tiles and rows
            flash::mbarrier_expect_tx(full, stage.bytes);
            flash::tma_load<4>(stage.Q.data, task.Q, {0, i0, 0, head}, full);
            flash::tma_load<4>(stage.dO.data, task.dO, {0, i0, 0, head}, full);
            flash::bulk_load(stage.rows, task.Rows + (int64_t{head} * task.padded + i0) / 2,
                             sizeof(stage.rows), full);
        }
    }
}

/// What a consumer thread owns. Of a C fragment of S^T it has keys g and g + 8, and queries 2t and
/// 2t + 1.
template <class Tiles> struct Place {
    int role;     // which of the consumers
    int warp_row; // the warp's first row among the 64 of its warpgroup
    int row, t;   // the lane's g there

    __device__ Place() {
        role = flash::warpgroup_of_thread();
        warp_row = threadIdx.x % warpgroup / 32 * 16;
        row = warp_row + threadIdx.x % 32 / 4;
        t = threadIdx.x % 4;
    }
};

/// The operands in shared memory. Q and dO serve twice: as they are, and across their rows, whose
/// next 64 columns are a panel further on.
template <class Tiles> struct Operands {
    uint64_t K_own, V_own; // the consumer's 64 keys
    uint64_t Q, dO;        // of stage 0

    __device__ Operands(Shared<Tiles>& smem, const Place<Tiles>& place) {
        constexpr int Q_panel = 128 * Tiles::Br;
        K_own = flash::wgmma_descriptor(smem.K[place.role].data, 0, 1024);
        V_own = flash::wgmma_descriptor(smem.V[place.role].data, 0, 1024);
        Q = flash::wgmma_descriptor(smem.ring.tile[0].Q.data, Q_panel, 1024);
        dO = flash::wgmma_descriptor(smem.ring.tile[0].dO.data, Q_panel, 1024);
    }
};

/// LSE of the lane's two queries in each C fragment. `rows` begins with those in the first one;
/// eight queries further on are four of `rows`.
template <int n8> __device__ void read_LSE(float (&LSE_reg)[n8][2], const flash::TwoRows* rows) {
#pragma unroll
    for (int n = 0; n < n8; ++n) {
        LSE_reg[n][0] = rows[4 * n].LSE_log2[0];
        LSE_reg[n][1] = rows[4 * n].LSE_log2[1];
    }
}

/// Their delta, likewise.
template <int n8>
__device__ void read_delta(float (&delta_reg)[n8][2], const flash::TwoRows* rows) {
#pragma unroll
    for (int n = 0; n < n8; ++n) {
        delta_reg[n][0] = rows[4 * n].delta[0];
        delta_reg[n][1] = rows[4 * n].delta[1];
    }
}

/// P = exp(scale S - LSE), in the place of S^T: the lane's first key is `row` of the tile, whose
/// rows from `keys` on are padding. Row r is seen by the queries from r - on_diagonal on. Queries
/// of padding have Q = dO = 0: they add P times 0 to dV, and dS = P (0 - 0) = 0 times 0 to dK.
template <class Tiles>
__device__ void weights(float (&S_reg)[Tiles::Br / 8][4], const float (&LSE_reg)[Tiles::Br / 8][2],
                        float scale, int row, int t, int keys, int on_diagonal) {
    constexpr int n8 = Tiles::Br / 8;
#pragma unroll
    for (int n = 0; n < n8; ++n) {
        for (int e = 0; e < 4; ++e) {
            const float x = fmaf(S_reg[n][e], scale * flash::log2_e, -LSE_reg[n][e % 2]);
            S_reg[n][e] = flash::fast_exp2(-fabsf(x));
        }
    }
    if (keys < Tiles::Bc || on_diagonal < Tiles::Bc - 1) { // an edge
#pragma unroll
        for (int n = 0; n < n8; ++n) {
            for (int e = 0; e < 4; ++e) {
                const int key = row + e / 2 * 8, query = 8 * n + 2 * t + e % 2;
                if (key >= keys || key - on_diagonal > query) {
                    S_reg[n][e] = 0;
                }
            }
        }
    }
}

/// dS = P (dP - delta), in the place of dP. P is packed: registers r and r + 2 of an A fragment are
/// row g + 8 r of two C fragments.
template <class T, int n8>
__device__ void gradient_of_scores(float (&dP_reg)[n8][4], const uint32_t (&P_reg)[n8 / 2][4],
                                   const float (&delta_reg)[n8][2]) {
#pragma unroll
    for (int n = 0; n < n8; ++n) {
        const int k = n / 2, right = n % 2 * 2; // of A fragment k the left or the right half
        for (int r = 0; r < 2; ++r) {
            const float2 P = flash::unpack<T>(P_reg[k][right + r]);
            dP_reg[n][2 * r] = P.x * (dP_reg[n][2 * r] - delta_reg[n][0]);
            dP_reg[n][2 * r + 1] = P.y * (dP_reg[n][2 * r + 1] - delta_reg[n][1]);
        }
    }
}

/// Writes the warp's 16 keys of dS, transposed on the way: lanes name the rows of four 8 x 8 tiles,
/// two of 8 keys side by side, and below them, 8 queries further on, two more.
template <class Tiles>
__device__ void store_dS(char* dS_smem, const Place<Tiles>& place,
                         const uint32_t (&dS_reg)[Tiles::Br / 16][4]) {
    const int lane = threadIdx.x % 32;
    const int key = 64 * place.role + place.warp_row;
    char* const own = dS_smem + Tiles::dS::offset(lane / 16 * 8 + lane % 8, key / 8 + lane / 8 % 2);
#pragma unroll
    for (int k = 0; k < Tiles::Br / 16; ++k) { // 16 queries are 2048 bytes
        flash::stmatrix_x4_trans(own + 2048 * k, dS_reg[k]);
    }
}

/// Starts 64 x 64 of dQ = dS K. A k16 step is 16 keys: 32 bytes of each row of dS, whose next 64
/// keys are a panel further on, and 16 rows of K, which are read across. K is a tile per consumer.
template <class T, class Tiles>
__device__ void start_dQ(float (&dQ_reg)[8][4], uint64_t dS, uint64_t K) {
    flash::wgmma_fence();
#pragma unroll
    for (int k = 0; k < Tiles::Bc / 16; ++k) {
        const int owner = k / 4; // of the 16 keys
        flash::wgmma_m64k16<T, 64, true>(
            dQ_reg, flash::advance(dS, owner * 128 * Tiles::Br + k % 4 * 32),
            flash::advance(K, owner * Tiles::KV::bytes + k % 4 * 2048), k > 0);
    }
    flash::wgmma_commit();
}

/// dK and dV leave by TMA, through the places of K and V, which no product reads any more. Named
/// barriers `barrier` and the next one are the consumers'.
template <class T, class Tiles>
__device__ void store_gradients(const Task& task, const Steps& steps, Shared<Tiles>& smem,
                                const Place<Tiles>& place, float (&dK_reg)[Tiles::d / 8][4],
                                const float (&dV_reg)[Tiles::d / 8][4], int barrier) {
    using KV = typename Tiles::KV;
    const int role = place.role, key[] = {0, steps.j0 + 64 * role, 0, steps.kv_head};
    flash::scale_rows(dK_reg, {task.scale, task.scale});
    flash::store_tile<T, KV>(task.dK, key, smem.K[role].data, place.row, dK_reg, barrier + role);
    flash::store_tile<T, KV>(task.dV, key, smem.V[role].data, place.row, dV_reg, barrier + role);
}

/// A consumer's part: dK and dV of 64 keys, and half of each tile of dQ.
template <class T, class Tiles>
__device__ void compute(const Task& task, const Steps& steps, Shared<Tiles>& smem) {
    constexpr int d = Tiles::d, Br = Tiles::Br, both = Tiles::consumers * warpgroup;
    constexpr int met = 1, through = 2, stored = 3; // named barriers; `stored`: one per consumer
    const Place<Tiles> place;
    const Operands<Tiles> operands(smem, place);
    // The warpgroup's square of a tile of dQ, 64 x 64: half of the rows, or else half of the
    // columns. It takes 64 queries of dS, or 64 columns of K, which are a panel.
    const int dQ_row = Br == 128 ? 64 * place.role : 0, dQ_column = Br == 128 ? 0 : 64 * place.role;
    const uint64_t dS = flash::wgmma_descriptor(smem.dS[0].data + 128 * dQ_row, 0, 1024);
    const uint64_t K = flash::wgmma_descriptor(smem.K[0].data + 128 * dQ_column, 0, 1024);
    // Where the warp's 16 rows of it begin in the sum: they are d / 8 fragments of 128 floats.
    const int own_dQ = (dQ_row + place.warp_row) * d + 16 * dQ_column;
    const int row = 64 * place.role + place.row, keys = min(Tiles::Bc, task.N_kv - steps.j0);
    float dK_reg[d / 8][4] = {}, dV_reg[d / 8][4] = {}; // C fragments: 16 keys x 8 columns each
    flash::mbarrier_wait(&smem.KV_full, 0);             // K and V have landed
    flash::RingPlace<Tiles::stages> at;
    int step = 0;
    for (int tile = 0, i0 = steps.i0; tile < steps.tiles; ++tile, i0 += steps.stride) {
        for (int head = steps.head; head < steps.head + steps.group; ++head, ++step, at.next()) {
            const int stage = at.stage * sizeof(Stage<Tiles>);
            const uint64_t Q = flash::advance(operands.Q, stage),
                           dO = flash::advance(operands.dO, stage);
            const flash::TwoRows* rows = smem.ring.tile[at.stage].rows + place.t;
            // C fragments of S^T and dP^T: 16 keys x 8 queries each
            float S_reg[Br / 8][4], dP_reg[Br / 8][4];
            float LSE_reg[Br / 8][2], delta_reg[Br / 8][2]; // of the lane's two queries in each
            smem.ring.wait(at); // the tiles of Q and dO have landed, and their rows
            flash::start_ABt<T, d>(S_reg, operands.K_own, Q);
            flash::start_ABt<T, d>(dP_reg, operands.V_own, dO);
            flash::wgmma_wait<1>(S_reg); // dP goes on
            read_LSE(LSE_reg, rows);
            const int on_diagonal =
                task.causal ? i0 + (task.N_kv - task.N_q) - steps.j0 : Tiles::Bc;
            weights<Tiles>(S_reg, LSE_reg, task.scale, row, place.t, keys, on_diagonal);
            uint32_t P_reg[Br / 16][4]; // A fragments: 16 keys x 16 queries each
            flash::pack_A<T>(P_reg, S_reg);
            // for dS: until dV's wait nobody may read the product's own registers
            uint32_t P_kept[Br / 16][4];
            flash::copy_A(P_kept, P_reg);
            flash::start_AB<T>(dV_reg, P_reg, dO); // dV += P^T dO
            flash::wgmma_wait<1>(dP_reg);          // dV goes on
            read_delta(delta_reg, rows);
            gradient_of_scores<T>(dP_reg, P_kept, delta_reg);
            uint32_t dS_reg[Br / 16][4];
            flash::pack_A<T>(dS_reg, dP_reg);
            store_dS(smem.dS[step % 2].data, place, dS_reg);
            flash::fence_proxy_async(); // wgmma sees what this thread has written,
            // and both halves of dS are there. The other tile of dS may now be written: who comes
            // here has waited for the dQ that read it.
            flash::named_barrier_sync(met, both);
            float dQ_reg[8][4]; // C fragments: 16 queries x 8 columns each
            start_dQ<T, Tiles>(dQ_reg, flash::advance(dS, step % 2 * Tiles::dS::bytes), K);
            flash::start_AB<T>(dK_reg, dS_reg, Q); // dK += dS^T Q
            flash::wgmma_wait<1>(dQ_reg);          // dK goes on
            float* dQ = task.dQ_sum + (int64_t{head} * task.padded + i0) * d + own_dQ;
#pragma unroll
            for (int n = 0; n < 8; ++n) {
                flash::add_to_sum(dQ + 128 * n, dQ_reg[n]);
            }
            flash::wgmma_wait<0>(dK_reg);
            smem.ring.release(at); // this warp has read LSE and delta, and its products Q and dO
        }
    }
    flash::named_barrier_sync(through, both); // no warp's product still reads K or V
    store_gradients<T>(task, steps, smem, place, dK_reg, dV_reg, stored);
}

/// dK = scale dS^T Q, dV = P^T dO, dQ_sum += dS K: one block per tile of K and V, along the group's
/// tiles of Q.
template <class T, class Tiles>
__global__ __launch_bounds__(Tiles::threads, 1) void gradients(const __grid_constant__ Task task) {
    auto& smem = *flash::dynamic_shared<Shared<Tiles>>();
    if (threadIdx.x == 0) {
        flash::mbarrier_init(&smem.KV_full, 1);
        smem.ring.init(4 * Tiles::consumers); // one arrival per warp
        flash::fence_mbarrier_init();
    }
    __syncthreads(); // the barriers are there for all
    const flash::Tile K = flash::tile_of(blockIdx.x, task.order);
    // with a mask tile 0 of K is the longest, and comes first
    const Steps steps(K.head, task.order.Tr - 1 - K.i, Tiles::Bc, Tiles::Br, task);
    if (threadIdx.x / warpgroup == Tiles::consumers) {
        flash::give_registers<Tiles::producer_registers>();
        if (threadIdx.x % warpgroup == 0) {
            fetch(task, steps, smem);
        }
    } else {
        flash::take_registers<Tiles::consumer_registers>();
        compute<T>(task, steps, smem);
    }
}

template <class T, class Tiles>
Task task_of(const flash::Problem& p, const T* Q, const T* K, const T* V, const T* dO, T* dK, T* dV,
             const flash::BackwardParts& parts, const flash::TileOrder& order) {
    using Q_tile = typename Tiles::Q;
    using KV_tile = typename Tiles::KV;
    const int N_q = flash::as_int(p.q_len, "q-len"), N_kv = flash::as_int(p.kv_len, "kv-len");
    const int heads = flash::as_int(p.batch * p.heads, "batch x heads"),
              kv_heads = static_cast<int>(p.batch * p.kv_heads);
    return {.Q = flash::tile_map<Q_tile>(Q, heads, N_q),
            .K = flash::tile_map<KV_tile>(K, kv_heads, N_kv),
            .V = flash::tile_map<KV_tile>(V, kv_heads, N_kv),
            .dO = flash::tile_map<Q_tile>(dO, heads, N_q),
            .dK = flash::tile_map<KV_tile>(dK, kv_heads, N_kv),
            .dV = flash::tile_map<KV_tile>(dV, kv_heads, N_kv),
            .Rows = parts.Rows,
            .dQ_sum = parts.dQ_sum,
            .order = order,
            .padded = static_cast<int>(flash::padded_rows(p)),
            .group = heads / kv_heads,
            .N_q = N_q,
            .N_kv = N_kv,
            .scale = p.scale,
            .causal = p.causal};
}

/// The order of the tiles of K. A mask makes tiles unequally long. So the longest of eight heads
/// come first, or of all heads where there are few blocks: none may begin when the others are about
/// to end. Without a mask one head comes after the other. `places` is how many blocks the GPU holds
/// at once.
flash::TileOrder order_of(const flash::Problem& p, int Bc, int places) {
    const int kv_heads = flash::as_int(p.batch * p.kv_heads, "batch x kv-heads"),
              Tc = static_cast<int>(flash::ceil_div(p.kv_len, Bc));
    const int blocks = flash::as_int(int64_t{kv_heads} * Tc, "batch x kv-heads x tiles of K");
    const int together = blocks < 4 * places ? kv_heads : std::min(8, kv_heads);
    return {kv_heads, p.causal ? together : 1, Tc};
}

template <class T, class Tiles>
void run(const flash::Problem& p, const T* Q, const T* K, const T* V, const T* O, const float* LSE,
         const T* dO, T* dQ, T* dK, T* dV, void* workspace) {
    flash::Workspace memory(workspace);
    const auto parts = flash::backward_parts(memory, p);
    flash::start_before_backward(p, O, LSE, dO, parts.Rows, parts.dQ_sum);
    const int places =
        flash::resident_blocks(gradients<T, Tiles>, Tiles::threads, sizeof(Shared<Tiles>));
    const auto order = order_of(p, Tiles::Bc, places);
    flash::launch(gradients<T, Tiles>, order.blocks(), Tiles::threads, sizeof(Shared<Tiles>),
                  task_of<T, Tiles>(p, Q, K, V, dO, dK, dV, parts, order));
    flash::start_after_backward(p, static_cast<const float*>(parts.dQ_sum), dQ);
}

} // namespace

int64_t workspace_bytes(const flash::Problem& p) { return flash::backward_parts_bytes(p); }

template <class T>
void attention_backward(const flash::Problem& p, const T* Q, const T* K, const T* V, const T* O,
                        const float* LSE, const T* dO, T* dQ, T* dK, T* dV, void* workspace) {
    flash::for_head_dim<head_dims>(p.head_dim, [&](auto d) {
        run<T, Tiles<d>>(p, Q, K, V, O, LSE, dO, dQ, dK, dV, workspace);
    });
}

template decltype(attention_backward<flash::Half>) attention_backward<flash::Half>;
template decltype(attention_backward<flash::Bfloat16>) attention_backward<flash::Bfloat16>;

} // namespace backward_wgmma
