// fp8: e4m3 with scales per block, and a second level of accumulation.
//
// The idea: Hopper multiplies numbers of 8 bits twice as fast as those of 16. They need scales, and
// here each block of 128 rows of Q, K and V has one of its own. The tensor cores add their products
// in an accumulator of 14 bits, so that a sum over all keys loses what is small. Here a tile's P V
// is a sum of its own, and fp32 adds those up:
//
//      overlap   S = Q K^T   P = 2^(S - m)        O += P V
//      here      S = Q K^T   P = 2^(S - m_tile)   O += 2^(m_tile - m) v_scale (P V)
//
// Since the second level multiplies by a factor anyway, P may have a maximum of its own in each
// tile and row. Beside a key that towers over all others, the weights in other tiles then keep
// their bits.
//
// Against overlap: V comes transposed, because a product of 8 bits reads V only by columns; two
// warps beside the one that fetches transpose each tile on its way. V has a column of ones, and so
// P V holds the sum of the rounded weights, by which O is divided.
// Look at: who holds a tile of V, and until when; and what bounds P.
// Gained: no speed: 0.74 to 0.81 times FlashAttention-3's e4m3 at d = 128, on an H200.
//
// First published: transposing V in the kernel, and the order of keys that goes with it, by
// FlashAttention-3 (2024), section 3.3; the second level, for products of matrices, by DeepSeek-V3
// (2024), section 3.3.
#include "steps/38_fp8/fp8.hpp"

#include <algorithm>

#include "common/cuda/cuda.hpp"
#include "common/cuda/derived/persistent.hpp"
#include "common/cuda/derived/ring.hpp"
#include "common/cuda/derived/store_tile.hpp"
#include "common/cuda/derived/wgmma_forward.hpp"
#include "common/cuda/ptx/e4m3.hpp"
#include "common/cuda/ptx/ldmatrix.hpp"
#include "common/cuda/ptx/mma.hpp"
#include "common/cuda/ptx/stmatrix.hpp"
#include "common/cuda/ptx/warpgroup.hpp"
#include "common/cuda/ptx/wgmma.hpp"

namespace fp8 {
namespace {

using flash::Bfloat16;
using flash::E4m3;

constexpr int warpgroup = 128; // threads
constexpr int transposers = 2; // warps

struct Task : flash::Task {
    const float *q_scale, *k_scale, *v_scale;
    int Q_blocks, KV_blocks; // of scales, in a head
};

template <int head_dim> struct Tiles {
    static constexpr int d = head_dim;
    // tiles of K, tiles of V, and tiles of V transposed
    static constexpr int stages = d == 256 ? 2 : 3;
    static constexpr int Q_stages = d == 256 ? 1 : 2; // tiles of Q
    static constexpr int consumers = 2;
    static constexpr int Br = 64 * consumers;      // queries
    static constexpr int Bc = d == 256 ? 64 : 128; // keys: a block of scales, or half of one
    static_assert(flash::scale_block % Bc == 0 && flash::scale_block % 64 == 0);
    // Two elements of 8 bits are one of a swizzled tile.
    using Q = flash::SwizzledTile<d / 2, 64>; // of one consumer
    using KV = flash::SwizzledTile<d / 2, Bc>;
    static constexpr int V_columns = d + 8; // V's own, and ones
    using Vt = flash::SwizzledTile<Bc / 2, V_columns>;
    // P V of a tile comes in pieces where registers do not suffice. Each has 8 columns more, of
    // which the last piece's are the ones.
    static constexpr int pieces = d == 256 ? 4 : 1;
    static constexpr int piece_columns = d / pieces + 8;
    static constexpr int piece_bytes = d / pieces * Vt::row_bytes; // from one to the next
    using O = flash::SwizzledTile<d, 64>;                          // of one consumer

    static constexpr int threads = warpgroup * (consumers + 1);
    // A thread's registers, as in persistent_blocks.
    static constexpr int registers = 65536 / threads / 8 * 8;
    static constexpr int producer_registers = 40;
    static constexpr int consumer_registers = 232;
    static_assert(consumers * consumer_registers + producer_registers <=
                  (consumers + 1) * registers);
};

template <class Tiles> struct Shared : flash::PersistentShared<Tiles> {
    flash::Ring<Tiles::stages, typename Tiles::Vt> Vt;
    typename Tiles::O O[Tiles::consumers];
    bool over[Tiles::stages]; // of V: no tile comes here any more
};

/// How a transposing warp takes a tile of V, 32 keys and 16 columns at a time. A column becomes a
/// row, in which 16 keys are not in their own order, but in that of an A fragment that is P as the
/// lanes hold it:
///
///      a lane of P holds keys    2t 2t+1 2t+8 2t+9      (t = lane % 4)
///      as A, its positions are   4t 4t+1 4t+2 4t+3
///
/// ldmatrix takes two neighbouring columns for one element of 16 bits. Of each, a lane gets two
/// keys from every eight, 2t and 2t + 1; bytes of two registers then make four positions of one
/// column.
template <class Tiles> struct Transposer {
    using KV_tile = typename Tiles::KV;
    using Vt_tile = typename Tiles::Vt;
    int from, to;           // where the lane's row lies, of the first keys and columns
    unsigned first, second; // which bytes of two registers are a column

    __device__ Transposer() {
        const int lane = threadIdx.x % 32;
        from = KV_tile::offset(lane, 0);
        // A lane holds columns 2 (lane / 4) and the next. The rows of one store lie in eight
        // different columns of banks if the lower half of the lanes begins with the even one of
        // their two, and the upper half with the odd one.
        const int pair = lane % 8; // of columns: this lane names a row for what lane 4 pair holds
        const bool odd = (pair >= 4) != (lane >= 16);
        to = Vt_tile::offset(2 * pair + odd, lane / 8 % 2);
        first = lane < 16 ? 0x6420 : 0x7531;
        second = lane < 16 ? 0x7531 : 0x6420;
    }

    /// 16 columns, all keys: first all loads, so that none waits for a store.
    __device__ void transpose(const char* V, char* Vt, int columns16) const {
        constexpr int keys32 = Tiles::Bc / 32;
        // chunks further on, as in SwizzledTile::fragment
        const int panel = columns16 / KV_tile::chunks * KV_tile::rows * KV_tile::row_bytes;
        V += (from ^ 16 * (columns16 % KV_tile::chunks)) + panel;
        Vt += 16 * columns16 * Vt_tile::row_bytes;
        uint32_t V_reg[keys32][4]; // 8 keys each
#pragma unroll
        for (int k = 0; k < keys32; ++k) {
            flash::ldmatrix_x4_trans(V_reg[k], V + 32 * k * KV_tile::row_bytes);
        }
#pragma unroll
        for (int k = 0; k < keys32; ++k) {
            const uint32_t(&keys8)[4] = V_reg[k];
            const uint32_t Vt_reg[4] = {
                __byte_perm(keys8[0], keys8[1], first), __byte_perm(keys8[2], keys8[3], first),
                __byte_perm(keys8[0], keys8[1], second), __byte_perm(keys8[2], keys8[3], second)};
            flash::stmatrix_x4(Vt + (to ^ 32 * k), Vt_reg); // two chunks further on
        }
    }
};

/// A transposing warp's part: it takes every tile of V that lands, whosever it is. `warp` is 0
/// or 1.
template <class Tiles> __device__ void transpose_tiles(Shared<Tiles>& smem, int warp) {
    const Transposer<Tiles> transposer;
    flash::RingPlace<Tiles::stages> KV;
    while (true) {
        smem.V.wait(KV); // the tile of V has landed, or word that there is none
        if (smem.over[KV.stage]) {
            return;
        }
        smem.Vt.acquire(KV); // all warps have read the transposed tile before
        const char* const V = smem.V.tile[KV.stage].data;
        char* const Vt = smem.Vt.tile[KV.stage].data;
#pragma unroll 1
        for (int columns16 = warp; columns16 < Tiles::d / 16; columns16 += transposers) {
            transposer.transpose(V, Vt, columns16);
        }
        flash::fence_proxy_async(); // wgmma sees what this thread has written
        smem.Vt.commit(KV);
        smem.V.release(KV); // this warp has read the tile of V
        KV.next();
    }
}

/// Starts S = Q K^T of 64 rows of Q and a tile of K: k32 steps are 32 bytes apart in a panel of 128
/// columns, and panels a whole tile.
template <class Tiles, int fragments>
FLASH_DEVICE void start_S(float (&S_reg)[fragments][4], uint64_t Q, uint64_t K,
                          flash::SourceLocation location = flash::SourceLocation::here()) {
    flash::wgmma_fence();
#pragma unroll
    for (int k = 0; k < Tiles::d / 32; ++k) {
        const int panel = 128 * (k / 4);
        flash::wgmma_m64k32<8 * fragments>(S_reg, flash::advance(Q, panel * 64 + 32 * (k % 4)),
                                           flash::advance(K, panel * Tiles::Bc + 32 * (k % 4)),
                                           k > 0, location);
    }
    flash::wgmma_commit();
}

/// Starts P V of a tile, from zero.
template <int fragments, int k32>
FLASH_DEVICE void start_PV(float (&PV_reg)[fragments][4], const uint32_t (&P_reg)[k32][4],
                           uint64_t Vt,
                           flash::SourceLocation location = flash::SourceLocation::here()) {
    flash::wgmma_fence();
#pragma unroll
    for (int k = 0; k < k32; ++k) {
        flash::wgmma_m64k32<8 * fragments>(PV_reg, P_reg[k], flash::advance(Vt, 32 * k), k > 0,
                                           location);
    }
    flash::wgmma_commit();
}

/// What a lane knows of its two rows, g and g + 8 of its warp's.
struct Rows {
    float m[2] = {};         // that of O, l and l_rounded: the first tile's, as a rule
    float l[2] = {};         // the lane's own part of the row sums
    float l_rounded[2] = {}; // the same of the rounded weights, whole
};

/// S becomes P, and l adds up its rows. A score is S times `factor`, a logarithm to base 2, and a
/// weight is 2^(score - m_tile). m_tile is 8 less than the row's largest score in this tile: so the
/// largest weight is 256, and e4m3, which ends at 448, has bits for weights 2^17 times as small.
/// `to_O` is 2^(m_tile - m), by which O and l count this tile's weights. m is m_tile of the first
/// tile, and raised where l has become too large: then the result is true, and `keep` is what O and
/// l_rounded are to be scaled by, as l has been.
template <int fragments>
__device__ inline bool softmax(float (&S_reg)[fragments][4], Rows& rows, float (&to_O)[2],
                               float (&keep)[2], float factor, bool first) {
    constexpr float headroom = 8;   // 2^8
    constexpr float near = 0x1p20f; // up to here m_tile is rounded by 2^-4 at most
    constexpr float most = 0x1p38f; // of l, and of weights in O
    constexpr float farthest = 100; // from m: 2^100 times 256 is still finite
    float top[2], m_tile[2];
    flash::lane_max_if_positive(S_reg, top);
    if (__any_sync(0xffffffff, top[0] < 0 || top[1] < 0)) {
        flash::lane_max(S_reg, top);
    }
    for (int r = 0; r < 2; ++r) {
        // of a row that sees nothing here, a number still
        top[r] = fmaxf(flash::row_max(top[r]), -FLT_MAX);
        m_tile[r] = fmaxf(top[r] * factor - headroom, -FLT_MAX);
    }
    const bool far = __any_sync(0xffffffff, fabsf(m_tile[0]) > near || fabsf(m_tile[1]) > near);
    if (far) { // rounding must not make a weight too large: near `top` the difference is exact
#pragma unroll
        for (int n = 0; n < fragments; ++n) {
            for (int c = 0; c < 4; ++c) {
                S_reg[n][c] = fmaf(S_reg[n][c] - top[c / 2], factor, headroom);
            }
        }
    } else {
#pragma unroll
        for (int n = 0; n < fragments; ++n) {
            for (int c = 0; c < 4; ++c) { // elements 0 and 1 are row g's, 2 and 3 row g + 8's
                S_reg[n][c] = fmaf(S_reg[n][c], factor, -m_tile[c / 2]);
            }
        }
    }
    float sum[2] = {};
#pragma unroll
    for (int n = 0; n < fragments; ++n) {
        for (int c = 0; c < 4; ++c) {
            S_reg[n][c] = flash::fast_exp2(S_reg[n][c]);
            sum[c / 2] += S_reg[n][c];
        }
    }
    for (int r = 0; r < 2; ++r) {
        rows.m[r] = first ? m_tile[r] : rows.m[r];
        to_O[r] = flash::fast_exp2(fminf(m_tile[r] - rows.m[r], farthest));
        rows.l[r] = fmaf(sum[r], to_O[r], rows.l[r]);
    }
    // The question comes after the exponentials, and so they do not have to wait for P V.
    const bool raise = __any_sync(0xffffffff, rows.l[0] > most || rows.l[1] > most);
    if (raise) {
        for (int r = 0; r < 2; ++r) {
            const float rise = fmaxf(m_tile[r] - rows.m[r], 0.0f);
            keep[r] = flash::fast_exp2(-rise);
            rows.l[r] *= flash::fast_exp2(-fminf(rise, farthest)); // l before was nothing beside it
            rows.m[r] = fmaxf(rows.m[r], m_tile[r]);
            to_O[r] = flash::fast_exp2(m_tile[r] - rows.m[r]);
        }
    }
    return raise;
}

/// C fragments of 8 keys each, rounded to e4m3, as A fragments of 32: see transpose.
template <int k32>
__device__ inline void pack_P(uint32_t (&P)[k32][4], const float (&S)[4 * k32][4]) {
#pragma unroll
    for (int n = 0; n < 2 * k32; ++n) { // 16 keys
        const float(&left)[4] = S[2 * n];
        const float(&right)[4] = S[2 * n + 1];
        P[n / 2][n % 2 * 2] = flash::pack_e4m3(left[0], left[1], right[0], right[1]);
        P[n / 2][n % 2 * 2 + 1] = flash::pack_e4m3(left[2], left[3], right[2], right[3]);
    }
}

/// The second level: O, and the sum of the rounded weights, take a tile's P V. Its first piece has
/// been asked for; the others follow, one after the other, in the same registers.
template <class Tiles, int fragments>
__device__ inline void add_tile(float (&O_reg)[Tiles::d / 8][4], Rows& rows,
                                float (&PV_reg)[fragments][4],
                                const uint32_t (&P_reg)[Tiles::Bc / 32][4], uint64_t Vt,
                                const float (&to_O)[2], float v_scale) {
    constexpr int columns8 = fragments - 1; // of O in a piece
    const float scaled[2] = {to_O[0] * v_scale, to_O[1] * v_scale};
#pragma unroll
    for (int piece = 0; piece < Tiles::pieces; ++piece) {
        if (piece > 0) {
            start_PV(PV_reg, P_reg, flash::advance(Vt, piece * Tiles::piece_bytes));
        }
        flash::wgmma_wait<0>(PV_reg);
#pragma unroll
        for (int n = 0; n < columns8; ++n) {
            for (int c = 0; c < 4; ++c) {
                float& O = O_reg[piece * columns8 + n][c];
                O = fmaf(PV_reg[n][c], scaled[c / 2], O);
            }
        }
    }
    for (int r = 0; r < 2; ++r) { // the column of ones, behind the last piece
        rows.l_rounded[r] = fmaf(PV_reg[columns8][2 * r], to_O[r], rows.l_rounded[r]);
    }
}

/// A consumer's part in a tile of Q: 64 rows of O.
template <class Tiles>
__device__ void compute(const Task& task, flash::Tile tile, Shared<Tiles>& smem,
                        flash::RingPlace<Tiles::Q_stages> Q, flash::RingPlace<Tiles::stages>& KV) {
    constexpr int d = Tiles::d, Bc = Tiles::Bc;
    using KV_tile = typename Tiles::KV;
    using Vt_tile = typename Tiles::Vt;
    const int role = flash::warpgroup_of_thread();
    const int i0 = tile.i * Tiles::Br + role * Tiles::Q::rows;
    const int warp = threadIdx.x % warpgroup / 32, lane = threadIdx.x % 32;
    const int row = 16 * warp + lane / 4; // the lane's rows of the 64: this one, and row + 8
    const int loaded = visible_keys(task, tile.i * Tiles::Br, (tile.i + 1) * Tiles::Br);
    const int keys = visible_keys(task, i0, i0 + Tiles::Q::rows); // that some of the 64 rows see
    const int whole = visible_keys(task, i0);                     // that all of them see
    const int KV_head = tile.head / task.group;
    const float* const k_scale = task.k_scale + int64_t{KV_head} * task.KV_blocks;
    const float* const v_scale = task.v_scale + int64_t{KV_head} * task.KV_blocks;

    constexpr int row_bytes = KV_tile::row_bytes;
    const uint64_t Q_desc =
        flash::wgmma_descriptor(smem.Q.tile[Q.stage][role].data, 0, 8 * row_bytes, row_bytes);
    const uint64_t K_desc = flash::wgmma_descriptor(smem.K.tile, 0, 8 * row_bytes, row_bytes);
    const uint64_t V_desc =
        flash::wgmma_descriptor(smem.Vt.tile, 0, 8 * Vt_tile::row_bytes, Vt_tile::row_bytes);

    Rows rows;
    float keep[2], to_O[2], to_O_before[2];
    float O_reg[d / 8][4] = {};                // C fragments: 16 rows x 8 columns each
    float PV_reg[Tiles::piece_columns / 8][4]; // the same of a piece of one tile's P V
    float S_reg[Bc / 8][4];                    // C fragments: 16 rows x 8 keys each
    uint32_t P_reg[Bc / 32][4];                // A fragments: 16 rows x 32 keys each

    flash::RingPlace<Tiles::stages> before = KV; // the tile whose P V has not been asked for yet
    float q_scale = 0;
    int j0 = 0;
    if (keys > 0) { // the first tile, which has no P V beside it
        q_scale = task.q_scale[int64_t{tile.head} * task.Q_blocks + i0 / flash::scale_block] *
                  task.scale_log2;
        const float factor = fminf(q_scale * k_scale[0], FLT_MAX);
        smem.K.wait(KV); // the tile of K has landed
        start_S<Tiles>(S_reg, Q_desc, flash::advance(K_desc, KV.stage * KV_tile::bytes));
        flash::wgmma_wait<0>(S_reg);
        smem.K.release(KV); // this warp's product no longer reads the tile of K
        if (Bc > whole) {   // an edge: some row does not see the whole tile
            flash::mask(S_reg, task.N_kv, visible_keys(task, i0 + row));
        }
        softmax(S_reg, rows, to_O_before, keep, factor, true); // O is still 0
        pack_P(P_reg, S_reg);
        smem.Vt.wait(KV); // the tile of V has been transposed, for the next P V
        KV.next();
        j0 = Bc;
    }
    for (; j0 < keys; j0 += Bc) {
        const int block = j0 / flash::scale_block;
        const float factor = fminf(q_scale * k_scale[block], FLT_MAX);
        smem.K.wait(KV); // the tile of K has landed
        // S of this tile, and P V of the tile before
        start_S<Tiles>(S_reg, Q_desc, flash::advance(K_desc, KV.stage * KV_tile::bytes));
        const uint64_t V_before = flash::advance(V_desc, before.stage * sizeof(Vt_tile));
        start_PV(PV_reg, P_reg, V_before);
        // S is there, while P V goes on
        flash::wgmma_wait<1>(S_reg);
        smem.K.release(KV);    // this warp's product no longer reads the tile of K
        if (j0 + Bc > whole) { // an edge, as above
            flash::mask(S_reg, task.N_kv - j0, visible_keys(task, i0 + row) - j0);
        }
        if (softmax(S_reg, rows, to_O, keep, factor, false)) { // m is raised
            flash::scale_rows(O_reg, keep); // P V goes on: it has registers of its own
            for (int r = 0; r < 2; ++r) {
                rows.l_rounded[r] *= keep[r];
                to_O_before[r] *= keep[r];
            }
        }
        const float scale = v_scale[(j0 - Bc) / flash::scale_block]; // of the tile before
        // The tile of V has been transposed, for the next P V. This wait stands before the next
        // one, as in overlap.
        smem.Vt.wait(KV);
        add_tile<Tiles>(O_reg, rows, PV_reg, P_reg, V_before, to_O_before, scale);
        smem.Vt.release(before); // this warp's product no longer reads the tile of V
        pack_P(P_reg, S_reg);    // now that P V no longer reads P_reg
        for (int r = 0; r < 2; ++r) {
            to_O_before[r] = to_O[r];
        }
        before = KV;
        KV.next();
    }
    smem.Q.release(Q); // this warp has read the number of the tile, and its products no longer Q
    if (keys > 0) {    // the last P V, which has no S beside it
        const uint64_t V_before = flash::advance(V_desc, before.stage * sizeof(Vt_tile));
        const float scale = v_scale[(j0 - Bc) / flash::scale_block];
        start_PV(PV_reg, P_reg, V_before);
        add_tile<Tiles>(O_reg, rows, PV_reg, P_reg, V_before, to_O_before, scale);
        smem.Vt.release(before); // as above
    }
    // No row here sees the other tiles; each is given back once it is there. Whoever has waited for
    // the tile of V before knows that all readers of K have released what was in this place.
    for (; j0 < loaded; j0 += Bc) {
        smem.K.wait(KV);     // redundant: as just said
        smem.K.release(KV);  // the producer counts on this warp, too
        smem.Vt.wait(KV);    // the tile of V has been transposed
        smem.Vt.release(KV); // likewise
        KV.next();
    }

    float normalise[2];
    for (int r = 0; r < 2; ++r) {
        const float l = flash::row_sum(rows.l[r]);
        // a row that sees no key gets O = 0
        normalise[r] = rows.l_rounded[r] == 0 ? 0.0f : 1 / rows.l_rounded[r];
        if (lane % 4 == 0 && i0 + row + 8 * r < task.N_q) {
            task.LSE[int64_t{tile.head} * task.N_q + i0 + row + 8 * r] =
                rows.m[r] * flash::ln_2 + logf(l);
        }
    }
    flash::scale_rows(O_reg, normalise);
    flash::named_barrier_sync(1 + role, warpgroup); // the tile of O before has been read
    flash::store_tile<Bfloat16, typename Tiles::O>(task.O, {0, i0, 0, tile.head}, smem.O[role].data,
                                                   row, O_reg, 1 + role);
}

template <class Tiles>
__global__ __launch_bounds__(Tiles::threads, 1) // one block on an SM
    void fp8(const __grid_constant__ Task task, unsigned* drawn) {
    auto& smem = *flash::dynamic_shared<Shared<Tiles>>();
    if (threadIdx.x == 0) {
        smem.Q.init(4 * Tiles::consumers); // one arrival per warp
        smem.K.init(4 * Tiles::consumers);
        smem.V.init(transposers);
        smem.Vt.init(4 * Tiles::consumers, transposers);
        for (bool& over : smem.over) {
            over = false;
        }
        flash::fence_mbarrier_init();
    }
    // The last rows of V transposed, for good. wgmma sees them once the transposing warps, behind
    // this barrier, have passed a fence.
    constexpr int ones = Tiles::V_columns - Tiles::d;
    constexpr int words = Tiles::Vt::row_bytes / 4;
    for (int n = threadIdx.x; n < Tiles::stages * ones * words; n += Tiles::threads) {
        auto* const Vt = reinterpret_cast<uint32_t*>(smem.Vt.tile[n / (ones * words)].data);
        Vt[Tiles::d * words + n % (ones * words)] = 0x38383838; // four times 1
    }
    __syncthreads(); // the barriers are there for all, and so are the ones

    if (threadIdx.x / warpgroup == Tiles::consumers) { // the producer
        flash::give_registers<Tiles::producer_registers>();
        const int warp = threadIdx.x % warpgroup / 32;
        if (threadIdx.x % warpgroup == 0) {
            const auto end = flash::produce(task, drawn, smem);
            smem.V.acquire(end); // both warps have read the tile of V before, and its word
            smem.over[end.stage] = true;
            flash::mbarrier_arrive(&smem.V.full[end.stage]);
        } else if (warp >= 4 - transposers) {
            transpose_tiles(smem, warp - (4 - transposers));
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
        compute(task, flash::tile_of(number, task.order), smem, Q, KV);
        Q.next();
    }
}

template <class Tiles>
void run(const flash::Problem& p, const E4m3* Q, const E4m3* K, const E4m3* V, const float* q_scale,
         const float* k_scale, const float* v_scale, Bfloat16* O, float* LSE, void* workspace) {
    constexpr int smem_bytes = sizeof(Shared<Tiles>);
    const auto kernel = fp8<Tiles>;
    const int places = flash::resident_blocks(kernel, Tiles::threads, smem_bytes);
    const Task task = {
        flash::make_task<Tiles, typename Tiles::KV, typename Tiles::KV, typename Tiles::O>(
            p, Q, K, V, O, LSE, places),
        q_scale,
        k_scale,
        v_scale,
        static_cast<int>(flash::scale_blocks(p.q_len)),
        static_cast<int>(flash::scale_blocks(p.kv_len))};
    const int blocks = std::min(places, task.order.blocks());
    auto* drawn = flash::Workspace(workspace).part<unsigned>(1, "the number of drawn tiles");
    flash::clear(drawn, 1);
    flash::launch(kernel, blocks, Tiles::threads, smem_bytes, task, drawn);
}

} // namespace

int64_t workspace_bytes(const flash::Problem&) { return flash::part_bytes<unsigned>(1); }

void attention(const flash::Problem& p, const E4m3* Q, const E4m3* K, const E4m3* V,
               const float* q_scale, const float* k_scale, const float* v_scale, Bfloat16* O,
               float* LSE, void* workspace) {
    flash::for_head_dim<head_dims>(p.head_dim, [&](auto d) {
        run<Tiles<d>>(p, Q, K, V, q_scale, k_scale, v_scale, O, LSE, workspace);
    });
}

} // namespace fp8
