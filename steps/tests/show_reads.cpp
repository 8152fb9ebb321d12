// Prints what three_pass_softmax to one_pass_softmax read of Q, K and V, counted where tiles are
// handed out: for one head, with and without a causal mask. The chapters quote it; test_reads.cpp
// asserts it.
#include <cstdio>

#include "common/cpu/tiles.hpp"
#include "steps/tests/attention_data.hpp"

int main() {
    using namespace flash::tests;
    for (const bool causal : {false, true}) {
        const flash::Problem p{.q_len = 4096, .kv_len = 4096, .causal = causal};
        AttentionData data = random_attention(p, 1);
        std::printf("MiB handed out, one head, N = 4096, d = 64, %s\n", causal ? "causal" : "full");
        std::printf("%-24s %8s %8s %8s\n", "", "Q", "K", "V");
        for (size_t i = 2; i < cpu_rungs().size(); ++i) {
            auto& counts = flash::cpu::bytes_read;
            counts.Q = counts.K = counts.V = 0;
            data.run(cpu_rungs()[i].attention);
            const auto mebibytes = [](int64_t bytes) {
                return static_cast<double>(bytes) / (1 << 20);
            };
            std::printf("%-24s %8.2f %8.2f %8.2f\n", cpu_rungs()[i].name.c_str(),
                        mebibytes(counts.Q), mebibytes(counts.K), mebibytes(counts.V));
        }
    }
    return 0;
}
