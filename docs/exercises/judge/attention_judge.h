// What `./scripts/exercise judge FILE.cu` calls. FILE.cu includes this header, says what it takes,
// and defines attention, attention_backward, or both.
//
//   S = scale Q K^T    P = softmax of each row of S    O = P V    LSE_i = log sum_j exp(S_ij)
//
//   Q, O, dO, dQ  (batch, heads, q_len, head_dim)         row-major and contiguous, of `type`
//   K, V, dK, dV  (batch, kv_heads, kv_len, head_dim)     query head h reads K/V head
//   LSE           (batch, heads, q_len), float             h / (heads / kv_heads)
//
// With a causal mask query i sees key j if j <= i + kv_len - q_len. A row that sees no key has
// O = 0 and LSE = -infinity. NaN in a row's inputs must show in its outputs, and nowhere else.
#pragma once

#include <cuda_runtime.h>
#include <stddef.h>

enum AttentionType { fp32, fp16, bf16 };

struct AttentionProblem {
    AttentionType type;
    int batch, heads, kv_heads; // heads is a multiple of kv_heads
    int q_len, kv_len, head_dim;
    float scale; // of the scores; greater than 0
    bool causal;
};

/// What a kernel takes. What the rungs of this repository can do and yours says that it cannot is
/// not tried, and the page says so.
struct AttentionTakes {
    const char* types = "fp32";   // of "fp32 fp16 bf16", with blanks between
    const char* head_dims = "64"; // "32 64 128"
    bool full = true;             // without a mask
    bool causal = true;           // with one
    bool grouped_heads = true;    // kv_heads < heads
    bool unequal_lengths = true;  // q_len != kv_len
    int length_multiple = 1;      // q_len and kv_len are multiples of this
    bool any_scale = true;        // not only 1 / sqrt(head_dim)
    bool lse = true;              // LSE is written
    bool rounded_sums = false;    // l sums up weights rounded to 16 bits: LSE is off by as much
    bool unordered_dq = false;    // dQ is summed up by atomics: its last bits differ between runs
};
extern "C" const AttentionTakes attention_takes __attribute__((weak)); // without it, the defaults

/// Fills O and LSE. All pointers but the problem are device memory; at first O and LSE hold NaN and
/// the workspace anything. It launches kernels in the stream, and need not wait for them.
extern "C" __attribute__((weak)) void attention(const AttentionProblem* problem, const void* Q,
                                                const void* K, const void* V, void* O, float* LSE,
                                                void* workspace, cudaStream_t stream);

/// Fills dQ, dK and dV, in the same way. O and LSE are inputs, and right.
extern "C" __attribute__((weak)) void
attention_backward(const AttentionProblem* problem, const void* Q, const void* K, const void* V,
                   const void* O, const float* LSE, const void* dO, void* dQ, void* dK, void* dV,
                   void* workspace, cudaStream_t stream);

/// Bytes of the workspace for a problem. Without it there is none.
extern "C" __attribute__((weak)) size_t attention_workspace(const AttentionProblem* problem);
