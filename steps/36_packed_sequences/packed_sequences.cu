// packed_sequences: a batch is one line of tokens: where a tile begins and ends is read from
// cu_seqlens.
//
// The idea: sequences of any lengths lie one after the other, without padding, and cu_seqlens, on
// the GPU, says where each of them ends. The host never reads it, so a tile's number alone does not
// say where the tile is: the producer walks along the sequences and counts their tiles. And a tile
// at a sequence's end reaches into the next one. A tensor map cuts off what is beyond a tensor, so
// here it gets three coordinates for the row: x is cut off, y moves the cut, z takes the surplus of
// x away:
//
//      row of the line = x + y - z              0 <= x < far
//      x = far - N + i, y = end, z = far        row i of the N rows before end; none behind them
//
// A stride cannot be negative, so that of z leads round all addresses: after far steps it is twice
// round 2^64 bytes, and far rows before where it began. NVIDIA does not document that this works.
//
// Against overlap: the producer walks, in place of computing where its tile is; a stage of Q has a
// Tile beside it, and not a number; maps have x, y and z. The consumers' loop is overlap's, with
// the sequence's N_q and N_kv. The walk takes a warp and registers: consumers give up eight for it.
// Look at: line_map, and Walk.
// Gained: on texts of 512 tokens at d = 128 1.13 to 1.22 times FlashAttention-4, on an H200.
// Products and bytes are those of the sequences, where padding has those of the longest for each.
// First published: NVIDIA's fused attention for BERT, in Apex (2021), for cu_seqlens; Triton's
// ragged_tma (2025), for maps that cut sequences off, round all addresses.
#include "steps/36_packed_sequences/packed_sequences.hpp"

#include <algorithm>

#include "common/cuda/cuda.hpp"
#include "common/cuda/derived/ring.hpp"
#include "common/cuda/derived/store_tile.hpp"
#include "common/cuda/derived/wgmma_forward.hpp"
#include "common/cuda/ptx/mma.hpp"
#include "common/cuda/ptx/warpgroup.hpp"
#include "common/cuda/ptx/wgmma.hpp"

namespace packed_sequences {
namespace {

using flash::visible_keys;
constexpr int warpgroup = 128; // threads
constexpr int far = 1 << 30;   // rows, more than a line has

struct Task {
    flash::TensorMap Q, K, V, O; // line_map
    float* LSE;
    const int *cu_seqlens_q, *cu_seqlens_kv;
    int total_q, total_kv; // rows of the lines
    int bound_q;           // of a sequence's length, for the walk
    int sequences, heads, group, places;
    float scale_log2;
    bool causal;
};

/// A tile of Q, and what its sequence is.
struct Tile {
    int head = -1;            // of Q; -1: there are no more tiles
    int i = 0;                // the tile is rows i Br to i Br + Br - 1 of the sequence
    int N_q = 0, N_kv = 0;    // of the sequence
    int q_end = 0, k_end = 0; // where it ends on the lines
    int causal = 0;           // a whole word, for the copy in shared memory
};

template <class Tiles> struct Shared {
    using Q_tiles = typename Tiles::Q[Tiles::consumers];
    flash::Ring<Tiles::Q_stages, Q_tiles> Q;
    flash::Ring<Tiles::stages, typename Tiles::KV> K, V;
    Tile place[Tiles::Q_stages]; // which tile of Q is in each stage
};

/// As in overlap, with two sizes at d = 64. `wide` is for many keys without a mask.
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
    static constexpr int producer_registers = d == 64 ? 32 : 40; // for the walk
    static constexpr int consumer_registers = consumers == 4 ? 112 : consumers == 3 ? 160 : 232;
    static_assert(consumers * consumer_registers + producer_registers <=
                  (consumers + 1) * registers);
};

/// The map of a line (total, heads, d) for tiles that end where a sequence does. The copy engine
/// sees {64, x, heads d / 64, y, z}. Both x and y go along the line, a row at a step. A step of z
/// goes 2^35 bytes ahead and a row back. Coordinates are {0, far - N + i, head d / 64, end, far}:
/// row i, and those after it, of the N rows before `end`. The far steps of z take off the far rows
/// of x, because far 2^35 bytes are twice 2^64, and addresses have 64 bits. The first row that is
/// not the sequence's has x = far, which is beyond the tensor.
template <class Tile, class T>
flash::TensorMap line_map(const T* line, int64_t total, int64_t heads) {
    constexpr int d = Tile::columns;
    const int64_t row = heads * d;
    return flash::make_tensor_map<5>(line, {64, far, heads * (d / 64), total + 1, far + 1},
                                     {row, 64, row, (int64_t{1} << 34) - row},
                                     {64, Tile::rows, d / 64, 1, 1});
}

/// A sequence's rows on a line: `length` of them, before `end`.
struct Sequence {
    int end, length;
};

/// Whatever the caller's table holds, no row outside of the line is touched.
__device__ inline Sequence sequence(const int* cu_seqlens, int b, int total) {
    const int begin = min(max(cu_seqlens[b], 0), total);
    const int end = min(max(cu_seqlens[b + 1], begin), total);
    return {end, end - begin};
}
__device__ inline Sequence queries_of(const Task& task, int b) {
    return sequence(task.cu_seqlens_q, b, task.total_q);
}
__device__ inline Sequence keys_of(const Task& task, int b) {
    return sequence(task.cu_seqlens_kv, b, task.total_kv);
}

/// The walk of the producer's warp along the sequences, a lane for each of 32, to the tiles whose
/// numbers it draws. These only rise, so it never turns back. It goes along the line in rounds: the
/// first is for sequences of more than half of the most tiles, the next for those of more than a
/// quarter, and so on, because what comes last should be short.
template <int Br> struct Walk {
    int most;        // tiles that a head may have in this round; the next one begins at half of it
    int begin = -32; // the sequence of lane 0; the first step has not been made yet
    Sequence own_q{}, own_k{}; // the lane's sequence
    int own = 0, end = 0;      // how many tiles it has in this round, and these and all before it

    static __device__ int tiles_of(int queries) { return (queries + Br - 1) / Br; }

    /// The tile of this number. All lanes of the warp call it together.
    __device__ Tile to(int number, const Task& task) {
        while (true) {
            const int passed = __popc(__ballot_sync(0xffffffff, end <= number));
            if (passed < 32) { // this lane's tiles are the first to end behind the number
                return tile(number, passed, task);
            }
            if (!step(task)) {
                return {};
            }
        }
    }

    /// On to the next 32 sequences. False: there are none any more, in no round.
    __device__ bool step(const Task& task) {
        const int lane = threadIdx.x % 32, before = __shfl_sync(0xffffffff, end, 31);
        begin += 32;
        if (begin >= task.sequences) {
            begin = 0;
            most /= 2;
        }
        if (most == 0) {
            return false;
        }
        const int b = begin + lane;
        own_q = b < task.sequences ? queries_of(task, b) : Sequence{};
        own_k = b < task.sequences ? keys_of(task, b) : Sequence{};
        const int Tr = tiles_of(own_q.length);
        own = Tr > most / 2 && Tr <= most ? task.heads * Tr : 0;
        end = own; // becomes the sum of the lane's and of those before it
        for (int distance = 1; distance < 32; distance *= 2) {
            const int others = __shfl_up_sync(0xffffffff, end, distance);
            end += lane >= distance ? others : 0;
        }
        end += before;
        return true;
    }

    /// The tile of this number, which is one of this lane's: of all heads of its sequence, in waves
    /// like block_order's, half as long.
    __device__ Tile tile(int number, int lane, const Task& task) const {
        const auto of_lane = [&](int x) { return __shfl_sync(0xffffffff, x, lane); };
        const Sequence queries = {of_lane(own_q.end), of_lane(own_q.length)};
        const Sequence keys = {of_lane(own_k.end), of_lane(own_k.length)};
        const int Tr = tiles_of(queries.length);
        const int wave_heads = task.causal ? min(max(task.places / Tr, 1), task.heads) : 1;
        const auto [head, i] =
            flash::tile_of(number - of_lane(end - own), {task.heads, wave_heads, Tr});
        return {head, i, queries.length, keys.length, queries.end, keys.end, task.causal};
    }
};

/// The producer's part in a tile of Q: as flash::fetch, on a line.
template <class Tiles>
__device__ void fetch(const Task& task, const Tile& tile, Shared<Tiles>& smem, int Q_stage,
                      flash::RingPlace<Tiles::stages>& KV) {
    constexpr int panels = Tiles::d / 64; // of a head
    const int i0 = tile.i * Tiles::Br;
    const int head = tile.head * panels, KV_head = tile.head / task.group * panels;
    const int x_q = far - tile.N_q, x_k = far - tile.N_kv;
    const int keys = visible_keys(tile, i0, i0 + Tiles::Br); // tiles beyond: never loaded
    uint64_t* const Q_full = &smem.Q.full[Q_stage];
    flash::mbarrier_expect_tx(Q_full, sizeof(smem.Q.tile[Q_stage]));
    for (int w = 0; w < Tiles::consumers; ++w) {
        const int i = i0 + w * Tiles::Q::rows;
        flash::tma_load<5>(smem.Q.tile[Q_stage][w].data, task.Q,
                           {0, x_q + i, head, tile.q_end, far}, Q_full);
    }
    for (int j0 = 0; j0 < keys; j0 += Tiles::Bc) {
        uint64_t* const K_full = &smem.K.full[KV.stage];
        uint64_t* const V_full = &smem.V.full[KV.stage];
        const int at[] = {0, x_k + j0, KV_head, tile.k_end, far};
        smem.K.acquire(KV); // all warps have read the tile of K before
        flash::mbarrier_expect_tx(K_full, Tiles::KV::bytes);
        flash::tma_load<5>(smem.K.tile[KV.stage].data, task.K, at, K_full);
        smem.V.acquire(KV); // all warps have read the tile of V before
        flash::mbarrier_expect_tx(V_full, Tiles::KV::bytes);
        flash::tma_load<5>(smem.V.tile[KV.stage].data, task.V, at, V_full);
        KV.next();
    }
}

/// The producer, a warp: its first lane draws numbers from a counter, all walk to their tiles, and
/// the first one fetches what these need.
template <class Tiles>
__device__ void produce(const Task& task, unsigned* drawn, Shared<Tiles>& smem) {
    const bool first_lane = threadIdx.x % 32 == 0;
    flash::RingPlace<Tiles::Q_stages> Q;
    flash::RingPlace<Tiles::stages> KV;
    Walk<Tiles::Br> walk{.most = Walk<Tiles::Br>::tiles_of(task.bound_q)};
    int number = blockIdx.x;
    while (true) {
        const Tile tile = walk.to(number, task);
        if (first_lane) {
            smem.Q.acquire(Q); // O has been stored, and what tile it was has been read
            smem.place[Q.stage] = tile;
            if (tile.head < 0) {
                flash::mbarrier_arrive(&smem.Q.full[Q.stage]); // the consumers may read: it is over
            } else {
                fetch(task, tile, smem, Q.stage, KV);
                number = gridDim.x + atomicAdd(drawn, 1);
            }
        }
        if (tile.head < 0) {
            return;
        }
        number = __shfl_sync(0xffffffff, number, 0);
        Q.next();
    }
}

/// A consumer's part in a tile of Q: 64 rows of O.
template <class T, class Tiles>
__device__ void compute(const Task& task, const Tile& tile, Shared<Tiles>& smem, int Q_stage,
                        flash::RingPlace<Tiles::stages>& KV) {
    constexpr int d = Tiles::d, Bc = Tiles::Bc;
    using KV_tile = typename Tiles::KV;
    const int role = flash::warpgroup_of_thread();
    const int i0 = tile.i * Tiles::Br + role * Tiles::Q::rows;
    const int warp = threadIdx.x % warpgroup / 32, lane = threadIdx.x % 32;
    const int row = 16 * warp + lane / 4; // the lane's rows of the 64: this one, and row + 8
    const int loaded = visible_keys(tile, tile.i * Tiles::Br, (tile.i + 1) * Tiles::Br);
    const int keys = visible_keys(tile, i0, i0 + Tiles::Q::rows); // that some rows see
    const int whole = visible_keys(tile, i0);                     // that all 64 see
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
            flash::mask(S_reg, tile.N_kv, visible_keys(tile, i0 + row));
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
            flash::mask(S_reg, tile.N_kv - j0, visible_keys(tile, i0 + row) - j0);
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
    // no row here sees the other tiles; each is given back once it has landed
    for (; j0 < loaded; j0 += Bc) {
        smem.K.wait(KV);    // the tile of K has landed
        smem.K.release(KV); // the producer counts on this warp, too
        smem.V.wait(KV);    // the tile of V has landed
        smem.V.release(KV); // likewise
        KV.next();
    }

    float* const LSE = task.LSE + int64_t{tile.head} * task.total_q + tile.q_end - tile.N_q;
    flash::finish<T>(O_reg, rows, task.scale_log2, LSE, tile.N_q, i0 + row);
    flash::named_barrier_sync(1 + role, warpgroup); // no warp's product still reads Q
    const int at[] = {0, far - tile.N_q + i0, tile.head * (d / 64), tile.q_end, far};
    flash::store_tile<T, typename Tiles::Q>(task.O, at, Q_smem, row, O_reg, 1 + role);
    // every thread arrives: it has also read what the tile is
    flash::mbarrier_arrive(&smem.Q.empty[Q_stage]);
}

template <class T, class Tiles>
__global__ __launch_bounds__(Tiles::threads, 1) // one block on an SM
    void packed_sequences(const __grid_constant__ Task task, unsigned* drawn) {
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
        if (threadIdx.x % warpgroup < 32) {
            produce(task, drawn, smem);
        }
        return;
    }
    flash::take_registers<Tiles::consumer_registers>();
    flash::RingPlace<Tiles::Q_stages> Q;
    flash::RingPlace<Tiles::stages> KV;
    while (true) {
        smem.Q.wait(Q); // Q has landed, and what tile it is
        const Tile tile = smem.place[Q.stage];
        if (tile.head < 0) {
            return;
        }
        compute<T>(task, tile, smem, Q.stage, KV);
        Q.next();
    }
}

template <class T, class Tiles>
void run(const flash::Problem& p, const flash::PackedSequences& line, const T* Q, const T* K,
         const T* V, T* O, float* LSE, void* workspace) {
    constexpr int smem_bytes = sizeof(Shared<Tiles>);
    const auto kernel = packed_sequences<T, Tiles>;
    const int places = flash::resident_blocks(kernel, Tiles::threads, smem_bytes);
    const int total_q = flash::as_int(line.total_q, "the number of queries");
    const int total_kv = flash::as_int(line.total_kv, "the number of keys");
    if (std::max(total_q, total_kv) > far) {
        throw flash::Error("a line has at most 2^30 rows");
    }
    // each sequence may end with a tile that is not full
    const int most_tiles =
        flash::as_int(p.heads * (total_q / Tiles::Br + p.batch), "heads x tiles of Q");
    using Q_tile = typename Tiles::Q;
    using KV_tile = typename Tiles::KV;
    const Task task = {.Q = line_map<Q_tile>(Q, total_q, p.heads),
                       .K = line_map<KV_tile>(K, total_kv, p.kv_heads),
                       .V = line_map<KV_tile>(V, total_kv, p.kv_heads),
                       .O = line_map<Q_tile>(O, total_q, p.heads),
                       .LSE = LSE,
                       .cu_seqlens_q = line.cu_seqlens_q,
                       .cu_seqlens_kv = line.cu_seqlens_kv,
                       .total_q = total_q,
                       .total_kv = total_kv,
                       .bound_q = static_cast<int>(std::min(p.q_len, line.total_q)),
                       .sequences = static_cast<int>(p.batch),
                       .heads = static_cast<int>(p.heads),
                       .group = static_cast<int>(p.heads / p.kv_heads),
                       .places = places,
                       .scale_log2 = p.scale * flash::log2_e,
                       .causal = p.causal};
    auto* drawn = flash::Workspace(workspace).part<unsigned>(1, "the number of drawn tiles");
    flash::clear(drawn, 1);
    flash::launch(kernel, std::min(places, most_tiles), Tiles::threads, smem_bytes, task, drawn);
}

} // namespace

int64_t workspace_bytes(const flash::Problem&) { return flash::part_bytes<unsigned>(1); }

template <class T>
void attention(const flash::Problem& p, const flash::PackedSequences& line, const T* Q, const T* K,
               const T* V, T* O, float* LSE, void* workspace) {
    const int64_t keys = line.total_kv / p.batch; // of a sequence, on average
    flash::for_head_dim<head_dims>(p.head_dim, [&](auto d) {
        if (d == 64 && !p.causal && keys >= 2048) {
            run<T, Tiles<64, true>>(p, line, Q, K, V, O, LSE, workspace);
        } else {
            run<T, Tiles<d>>(p, line, Q, K, V, O, LSE, workspace);
        }
    });
}

template decltype(attention<flash::Half>) attention<flash::Half>;
template decltype(attention<flash::Bfloat16>) attention<flash::Bfloat16>;

} // namespace packed_sequences
