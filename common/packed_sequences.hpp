// Sequences of any lengths that lie one after the other, without padding: one line of tokens for
// the queries, and one for the keys. Nothing here knows a rung or a backend.
#pragma once

#include <cstdint>

namespace flash {

/// Where the sequences of a line begin and end. Of a problem with B sequences, N_q and N_kv are
/// bounds of their lengths, and
///
///     Q, O  (total_q, H, d)     K, V  (total_kv, H_kv, d)     LSE  (H, total_q)
///
/// Sequence b owns the rows cu_seqlens[b] to cu_seqlens[b + 1] - 1, of queries and of keys, and its
/// queries see its own keys alone, under the mask that they would have by themselves. A sequence
/// may have no queries, and nothing happens, or no keys: O = 0, LSE = -inf.
///
/// Both tables are device memory, and the host reads none of it: one captured CUDA graph serves a
/// batch whose lengths change between its launches. They begin with 0 and never fall. They may end
/// before the totals; rows behind are neither read nor written. The caller answers for all that:
/// nobody checks it, but no row outside of the line is touched. A sequence with more queries than
/// its bound may get no O.
struct PackedSequences {
    int64_t total_q, total_kv;               // at least 1
    const int *cu_seqlens_q, *cu_seqlens_kv; // (B + 1) each
};

} // namespace flash
