// Who holds N x N matrices, and who does not.
#include <catch2/catch_test_macros.hpp>

#include <omp.h>

#include "steps/05_one_pass_softmax/one_pass_softmax.hpp"
#include "steps/tests/attention_data.hpp"
#include "steps/tests/counted_malloc.hpp"

namespace {

using namespace flash::tests;

MallocCounts memory_of(const NamedRung& rung, int64_t N) {
    AttentionData data = random_attention({.heads = 2, .kv_heads = 2, .q_len = N, .kv_len = N, .head_dim = 64}, 1);
    reset_malloc_counts();
    rung.attention(data.problem, data.Q.data(), data.K.data(), data.V.data(), data.O.data(), data.LSE.data());
    return malloc_counts();
}

size_t bytes(int64_t rows, int64_t cols) { return sizeof(float) * static_cast<size_t>(rows * cols); }

} // namespace

TEST_CASE("01 and 02 hold S and P, two N x N matrices a thread") {
    for (const size_t rung : {0, 1}) {
        for (const int64_t N : {512, 1024}) {
            const NamedRung& named = cpu_rungs()[rung];
            INFO(named.name << ", N = " << N);
            const MallocCounts counts = memory_of(named, N);
            CHECK(counts.largest >= bytes(N, N));
            const size_t S_and_P = static_cast<size_t>(omp_get_max_threads()) * 2 * bytes(N, N);
            CHECK(counts.peak >= S_and_P);
            CHECK(counts.peak <= S_and_P + S_and_P / 2);
        }
    }
}

TEST_CASE("03, 04 and 05 hold a few tiles a thread, whatever N is") {
    constexpr int64_t d = 64;
    const size_t tile_of_scores = bytes(step05::Br, step05::Bc);
    const size_t tile_of_rows = bytes(step05::Br, d);
    // Scores, the Partial of the tile, the one seen so far and their merge; packed factors are on the stack.
    const size_t a_few_tiles = 2 * tile_of_scores + 4 * tile_of_rows;
    for (const size_t rung : {2, 3, 4}) {
        for (const int64_t N : {512, 1024, 2048, 4096}) {
            const NamedRung& named = cpu_rungs()[rung];
            INFO(named.name << ", N = " << N);
            const MallocCounts counts = memory_of(named, N);
            CHECK(counts.largest <= 2 * tile_of_scores);
            CHECK(counts.peak <= static_cast<size_t>(omp_get_max_threads()) * a_few_tiles);
            CHECK(counts.peak >= tile_of_scores); // else nothing was counted
        }
    }
}
