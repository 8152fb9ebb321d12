// packed_heads: The query heads that share a K/V head are rows of one product, so K is read once.
//
// The idea: while a model writes, there is one query per head, and a tile of Q has 128 rows. With
// grouped heads, four, eight or more query heads read the same K and V. So put their queries below
// each other, as if they were the queries of one head:
//
//      packed row   0  1  2  3 | 4  5  6  7 | 8 ..        of a group of 4 heads:
//      head         0  1  2  3 | 0  1  2  3 | 0 ..        r % group
//      query        0  0  0  0 | 1  1  1  1 | 2 ..        r / group
//
//   - One block serves the whole group, and fetches K and V once for all of its heads.
//   - The heads of one query lie side by side, so a tile still holds neighbouring queries, and
//     with a causal mask it still stops at the last key that its last row sees.
//
// Packing the group into the rows ("pack GQA") is known from FlashInfer and from FlashAttention.
// Parent: multistage. New: where a row of the tile lies in Q, O and LSE, and what it sees.
// Look at: PackedRows, and who uses it. Gained: with few queries, K and V are read once per group.
#include "steps/51_packed_heads/packed_heads.hpp"

#include "common/cuda/cuda.hpp"
#include "common/cuda/derived/fixed_maximum.hpp"
#include "common/cuda/derived/swizzle.hpp"
#include "common/cuda/derived/tile_order.hpp"
#include "common/cuda/ptx/cp_async.hpp"
#include "common/cuda/ptx/ldmatrix.hpp"
#include "common/cuda/ptx/mbarrier.hpp"
#include "common/cuda/ptx/mma.hpp"

namespace packed_heads {
namespace {

constexpr int M = 2; // m16 tiles per warp
constexpr int warp_rows = 16 * M;
constexpr int Bc = 64; // keys

/// What a block's size decides: 256 rows in 193 KiB of shared memory at d = 128, or 128 in at
/// most 97 KiB.
template <int d_, int warps_> struct Tiles {
    static constexpr int d = d_;
    static constexpr int warps = warps_;
    static constexpr int threads = 32 * warps;
    static constexpr int Br = warp_rows * warps;                 // packed rows
    static constexpr int slots = d == 128 && warps == 4 ? 2 : 4; // for tiles of K, and of V
    static constexpr int ahead = slots / 2 * Bc; // keys: so far in advance a tile is copied
    static constexpr int blocks = d == 32 ? 3 : 8 / warps; // per SM
};

/// Dynamic shared memory: Q, slots for tiles of K and V, and two barriers for each slot.
template <class Tiles> struct Shared {
    flash::SwizzledTile<Tiles::d, Tiles::Br> Q;
    flash::SwizzledTile<Tiles::d, Bc> K[Tiles::slots], V[Tiles::slots];
    uint64_t full[Tiles::slots], empty[Tiles::slots];
};

/// Which head and query of its group a packed row is, and where it lies: row 0 is that of the
/// group's first head. The heads of a group are neighbours in Q, O and LSE.
struct PackedRows {
    int group, N_q;
    __device__ int query(int row) const { return row / group; }
    __device__ int64_t place(int row) const { return int64_t{row % group} * N_q + row / group; }
};

/// flash::start_tile for packed rows, of which the tile's first is `first`. `Q` is the group's.
template <int threads, class T, int d, int Br>
__device__ void start_packed_tile(flash::SwizzledTile<d, Br>& tile, const T* Q, PackedRows packed,
                                  int first, int valid) {
    constexpr int step = threads / (d / 8); // rows that the block copies at once
    static_assert(step % 8 == 0, "8 rows further down, the swizzle is the same");
    const int row = threadIdx.x / (d / 8); // where the thread's first 16 bytes are
    const int chunk = threadIdx.x % (d / 8);
    char* to = tile.data + tile.offset(row, chunk);
#pragma unroll
    for (int r = 0; r < Br; r += step) {
        const T* from = Q + packed.place(first + row + r) * d + 8 * chunk;
        flash::cp_async_16(to + r * tile.row_bytes, from, r < valid - row);
    }
}

/// flash::mask for rows that do not see 8 keys more 8 rows further down: the lane's rows g and
/// g + 8 see the first visible[0] and visible[1] columns, and none sees more than `exist`.
template <int fragments>
__device__ void mask(float (&S)[fragments][4], int exist, const int (&visible)[2]) {
    const int t = threadIdx.x % 4;
#pragma unroll
    for (int n = 0; n < fragments; ++n) {
        for (int c = 0; c < 4; ++c) {
            if (8 * n + 2 * t + c % 2 >= min(exist, visible[c / 2])) {
                S[n][c] = -INFINITY;
            }
        }
    }
}

/// flash::store_O_and_LSE for packed rows: `row` and `row` + 8 of the tile that begins at `first`.
template <class T, int fragments>
__device__ void store_packed(T* O, float* LSE, const float (&O_reg)[fragments][4],
                             const float (&m)[2], const float (&l)[2], PackedRows packed, int first,
                             int row, int rows) {
    const int t = threadIdx.x % 4; // the lane's columns in a C fragment: 2t and 2t + 1
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        if (row + 8 * r < rows) {
            const int64_t i = packed.place(first + row + 8 * r);
            const float normalise = l[r] == 0 ? 0.0f : 1 / l[r];
#pragma unroll
            for (int n = 0; n < fragments; ++n) {
                *reinterpret_cast<uint32_t*>(O + (i * fragments + n) * 8 + 2 * t) =
                    flash::pack_O<T>(O_reg[n][2 * r] * normalise, O_reg[n][2 * r + 1] * normalise);
            }
            if (t == 0) {
                LSE[i] = m[r] + logf(l[r]);
            }
        }
    }
}

/// S_reg = Q K^T - m: the warp's 32 rows and the tile's keys. C fragments, 16 rows x 8 keys
/// each.
template <class T, int d, int Br>
__device__ void multiply_QK(float (&S_reg)[M][Bc / 8][4], const float (&m_reg)[M][2],
                            const flash::SwizzledTile<d, Br>& Q,
                            const flash::SwizzledTile<d, Bc>& K) {
    const int Q_lane = Q.offset_of_A(threadIdx.x / 32 * warp_rows, threadIdx.x % 32);
    const int K_lane = K.offset_of_B(threadIdx.x % 32);
#pragma unroll
    for (int n = 0; n < Bc / 8; ++n) {
        for (int i = 0; i < M; ++i) {
            for (int c = 0; c < 4; ++c) {
                S_reg[i][n][c] = -m_reg[i][c / 2];
            }
        }
    }
#pragma unroll
    for (int k = 0; k < d / 16; ++k) {
        uint32_t Q_reg[M][4]; // A fragments: 16 rows x 16 columns each
        for (int i = 0; i < M; ++i) {
            flash::ldmatrix_x4(Q_reg[i], Q.data + Q.fragment(Q_lane, 16 * i, k));
        }
#pragma unroll
        for (int n = 0; n < Bc / 8; n += 2) {
            uint32_t K_reg[4];
            flash::ldmatrix_x4(K_reg, K.data + K.fragment(K_lane, 8 * n, k));
            for (int i = 0; i < M; ++i) {
                flash::mma_m16n8k16<T>(S_reg[i][n], Q_reg[i], {K_reg[0], K_reg[1]});
                flash::mma_m16n8k16<T>(S_reg[i][n + 1], Q_reg[i], {K_reg[2], K_reg[3]});
            }
        }
    }
}

/// O_reg += P V, and l_reg += P times ones: a C fragment whose every column is the row sum.
template <class T, int d>
__device__ void multiply_PV(float (&O_reg)[M][d / 8][4], float (&l_reg)[M][4],
                            const float (&P)[M][Bc / 8][4], const flash::SwizzledTile<d, Bc>& V) {
    const int V_lane = V.offset_of_B_transposed(threadIdx.x % 32);
#pragma unroll
    for (int k = 0; k < Bc / 16; ++k) {
        uint32_t P_reg[M][4]; // A fragments: 16 rows x 16 keys each
        for (int i = 0; i < M; ++i) {
            flash::pack_A_saturated<T>(P_reg[i], P[i][2 * k], P[i][2 * k + 1]);
            flash::mma_m16n8k16<T>(l_reg[i], P_reg[i], {flash::ones<T>, flash::ones<T>});
        }
#pragma unroll
        for (int n = 0; n < d / 8; n += 2) {
            uint32_t V_reg[4];
            flash::ldmatrix_x4_trans(V_reg, V.data + V.fragment(V_lane, 16 * k, n / 2));
            for (int i = 0; i < M; ++i) {
                flash::mma_m16n8k16<T>(O_reg[i][n], P_reg[i], {V_reg[0], V_reg[1]});
                flash::mma_m16n8k16<T>(O_reg[i][n + 1], P_reg[i], {V_reg[2], V_reg[3]});
            }
        }
    }
}

template <class T, class Tiles>
__global__ __launch_bounds__(Tiles::threads, Tiles::blocks) void packed_heads(
    const T* Q, const T* K, const T* V, T* O, float* LSE, flash::TileOrder order, PackedRows packed,
    int N_kv, float scale_log2, bool causal) {
    constexpr int d = Tiles::d;
    constexpr int Br = Tiles::Br;
    constexpr int threads = Tiles::threads;
    constexpr int slots = Tiles::slots;
    constexpr int ahead = Tiles::ahead;
    const int g = threadIdx.x % 32 / 4; // the lane's place in a fragment: rows g and g + 8 of C
    // the lane's rows in the tile of Q: row0, row0 + 8, row0 + 16, row0 + 24
    const int row0 = threadIdx.x / 32 * warp_rows + g;
    auto& smem = *flash::dynamic_shared<Shared<Tiles>>();
    if (threadIdx.x < slots) {
        // full: every thread arrives by its own copies
        flash::mbarrier_init(&smem.full[threadIdx.x], threads);
        // empty: every thread arrives when it is through with the tile
        flash::mbarrier_init(&smem.empty[threadIdx.x], threads);
    }
    __syncthreads(); // the barriers are there for all

    const auto [kv_head, tile] = flash::tile_of(blockIdx.x, order);
    const int i0 = tile * Br; // the tile's first packed row
    const int64_t first_row = int64_t{kv_head} * packed.group * packed.N_q; // of the group
    const int64_t first_key = int64_t{kv_head} * N_kv;
    Q += first_row * d;
    K += first_key * d;
    V += first_key * d;
    O += first_row * d;
    LSE += first_row;
    const int rows = min(Br, packed.group * packed.N_q - i0);

    // Query i sees key j if j <= i + (N_kv - N_q): so many keys does a row of the tile see, if they
    // exist. Tiles beyond the last row's last key are never loaded.
    const auto visible = [&](int row) {
        return causal ? packed.query(i0 + row) + (N_kv - packed.N_q) + 1 : N_kv;
    };
    const int keys = visible(rows - 1);
    const int whole = min(N_kv, visible(0)); // keys that every row of the block sees
    // those that the warp's last row sees; a warp without rows only copies for the others
    const int warp_keys = row0 - g < rows ? visible(row0 | (warp_rows - 1)) : 0;

    // All loops over these arrays are unrolled; those of two or four steps the compiler unrolls by
    // itself.
    // of rows g and g + 8 of each m16 tile: what is subtracted from their scores
    float m_reg[M][2] = {};
    float l_reg[M][4] = {};        // C fragments
    float O_reg[M][d / 8][4] = {}; // C fragments: 16 rows x 8 columns each
    bool repaired = false;         // has the warp repaired a tile?

    const auto start_KV = [&](int j0) {
        const int slot = j0 / Bc % slots;
        const int round = j0 / Bc / slots;
        // in round 0 there is nothing to wait for
        flash::mbarrier_wait(&smem.empty[slot], (round + 1) % 2);
        flash::start_tile<threads>(smem.K[slot], K + int64_t{j0} * d, N_kv - j0);
        flash::start_tile<threads>(smem.V[slot], V + int64_t{j0} * d, N_kv - j0);
        // when all copies of this thread have landed
        flash::cp_async_mbarrier_arrive(&smem.full[slot]);
    };
    if (keys > 0) {
        start_packed_tile<threads>(smem.Q, Q, packed, i0, rows);
    }
    for (int j0 = 0; j0 < min(ahead, keys); j0 += Bc) {
        start_KV(j0); // the first one's arrival is that of Q, too
    }

    for (int j0 = 0; j0 < keys; j0 += Bc) {
        const int slot = j0 / Bc % slots;
        const int round = j0 / Bc / slots;
        flash::mbarrier_wait(&smem.full[slot], round % 2); // all copies of this tile have landed
        if (j0 + ahead < keys) {
            start_KV(j0 + ahead);
        }

        float S_reg[M][Bc / 8][4]; // S, then P in its place
        // an edge: some row does not see the whole tile
        const bool edge = j0 + Bc > whole;
        const auto careful_tile = [&] { // as in lazy_maximum: first m, then P V
            multiply_QK<T>(S_reg, m_reg, smem.Q, smem.K[slot]);
            if (edge) {
                for (int i = 0; i < M; ++i) {
                    const int row = row0 + 16 * i;
                    mask(S_reg[i], N_kv - j0, {visible(row) - j0, visible(row + 8) - j0});
                }
            }
            if (j0 == 0 || !flash::all_negative(S_reg)) {
                flash::raise_maximum<T>(S_reg, m_reg, l_reg, O_reg, scale_log2, j0 == 0);
            }
            flash::exponentials<T>(S_reg, scale_log2);
            multiply_PV<T>(O_reg, l_reg, S_reg, smem.V[slot]);
        };
        // beyond the mask for all rows of this warp, which then only copies for the others
        const bool beyond = j0 >= warp_keys;
        if (beyond) {
            // nothing to compute: the warp has copied its part, and arrives below
        } else if (j0 == 0 || edge || repaired) {
            careful_tile();
        } else { // first P V, then the question whether m was large enough
            multiply_QK<T>(S_reg, m_reg, smem.Q, smem.K[slot]);
            flash::exponentials<T>(S_reg, scale_log2);
            l_reg[0][1] = l_reg[0][3] = l_reg[1][1] = l_reg[1][3] = 0;
            multiply_PV<T>(O_reg, l_reg, S_reg, smem.V[slot]);
            const float largest_sum =
                fmaxf(fmaxf(l_reg[0][1], l_reg[0][3]), fmaxf(l_reg[1][1], l_reg[1][3]));
            if (__any_sync(0xffffffff, largest_sum >= flash::limit<T>)) {
                // take it back: S again, which P has overwritten, and the same weights, subtracted
                multiply_QK<T>(S_reg, m_reg, smem.Q, smem.K[slot]);
                flash::exponentials<T, -1>(S_reg, scale_log2);
                multiply_PV<T>(O_reg, l_reg, S_reg, smem.V[slot]);
                careful_tile();
                repaired = true;
            }
        }
        __syncwarp(); // redundant: for ptxas alone, see docs/notes_mma.md on spills
        flash::mbarrier_arrive(&smem.empty[slot]);
    }

#pragma unroll
    for (int i = 0; i < M; ++i) {
        const float l[2] = {l_reg[i][0], l_reg[i][2]};
        const float m[2] = {flash::ln_2 * (m_reg[i][0] * scale_log2 - flash::window<T>),
                            flash::ln_2 * (m_reg[i][1] * scale_log2 - flash::window<T>)};
        store_packed(O, LSE, O_reg[i], m, l, packed, i0, row0 + 16 * i, rows);
    }
}

/// Rows that one K/V head serves.
int64_t packed_rows(const flash::Problem& p) { return p.heads / p.kv_heads * p.q_len; }

template <class T, class Tiles>
void run(const flash::Problem& p, const T* Q, const T* K, const T* V, T* O, float* LSE) {
    const int N_kv = flash::as_int(p.kv_len, "kv-len");
    const int rows = flash::as_int(packed_rows(p), "heads / kv-heads x q-len");
    // the number of query heads to one K/V head is no larger than `rows`
    const PackedRows packed{static_cast<int>(p.heads / p.kv_heads), static_cast<int>(p.q_len)};
    const auto kernel = packed_heads<T, Tiles>;
    const int places = flash::resident_blocks(kernel, Tiles::threads, sizeof(Shared<Tiles>));
    const flash::TileOrder order =
        flash::order_in_waves(p, p.kv_heads, flash::ceil_div(rows, Tiles::Br), places);
    flash::launch(kernel, order.blocks(), Tiles::threads, sizeof(Shared<Tiles>), Q, K, V, O, LSE,
                  order, packed, N_kv, p.scale * flash::log2_e, p.causal);
}

} // namespace

template <class T>
void attention(const flash::Problem& p, const T* Q, const T* K, const T* V, T* O, float* LSE) {
    flash::for_head_dim<head_dims>(p.head_dim, [&](auto d) {
        // two small blocks fill an SM as well, and are enough for short heads
        if constexpr (d == 128) {
            using Large = Tiles<d, 8>;
            if (packed_rows(p) >= 2048 &&
                sizeof(Shared<Large>) <= flash::max_shared_memory_per_block()) {
                return run<T, Large>(p, Q, K, V, O, LSE);
            }
        }
        run<T, Tiles<d, 4>>(p, Q, K, V, O, LSE);
    });
}

template decltype(attention<flash::Half>) attention<flash::Half>;
template decltype(attention<flash::Bfloat16>) attention<flash::Bfloat16>;

} // namespace packed_heads
