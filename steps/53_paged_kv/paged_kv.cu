// paged_kv: Blocks share the keys of all sequences equally, however long each of these is.
//
// The idea: page_table cuts every tile into as many parts, so all wait for the longest sequence.
// Only the GPU knows how long they are, so the host cannot cut better, but the blocks can. Put the
// rounds of all tiles (64 keys, a step for each warp) one behind the other, and give every block an
// equal share of that line:
//
//      lengths      900                   70      0     200
//      tiles       |....aaaaaaaaaaaaaaa|....bb|....c|....dddd|
//      blocks       0000000000111111111 122222 22222 33333333
//
//   - To begin a tile takes time, too: about as much as four rounds. So where lengths differ, four
//     empty rounds stand in front of each tile, in which nobody has anything to do.
//   - Each block finds its share by itself: it adds up the rounds of all sequences, and looks for
//     its place among them.
//   - A block finishes the tiles that it has to itself (b, c and d). Who shares the others (a)
//     follows from where they begin and end on the line, and the last of these blocks merges their
//     parts.
//
// Equal shares of a line are Stream-K's (M. Osama et al., 2023).
// Parent: page_table. New: `line_of` and `start_of`, and a loop over the tiles of a block's share.
// Look at: what the host does not know. Gained: the longest sequence no longer decides.
#include "steps/53_paged_kv/paged_kv.hpp"

#include <algorithm>
#include <climits>
#include <cmath>

#include "common/cuda/cuda.hpp"
#include "common/cuda/derived/fixed_maximum.hpp"
#include "common/cuda/derived/packed_rows.hpp"
#include "common/cuda/derived/parts.hpp"
#include "common/cuda/launch/paged_cache.hpp"
#include "common/cuda/ptx/cp_async.hpp"
#include "common/cuda/ptx/mma.hpp"
#include "common/cuda/ptx/semaphore.hpp"

namespace paged_kv {
namespace {

using namespace flash::split; // parts, their merge, and the step of a warp

constexpr int round = warps * Bc; // keys: a step for each warp, and what blocks are given
constexpr int beginning = 4;      // rounds that a block could do while it begins a tile, about

/// What the host knows of the work.
struct Tiling {
    int sequences;
    int tiles; // of a sequence: those of its first K/V head, then of the next
    int Tr;    // tiles of packed rows for each K/V head
};

/// The keys of a sequence. Without lengths, all have N_kv, and that is the most that one may have:
/// a length beyond it would be read from the next sequence's row of the table.
template <class T>
__device__ int length_of(const flash::PagedKV<T>& cache, int sequence, int N_kv) {
    return cache.lengths == nullptr ? N_kv : max(0, min(cache.lengths[sequence], N_kv));
}

/// Rounds of a tile. One without keys has a round too: somebody has to store its O = 0.
__device__ int rounds_of(int length) { return max(1, (length + round - 1) / round); }

/// The rounds of all tiles, one behind the other.
struct Line {
    int rounds;
    int share; // of each block; the last ones may get less, or nothing
    int empty; // rounds in front of each tile, in which no key is
};

/// Adds up the rounds of all sequences, and cuts them into shares. Every warp does it for itself.
template <class T>
__device__ Line line_of(const flash::PagedKV<T>& cache, Tiling tiling, int N_kv, int rows) {
    int sum = 0, longest = 0, shortest = INT_MAX;
    for (int b = threadIdx.x % 32; b < tiling.sequences; b += 32) {
        const int rounds = rounds_of(length_of(cache, b, N_kv));
        sum += rounds;
        longest = max(longest, rounds);
        shortest = min(shortest, rounds);
    }
    longest = __reduce_max_sync(0xffffffff, longest);
    shortest = __reduce_min_sync(0xffffffff, shortest);
    // Where all are equally long, each block begins about as many tiles as any other.
    const int empty = shortest == longest ? 0 : beginning;
    const int all = (__reduce_add_sync(0xffffffff, sum) + tiling.sequences * empty) * tiling.tiles;
    const int even = (all + gridDim.x - 1) / gridDim.x;
    // As in split_kv: after `share` rounds of keys, the last block of the longest tile reads `rows`
    // rows of longest / share parts. The sum of both is least here.
    const int pays = static_cast<int>(sqrtf(static_cast<float>(longest) * rows / round));
    const int share = max(even, pays);
    // Where all are equally long, a share of whole tiles cuts none. It may take a little longer.
    const int whole = (share + longest - 1) / longest * longest;
    const bool no_cuts = shortest == longest && whole - share <= min(share / 8, beginning);
    return {all, no_cuts ? whole : share, empty};
}

/// A sequence, and the rounds on the line before it, empty ones among them.
struct Start {
    int sequence, before;
};

/// The sequence that round `at` of the line belongs to, found by a warp, 32 sequences at a time.
template <class T>
__device__ Start start_of(int at, Line line, const flash::PagedKV<T>& cache, Tiling tiling,
                          int N_kv) {
    const int lane = threadIdx.x % 32;
    int before = 0;
    for (int b = lane;; b += 32) {
        int rounds = 0; // of the lane's sequence
        if (b < tiling.sequences) {
            rounds = tiling.tiles * (line.empty + rounds_of(length_of(cache, b, N_kv)));
        }
        int end = rounds; // of the sequence: the sum of its own rounds and those before it
        for (int distance = 1; distance < 32; distance *= 2) {
            const int other = __shfl_up_sync(0xffffffff, end, distance);
            end += lane >= distance ? other : 0;
        }
        end += before;
        const int passed = __popc(__ballot_sync(0xffffffff, end <= at)); // they end before `at`
        if (passed < 32) {
            return {b - lane + passed, __shfl_sync(0xffffffff, end - rounds, passed)};
        }
        before = __shfl_sync(0xffffffff, end, 31);
    }
}

template <class T, int d>
__global__ __launch_bounds__(threads, blocks_per_sm<d>) void paged_kv(
    const T* Q, flash::PagedKV<T> cache, T* O, float* LSE, Part<d>* parts, unsigned* finished,
    Tiling tiling, flash::PackedRows packed, int N_kv, float scale_log2, bool causal) {
    const int warp = threadIdx.x / 32;
    const int g = threadIdx.x % 32 / 4; // the lane's place in a fragment: rows g and g + 8 of C
    auto& smem = *flash::dynamic_shared<Shared<d>>();

    const int rows_of_group = packed.group * packed.N_q;
    const Line line = line_of(cache, tiling, N_kv, min(Br, rows_of_group));
    const int block = blockIdx.x;
    const int end_of_share = min((block + 1) * line.share, line.rounds);
    if (block * line.share >= end_of_share) { // there is not work enough for all
        return;
    }
    const Start start = start_of(block * line.share, line, cache, tiling, N_kv);
    int sequence = start.sequence;
    int before = start.before;
    int next = 0;
    for (int at = block * line.share; at < end_of_share; at = next) { // a tile, or a part of one
        int length = length_of(cache, sequence, N_kv);
        int rounds = rounds_of(length);
        if (at == before + tiling.tiles * (line.empty + rounds)) { // its last tile is done
            before = at;
            ++sequence;
            length = length_of(cache, sequence, N_kv);
            rounds = rounds_of(length);
        }
        const int tile = (at - before) / (line.empty + rounds); // of the sequence
        // where the tile's keys begin on the line
        const int begin = before + tile * (line.empty + rounds) + line.empty;
        if (begin >= end_of_share) { // only empty rounds are left
            return;
        }
        next = min(begin + rounds, end_of_share);
        const int first_block = begin / line.share; // of those that share the tile
        const int splits = (begin + rounds - 1) / line.share - first_block + 1;

        const int kv_head = tile / tiling.Tr;
        const int kv_heads = tiling.tiles / tiling.Tr;
        const int i0 = tile % tiling.Tr * Br; // a packed row
        const int64_t first_row = (int64_t{sequence} * kv_heads + kv_head) * rows_of_group;
        const int rows = min(Br, rows_of_group - i0);

        // as in packed_heads: the keys that a row of the tile sees, if they exist
        const auto visible = [&](int row) {
            return causal ? packed.query(i0 + row) + (length - packed.N_q) + 1 : length;
        };
        const int whole = min(length, visible(0)); // keys that every row sees
        // the tile's steps of 16 keys, and those of this block
        const int steps = (max(0, visible(rows - 1)) + Bc - 1) / Bc;
        const int first = max(at - begin, 0) * warps;
        const int end = min((next - begin) * warps, steps);

        Slot<d>(&ring)[slots] = smem.ring[warp];
        const auto page_of = [&](int step) {
            if (step >= end) { // where the table may hold anything, or end
                return 0;
            }
            const int64_t entry = int64_t{sequence} * cache.most_pages + step * Bc / cache.page;
            return cache.table == nullptr ? sequence : cache.table[entry];
        };
        int page = page_of(first + warp); // of the step that is started next
        const auto start_KV = [&](int step, int slot) {
            if (step < end) {
                const int j0 = step * Bc;
                const int64_t from = page * cache.page_stride + kv_head * cache.head_stride +
                                     j0 % cache.page * cache.row_stride;
                start_step(ring[slot].K, cache.K + from, cache.row_stride, length - j0);
                start_step(ring[slot].V, cache.V + from, cache.row_stride, length - j0);
            }
            flash::cp_async_commit(); // one group per step, even if it is empty: waits count groups
            page = page_of(step + warps); // it is here when the next step is started
        };
        __syncthreads(); // all have left what the tile before merged, in whose place the rings are
        for (int n = 0; n < ahead; ++n) {
            start_KV(first + warp + n * warps, n);
        }
        uint32_t Q_reg[d / 16][4];
        load_Q<T, d>(Q_reg, Q + first_row * d, packed, i0, rows);

        float m_reg[1][2] = {};        // of rows g and g + 8: what is subtracted from their scores
        float l_reg[1][4] = {};        // a C fragment
        float O_reg[1][d / 8][4] = {}; // C fragments: 16 rows x 8 columns each
        int slot = 0;
        for (int step = first + warp; step < end; step += warps) {
            const bool is_first = step == first + warp;
            flash::cp_async_wait<ahead - 1>(); // this lane's copies of the step have landed
            // so have those of the other lanes; and all have left the step before, whose slot is
            // filled
            __syncwarp();
            start_KV(step + ahead * warps, (slot + ahead) % slots);

            const int j0 = step * Bc;
            float S_reg[1][Bc / 8][4]; // S, then P in its place
            multiply_QK<T, d>(S_reg, m_reg, Q_reg, ring[slot].K);
            if (j0 + Bc > whole) {
                flash::mask(S_reg[0], length - j0, {visible(g) - j0, visible(g + 8) - j0});
            }
            if (is_first || !flash::all_negative(S_reg)) {
                flash::raise_maximum<T>(S_reg, m_reg, l_reg, O_reg, scale_log2, is_first);
            }
            flash::exponentials<T>(S_reg, scale_log2);
            multiply_PV<T, d>(O_reg, l_reg, S_reg, ring[slot].V);
            slot = (slot + 1) % slots;
        }

        __syncthreads(); // all warps have left the rings, in whose place the parts are
        store_part<T>(smem.merge.of_warp[warp], O_reg, m_reg, l_reg, scale_log2, rows);
        __syncthreads(); // the parts of all warps are there

        constexpr int chunks = d / 4; // of a row: a thread merges 4 columns of it at one go
        const Part<d>* from = smem.merge.of_warp;
        int count = warps;
        if (splits > 1) {
            // The next tile that is shared begins in this one's last block, or later: at
            // 2 (first_block + splits - 1) or behind it, where these parts have ended.
            Part<d>* const parts_of_tile = parts + 2 * first_block;
            Part<d>& part = parts_of_tile[block - first_block];
            for (int e = threadIdx.x; e < rows * chunks; e += threads) {
                const int row = e / chunks;
                const int x = e % chunks * 4;
                const Merged merged = merge(smem.merge.of_warp, warps, row, x);
                *reinterpret_cast<float4*>(part.O[row] + x) = merged.O;
                if (x == 0) {
                    part.LSE[row] = merged.LSE;
                }
            }
            __syncthreads(); // all threads have stored what they have merged
            if (threadIdx.x == 0) {
                // release: the block's part is there before it counts as finished
                // acquire: the other parts are read after they count as finished
                const int others = flash::semaphore_fetch_add(&finished[first_block]);
                smem.merge.is_last = others + 1 == splits;
            }
            __syncthreads(); // all threads know whether the block is the last one
            if (!smem.merge.is_last) {
                continue;
            }
            from = parts_of_tile;
            count = splits;
        }
        for (int e = threadIdx.x; e < rows * chunks; e += threads) {
            const int row = e / chunks;
            const int x = e % chunks * 4;
            const Merged merged = merge(from, count, row, x);
            const int64_t place = first_row + packed.place(i0 + row);
            *reinterpret_cast<uint2*>(O + place * d + x) = make_uint2(
                flash::pack_O<T>(merged.O.x, merged.O.y), flash::pack_O<T>(merged.O.z, merged.O.w));
            if (x == 0) {
                LSE[place] = flash::ln_2 * merged.LSE;
            }
        }
    }
}

/// Rows that one K/V head serves.
int64_t packed_rows(const flash::Problem& p) { return p.heads / p.kv_heads * p.q_len; }

/// Tiles of a sequence.
int64_t tiles_of(const flash::Problem& p) {
    return p.kv_heads * flash::ceil_div(packed_rows(p), Br);
}

/// The rounds of all tiles, where every sequence has as many keys as it may have.
int64_t most_rounds(const flash::Problem& p) {
    return p.batch * tiles_of(p) * flash::ceil_div(p.kv_len, round);
}

/// All run at the same time, and each may have a round with keys.
template <int d> int blocks_of(const flash::Problem& p) {
    const int64_t places = int64_t{flash::multiprocessors()} * blocks_per_sm<d>;
    return static_cast<int>(std::min(places, most_rounds(p)));
}

template <class T, int d>
void run(const flash::Problem& p, const flash::PagedKV<T>& cache, const T* Q, T* O, float* LSE,
         void* workspace) {
    const int N_kv = flash::as_int(p.kv_len, "kv-len");
    const int rows = flash::as_int(packed_rows(p), "heads / kv-heads x q-len");
    flash::as_int(most_rounds(p) + p.batch * tiles_of(p) * beginning,
                  "batch x kv-heads x tiles of rows x rounds of keys");
    // neither is larger than `rows`
    const flash::PackedRows packed{static_cast<int>(p.heads / p.kv_heads),
                                   static_cast<int>(p.q_len)};
    // none is larger than most_rounds
    const Tiling tiling{static_cast<int>(p.batch), static_cast<int>(tiles_of(p)),
                        static_cast<int>(flash::ceil_div(rows, Br))};
    const int blocks = blocks_of<d>(p);
    flash::Workspace memory(workspace);
    auto* const parts = memory.part<Part<d>>(int64_t{2} * blocks, "the parts");
    auto* const finished = memory.part<unsigned>(blocks, "the parts' counters");
    flash::clear(finished, blocks);
    flash::launch(paged_kv<T, d>, blocks, threads, sizeof(Shared<d>), Q, cache, O, LSE, parts,
                  finished, tiling, packed, N_kv, p.scale * flash::log2_e, p.causal);
}

} // namespace

int64_t workspace_bytes(const flash::Problem& p) {
    int64_t bytes = 0;
    flash::for_head_dim<head_dims>(p.head_dim, [&](auto d) {
        bytes = flash::part_bytes<Part<d>>(int64_t{2} * blocks_of<d>(p)) +
                flash::part_bytes<int>(blocks_of<d>(p));
    });
    return bytes;
}

template <class T>
void attention_paged(const flash::Problem& p, const flash::PagedKV<T>& cache, const T* Q, T* O,
                     float* LSE, void* workspace) {
    flash::require_cache(cache, p.kv_len);
    flash::for_head_dim<head_dims>(p.head_dim,
                                   [&](auto d) { run<T, d>(p, cache, Q, O, LSE, workspace); });
}

template <class T>
void attention(const flash::Problem& p, const T* Q, const T* K, const T* V, T* O, float* LSE,
               void* workspace) {
    attention_paged(p, flash::one_page_each(p, K, V), Q, O, LSE, workspace);
}

template decltype(attention<flash::Half>) attention<flash::Half>;
template decltype(attention<flash::Bfloat16>) attention<flash::Bfloat16>;
template decltype(attention_paged<flash::Half>) attention_paged<flash::Half>;
template decltype(attention_paged<flash::Bfloat16>) attention_paged<flash::Bfloat16>;

} // namespace paged_kv
