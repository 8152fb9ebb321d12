// page_table: K and V lie in pages, and a table says where; each sequence has a length of its own.
//
// The idea: the sequences of a server grow, end, and make room for others. A tensor has room for
// the longest one in all its rows. So cut memory into pages of some keys each, as an operating
// system does, and let a sequence take any page that is free:
//
//      table        3 0 6 .   5 . . .   2 7 . .     of sequences 0, 1 and 2: numbers of pages
//      pages        0 . 2 0 . 1 0 2                 whose keys are in pages 0, 1, 2 ..
//      key j        is row j % page of page table[sequence][j / page]
//
//   - A page holds a multiple of 16 keys, so a step lies in one page, and only its address changes.
//   - The number of a page comes from memory. It is read a step early, so that nobody waits for it.
//   - Table and lengths are on the GPU, and the host reads neither. So it cuts every tile into as
//     many parts as if all sequences had N_kv keys, and each block finds its keys by the length.
//
// Pages are PagedAttention's (W. Kwon et al., 2023).
// Parent: split_kv. New: `length_of`, `page_of`, and the address of a step.
// Look at: when the number of a page is asked for. Gained: memory for the keys that exist. The
// longest sequence still decides how long all take.
#include "steps/52a_page_table/page_table.hpp"

#include <algorithm>
#include <cmath>

#include "common/cuda/cuda.hpp"
#include "common/cuda/derived/fixed_maximum.hpp"
#include "common/cuda/derived/packed_rows.hpp"
#include "common/cuda/derived/parts.hpp"
#include "common/cuda/launch/paged_cache.hpp"
#include "common/cuda/ptx/cp_async.hpp"
#include "common/cuda/ptx/mma.hpp"
#include "common/cuda/ptx/semaphore.hpp"

namespace page_table {
namespace {

using namespace flash::split; // parts, their merge, and the step of a warp

/// How the blocks are numbered: the splits of a tile are neighbours, and so are a K/V head's tiles.
struct Tiling {
    int Tr;       // tiles of packed rows for each K/V head
    int splits;   // blocks for each tile
    int kv_heads; // of a sequence
};

/// The keys of a sequence. Without lengths, all have N_kv, and that is the most that one may have:
/// a length beyond it would be read from the next sequence's row of the table.
template <class T>
__device__ int length_of(const flash::PagedKV<T>& cache, int sequence, int N_kv) {
    return cache.lengths == nullptr ? N_kv : max(0, min(cache.lengths[sequence], N_kv));
}

template <class T, int d>
__global__ __launch_bounds__(threads, blocks_per_sm<d>) void page_table(
    const T* Q, flash::PagedKV<T> cache, T* O, float* LSE, Part<d>* parts, unsigned* finished,
    Tiling tiling, flash::PackedRows packed, int N_kv, float scale_log2, bool causal) {
    const int warp = threadIdx.x / 32;
    const int g = threadIdx.x % 32 / 4; // the lane's place in a fragment: rows g and g + 8 of C
    auto& smem = *flash::dynamic_shared<Shared<d>>();

    const int rows_of_group = packed.group * packed.N_q;
    const int splits = tiling.splits;
    const int tile = blockIdx.x / splits; // of all K/V heads of all sequences
    const int split = blockIdx.x % splits;
    const int kv_heads = tiling.kv_heads;
    const int sequence = tile / tiling.Tr / kv_heads;
    const int kv_head = tile / tiling.Tr % kv_heads; // of the sequence
    const int length = length_of(cache, sequence, N_kv);

    const int i0 = tile % tiling.Tr * Br; // a packed row
    const int64_t first_row = (int64_t{sequence} * kv_heads + kv_head) * rows_of_group;
    const int rows = min(Br, rows_of_group - i0);

    // as in packed_heads: the keys that a row of the tile sees, if they exist
    const auto visible = [&](int row) {
        return causal ? packed.query(i0 + row) + (length - packed.N_q) + 1 : length;
    };
    const int whole = min(length, visible(0)); // keys that every row sees
    // the tile's steps of 16 keys, and those of this split
    const int64_t steps = (max(0, visible(rows - 1)) + Bc - 1) / Bc;
    const int first = static_cast<int>(steps * split / splits);
    const int end = static_cast<int>(steps * (split + 1) / splits);

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
        flash::cp_async_commit();     // one group per step, even if it is empty: waits count groups
        page = page_of(step + warps); // it is here when the next step is started
    };
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
        // so have those of the other lanes; and all have left the step before, whose slot is filled
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
        Part<d>* const parts_of_tile = parts + int64_t{tile} * splits;
        Part<d>& part = parts_of_tile[split];
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
            const int others = flash::semaphore_fetch_add(&finished[tile]);
            smem.merge.is_last = others + 1 == splits;
        }
        __syncthreads(); // all threads know whether the block is the last one
        if (!smem.merge.is_last) {
            return;
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

/// Rows that one K/V head serves.
int64_t packed_rows(const flash::Problem& p) { return p.heads / p.kv_heads * p.q_len; }

/// Tiles of all K/V heads.
int64_t tiles_of(const flash::Problem& p) {
    return p.batch * p.kv_heads * flash::ceil_div(packed_rows(p), Br);
}

/// How many blocks share the keys of a tile.
template <int d> int splits_of(const flash::Problem& p) {
    // all blocks run at the same time
    const int64_t room = int64_t{flash::multiprocessors()} * blocks_per_sm<d> / tiles_of(p);
    // After N_kv / splits keys the last block reads `rows` rows of each part. A key, 2 d numbers of
    // 16 bits, has as many bytes as a row of O, d numbers of 32: the sum of both is least here.
    const auto rows = static_cast<double>(std::min<int64_t>(Br, packed_rows(p)));
    const auto pays = static_cast<int64_t>(std::sqrt(static_cast<double>(p.kv_len) / rows));
    // every warp has a step of its own
    const int64_t busy = flash::ceil_div(p.kv_len, warps * Bc);
    return static_cast<int>(std::max<int64_t>(std::min({room, pays, busy}), 1));
}

template <class T, int d>
void run(const flash::Problem& p, const flash::PagedKV<T>& cache, const T* Q, T* O, float* LSE,
         void* workspace) {
    const int N_kv = flash::as_int(p.kv_len, "kv-len");
    const int rows = flash::as_int(packed_rows(p), "heads / kv-heads x q-len");
    // neither is larger than `rows`
    const flash::PackedRows packed{static_cast<int>(p.heads / p.kv_heads),
                                   static_cast<int>(p.q_len)};
    const int tiles = flash::as_int(tiles_of(p), "batch x kv-heads x tiles of rows");
    const Tiling tiling{static_cast<int>(flash::ceil_div(rows, Br)), splits_of<d>(p),
                        static_cast<int>(p.kv_heads)}; // no more than tiles
    Part<d>* parts = nullptr;
    unsigned* finished = nullptr;
    if (tiling.splits > 1) { // so there are no more blocks than all SMs get
        flash::Workspace memory(workspace);
        parts = memory.part<Part<d>>(int64_t{tiles} * tiling.splits, "the parts");
        finished = memory.part<unsigned>(tiles, "the parts' counters");
        flash::clear(finished, tiles);
    }
    flash::launch(page_table<T, d>, tiles * tiling.splits, threads, sizeof(Shared<d>), Q, cache, O,
                  LSE, parts, finished, tiling, packed, N_kv, p.scale * flash::log2_e, p.causal);
}

} // namespace

int64_t workspace_bytes(const flash::Problem& p) {
    int64_t bytes = 0;
    flash::for_head_dim<head_dims>(p.head_dim, [&](auto d) {
        if (const int splits = splits_of<d>(p); splits > 1) {
            bytes = flash::part_bytes<Part<d>>(tiles_of(p) * splits) +
                    flash::part_bytes<int>(tiles_of(p));
        }
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

} // namespace page_table
