#pragma once

#include "common/attention.hpp"
#include "common/ranks.hpp"
#include "common/types.hpp"

namespace ring_attention {

inline constexpr int head_dims[] = {64, 128, 256};

/// O and LSE of every head, by one rank alone, whose shard is the whole sequence; the pointers are
/// device memory, and the work may still run when this returns.
/// T is flash::Half or flash::Bfloat16. See common/attention.hpp for shapes and layout. d is one of
/// head_dims.
template <class T>
void attention(const flash::Problem& p, const T* Q, const T* K, const T* V, T* O, float* LSE,
               void* workspace);

/// Bytes of `workspace`, device memory that holds the counter from which blocks draw tiles.
int64_t workspace_bytes(const flash::Problem& p);

/// One rank's part of the same. p is the whole problem, with N_q = N_kv = own.length, and the
/// tensors are the rank's shard of it: (B, H, own.rows(), d), and LSE (B, H, own.rows()). All ranks
/// call it at the same time.
template <class T>
void attention_of_rank(const flash::Problem& p, const flash::Shard& own, const T* Q, const T* K,
                       const T* V, T* O, float* LSE, void* workspace, flash::Exchange& exchange);

/// Bytes of its workspace: the counter, the rank's sums of O in fp32, and room for the K and V of
/// two other ranks.
int64_t workspace_bytes_of_rank(const flash::Problem& p, const flash::Shard& own);

/// What one launch computes: some queries of one shard against some keys of another, from whose
/// first row of each head on they are.
struct Rectangle {
    flash::Problem p;        // N_q and N_kv are the rectangle's sides
    int64_t Q_rows, KV_rows; // of each head in the shards
    bool first, last;        // first: nothing to merge with; last: nothing will be merged with it
};

/// Merges what the queries get from these keys into O_sum and LSE, and leaves O_sum, rounded, in O.
/// `drawn` is one counter.
template <class T>
void add(const Rectangle& rectangle, const T* Q, const T* K, const T* V, T* O, float* LSE,
         float* O_sum, unsigned* drawn);

} // namespace ring_attention
