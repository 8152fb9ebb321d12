// Who holds N x N matrices, and who does not.
#include <catch2/catch_test_macros.hpp>

#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <new>

#include "steps/01_naive_attention/naive_attention.hpp"
#include "steps/02_safe_softmax/safe_softmax.hpp"
#include "steps/05_one_pass_softmax/one_pass_softmax.hpp"
#include "steps/tests/attention_data.hpp"
#include "steps/tests/counted_malloc.hpp"

namespace {

using namespace flash::tests;

MallocCounts memory_of(const NamedRung& rung, int64_t N, int64_t heads = 2) {
    AttentionData data =
        random_attention({.heads = heads, .kv_heads = heads, .q_len = N, .kv_len = N}, 1);
    reset_malloc_counts();
    rung.attention(data.problem, data.Q.data(), data.K.data(), data.V.data(), data.O.data(),
                   data.LSE.data(), nullptr);
    return malloc_counts();
}

size_t bytes(int64_t rows, int64_t cols) {
    return sizeof(float) * static_cast<size_t>(rows * cols);
}

} // namespace

TEST_CASE("naive_attention and safe_softmax hold S and P, two N x N matrices for each thread that "
          "has a head") {
    const int threads_before = omp_get_max_threads();
    omp_set_num_threads(3);
    for (const size_t rung : {0, 1}) {
        for (const int64_t heads : {1, 2, 7}) {
            const int64_t N = 512;
            const NamedRung& named = cpu_rungs()[rung];
            INFO(named.name << ", " << heads << " heads");
            const MallocCounts counts = memory_of(named, N, heads);
            CHECK(counts.largest >= bytes(N, N));
            const auto workspace_bytes =
                rung == 0 ? naive_attention::workspace_bytes : safe_softmax::workspace_bytes;
            const auto claimed =
                static_cast<size_t>(workspace_bytes({.heads = heads, .q_len = N, .kv_len = N}));
            CHECK(claimed == static_cast<size_t>(std::min<int64_t>(3, heads)) * 2 * bytes(N, N));
            // under a sanitizer products need heap, too
            CHECK(counts.peak <= claimed + claimed / 2);
            // of the three threads one may have done all heads
            CHECK(counts.peak >= 2 * bytes(N, N));
        }
    }
    omp_set_num_threads(threads_before);
}

TEST_CASE("three_pass_softmax, two_pass_softmax and one_pass_softmax hold a few tiles per thread, "
          "whatever N is") {
    constexpr int64_t d = 64;
    const size_t tile_of_scores = bytes(one_pass_softmax::Br, one_pass_softmax::Bc);
    const size_t tile_of_rows = bytes(one_pass_softmax::Br, d);
    // Scores, the Partial of the tile, the one seen so far and their merge; packed factors are on
    // the stack.
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

TEST_CASE("without memory for S every rung ends with an exception, not with the program") {
    for (const NamedRung& rung : cpu_rungs()) {
        INFO(rung.name);
        AttentionData data =
            random_attention({.heads = 2, .kv_heads = 2, .q_len = 256, .kv_len = 256}, 1);
        const auto run = [&] {
            limit_malloc(4096);
            rung.attention(data.problem, data.Q.data(), data.K.data(), data.V.data(), data.O.data(),
                           data.LSE.data(), nullptr);
        };
        CHECK_THROWS_AS(run(), std::bad_alloc);
        limit_malloc(SIZE_MAX);
    }
}
