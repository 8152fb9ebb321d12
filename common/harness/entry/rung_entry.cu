// A rung as a function of C, so that Python can call it on tensors that are already on the GPU. scripts/lab compiles
// this file once for each variant, with RUNG_HEADER="steps/NN_name/name.hpp" and RUNG=stepNN, and with RUNG_FP32 for a
// rung that computes in fp32 alone.
#include RUNG_HEADER

#include <cstdint>
#include <cstdio>
#include <exception>

namespace {

template <class T>
void attention(const flash::Problem& p, const void* Q, const void* K, const void* V, void* O, float* LSE) {
    RUNG::attention(p, static_cast<const T*>(Q), static_cast<const T*>(K), static_cast<const T*>(V), static_cast<T*>(O),
                    LSE);
}

} // namespace

/// Starts the rung on the default stream; the pointers are device memory. `sizes` are B, H, H_kv, N_q, N_kv, d.
/// Returns 0, or 1 with the reason in `message`.
extern "C" int rung_attention(int bf16, const int64_t* sizes, float scale, int causal, const void* Q, const void* K,
                              const void* V, void* O, float* LSE, char* message, size_t message_size) {
    try {
        const flash::Problem p{.batch = sizes[0],
                               .heads = sizes[1],
                               .kv_heads = sizes[2],
                               .q_len = sizes[3],
                               .kv_len = sizes[4],
                               .head_dim = sizes[5],
                               .scale = scale,
                               .causal = causal != 0};
        flash::validate(p);
#ifdef RUNG_FP32
        attention<float>(p, Q, K, V, O, LSE);
        (void)bf16;
#else
        bf16 != 0 ? attention<flash::Bfloat16>(p, Q, K, V, O, LSE) : attention<flash::Half>(p, Q, K, V, O, LSE);
#endif
        return 0;
    } catch (const std::exception& error) {
        std::snprintf(message, message_size, "%s", error.what());
        return 1;
    }
}
