// What page_table adds to split_kv, pages and a length for each sequence, and paged_kv to that,
// equal shares of the work. Right, without a fault in any order, and each byte that a length covers
// is read once.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <vector>

#include "common/cuda/launch/sizes.hpp"
#include "common/harness/paged/paged_kind.hpp"
#include "reference/conformance/inputs.hpp"
#include "steps/52a_page_table/page_table.hpp"
#include "steps/53_paged_kv/paged_kv.hpp"
#include "steps/tests/device_rung.hpp"
#include "steps/tests/judged.hpp"

namespace {

using flash::DType;
using flash::PagedCache;
using flash::Problem;
using flash::conformance::Case;
using flash::conformance::Kind;
using flash::simt::CpAsync;
using flash::simt::KernelProfile;
using flash::simt::Options;
using flash::simt::Schedule;
using flash::tests::buffer;

const flash::PagedRung described[] = {
    {.forward = flash::tests::on_device({.name = "page_table",
                                         .fp16 = page_table::attention<flash::Half>,
                                         .bf16 = page_table::attention<flash::Bfloat16>,
                                         .workspace_bytes = page_table::workspace_bytes,
                                         .rounded_sums = true}),
     .fp16 = page_table::attention_paged<flash::Half>,
     .bf16 = page_table::attention_paged<flash::Bfloat16>},
    {.forward = flash::tests::on_device({.name = "paged_kv",
                                         .fp16 = paged_kv::attention<flash::Half>,
                                         .bf16 = paged_kv::attention<flash::Bfloat16>,
                                         .workspace_bytes = paged_kv::workspace_bytes,
                                         .rounded_sums = true}),
     .fp16 = paged_kv::attention_paged<flash::Half>,
     .bf16 = paged_kv::attention_paged<flash::Bfloat16>}};
const flash::PagedKind page_table_rung{described[0]}, paged_kv_rung{described[1]};
const flash::PagedKind* const rungs[] = {&page_table_rung, &paged_kv_rung};

struct Setup {
    std::vector<int64_t> lengths;
    int page = 64;
    int64_t heads = 4, kv_heads = 1, N_q = 1, d = 64;
    bool causal = false;
    bool heads_first = true;
    int shared = 0; // pages
    DType dtype = DType::bf16;
    Kind kind = Kind::normal;

    /// With room for more keys than any sequence has.
    Case suite_case() const {
        return {.kind = kind,
                .dtype = dtype,
                .problem = flash::tests::scaled({.batch = std::ssize(lengths),
                                                 .heads = heads,
                                                 .kv_heads = kv_heads,
                                                 .q_len = N_q,
                                                 .kv_len = std::ranges::max(lengths) + 40,
                                                 .head_dim = d,
                                                 .causal = causal})};
    }
    int64_t keys() const { return std::accumulate(lengths.begin(), lengths.end(), int64_t{0}); }
};

/// Runs and judges it twice, and returns what the kernel did in one run.
KernelProfile judged(const flash::PagedKind& rung, const Setup& s, const Options& chosen = {}) {
    const Case c = s.suite_case();
    CAPTURE(rung.name, c.name(), s.page, s.lengths, s.heads_first, s.shared);
    const flash::conformance::Tensors tensors = flash::conformance::make_inputs(c);
    const PagedCache cache = flash::in_pages(c.problem, tensors.view(c.dtype), s.page, s.lengths, 5,
                                             s.heads_first, s.shared);
    const flash::tests::Counting counting(chosen);
    const std::unique_ptr<flash::AnyRun> run = rung.on_pages(cache, c.dtype, tensors.q);
    run->run();
    KernelProfile kernel = counting.kernel();
    const std::vector<float> o = run->o(), lse = run->lse();
    run->poison();
    run->run();
    CHECK(run->damage().empty());
    const flash::Verdict verdict = rung.judge_pages(cache, c.dtype, tensors.q, o, lse);
    if (!verdict.ok) {
        FAIL_CHECK(verdict.message);
    }
    CHECK(verdict.rows == c.problem.lse_size());
    CHECK((run->o() == o && run->lse() == lse));
    return kernel;
}

std::vector<int64_t> drawn(int64_t sequences, int64_t most) {
    Problem p;
    p.batch = sequences;
    p.kv_len = most;
    std::vector<int64_t> lengths = flash::random_lengths(p, 3);
    for (size_t b = 4; b < lengths.size(); b += 9) {
        lengths[b] = 0;
    }
    return lengths;
}

const Options orders[] = {
    {.cp_async = CpAsync::late, .detect = true},
    {.schedule = {Schedule::shuffle, 1}, .cp_async = CpAsync::early, .detect = true},
    {.schedule = {Schedule::reverse}, .cp_async = CpAsync::late, .detect = true},
    {.schedule = {Schedule::one_warp_ahead, 1}, .cp_async = CpAsync::late, .detect = true}};

const std::vector<int64_t> short_ones = {0, 1, 15, 16, 17};

} // namespace

TEST_CASE("page_table and paged_kv are right, without a fault in any order, whatever the pages and "
          "lengths") {
    const flash::PagedKind& rung = *GENERATE(&page_table_rung, &paged_kv_rung);
    const auto order = GENERATE(0, 1, 2, 3);
    const Setup s = GENERATE(
        Setup{.lengths = short_ones, .page = 16},
        Setup{.lengths = {300, 0, 65, 64, 63}, .page = 64, .heads_first = false},
        Setup{.lengths = {700, 256, 1, 255, 257}, .page = 256, .d = 128, .dtype = DType::fp16},
        Setup{.lengths = {1500, 3, 0, 20}, .heads = 8, .kv_heads = 2, .heads_first = false},
        Setup{.lengths = {3, 0, 0, 1500}, .page = 48, .kv_heads = 4, .dtype = DType::fp16},
        Setup{.lengths = {100, 200, 90, 31}, .page = 16, .shared = 4},
        Setup{.lengths = {400, 260, 9}, .page = 16, .N_q = 7, .d = 32, .causal = true},
        // with a mask the first rows of a short sequence see no key
        Setup{.lengths = {2, 700, 0, 5},
              .heads = 6,
              .kv_heads = 2,
              .N_q = 9,
              .d = 128,
              .causal = true,
              .heads_first = false},
        Setup{.lengths = {900}, .page = 32, .kind = Kind::rises_2000},
        Setup{.lengths = {0}, .page = 16},
        Setup{.lengths = drawn(70, 300), .page = 16, .heads = 2, .d = 32, .dtype = DType::fp16});
    CAPTURE(to_string(orders[order].schedule));
    judged(rung, s, orders[order]);
}

TEST_CASE("page_table and paged_kv with many kinds of heads, queries and pages") {
    const flash::PagedKind& rung = *GENERATE(&page_table_rung, &paged_kv_rung);
    const int64_t d = GENERATE(32, 64, 128);
    const int page = GENERATE(16, 64, 256);
    const bool causal = GENERATE(false, true);
    const bool heads_first = GENERATE(false, true);
    const Setup one{.lengths = {17, 0, 260, 1, 64, 31},
                    .page = page,
                    .heads = causal ? 6 : 4,
                    .kv_heads = causal ? 2 : 4,
                    .N_q = heads_first ? 1 : 6,
                    .d = d,
                    .causal = causal,
                    .heads_first = heads_first,
                    .shared = page == 16 ? 1 : 0,
                    .dtype = d == 64 ? DType::fp16 : DType::bf16};
    judged(rung, one);
}

TEST_CASE("page_table and paged_kv read each byte of K and V that a length covers once, and no "
          "other") {
    const flash::PagedKind& rung = *GENERATE(&page_table_rung, &paged_kv_rung);
    const Setup s = GENERATE(
        Setup{.lengths = {1000}, .d = 128}, Setup{.lengths = {1000, 0, 37}, .heads_first = false},
        Setup{.lengths = {5, 2000, 63, 64, 65}, .page = 16, .heads = 8, .kv_heads = 2},
        Setup{.lengths = short_ones, .page = 16},
        Setup{.lengths = {100, 200, 90, 31}, .page = 16, .shared = 4}, // by each of its sequences
        Setup{.lengths = drawn(70, 300), .page = 16, .d = 32});
    const KernelProfile kernel = judged(rung, s);
    const auto bytes = static_cast<uint64_t>(s.keys() * s.kv_heads * s.d * 2);
    CHECK(buffer(kernel, "K").load.bytes == bytes);
    CHECK(buffer(kernel, "V").load.bytes == bytes);
    const auto rows = static_cast<uint64_t>(s.suite_case().problem.lse_size());
    CHECK(buffer(kernel, "O").store.bytes == rows * static_cast<uint64_t>(s.d) * 2);
    CHECK(buffer(kernel, "LSE").store.bytes == rows * 4);
    // each lane of a warp reads the entry of each of its steps, and no other
    uint64_t steps = 0;
    for (const int64_t length : s.lengths) {
        steps += static_cast<uint64_t>(flash::ceil_div(length, 16) * s.kv_heads);
    }
    CHECK(buffer(kernel, "the table").load.bytes == steps * 32 * 4);
}

TEST_CASE("page_table cuts every sequence into as many parts as the longest may need") {
    // 4 SMs, a block each at d = 128; 4 rows of 129 floats are a part
    struct Split {
        std::vector<int64_t> lengths;
        unsigned blocks;
        uint64_t parts;
    };
    const Split s = GENERATE(Split{{1024}, 4, 4}, // up to 1,064 keys, and a block for each SM
                             Split{{1000, 10}, 4, 4}, Split{{0, 0}, 2, 0}, // 40 keys are one step
                             Split{{900, 70, 0, 200}, 4, 0});
    CAPTURE(s.lengths);
    const KernelProfile kernel = judged(page_table_rung, {.lengths = s.lengths, .d = 128});
    CHECK(kernel.grid.x == s.blocks);
    CHECK(buffer(kernel, "the parts").store.bytes == s.parts * 4 * 129 * 4);
}

TEST_CASE("blocks of paged_kv share a sequence as soon as it is longer than a block's share") {
    // 4 SMs, a block each at d = 128; 4 rows of 129 floats are a part
    struct Shared {
        std::vector<int64_t> lengths;
        uint64_t parts;
    };
    const Shared s = GENERATE(
        Shared{{1024}, 4},           // 16 rounds of 64 keys: 4 for each block
        Shared{{64, 64, 64, 64}, 0}, // a round each
        // Four empty rounds in front of each tile: 67 and 6 times 5, so 25 each. Of the long one's
        // keys the blocks have 21, 25 and 17 rounds.
        Shared{{4000, 10, 10, 10, 10, 10, 10}, 3},
        Shared{{10, 10, 10, 10, 10, 10, 4000}, 3}, // its keys begin in round 34: 16, 25 and 22
        Shared{{300, 300, 300, 300}, 0},           // 5 rounds each
        Shared{{300, 300, 300, 300, 300}, 6},      // 25 rounds, 7 each: 5 2 | 3 4 | 1 5 1 | 4
        // 70 rounds, all tiles have 10: 20 for each block, and not 18
        Shared{{640, 630, 640, 600, 640, 640, 640}, 0},
        // One has 9, so there are empty rounds, 14 for each tile and 25 for each block. The keys of
        // the second, fourth and sixth tile begin in rounds 18, 46 and 73.
        Shared{{640, 630, 640, 570, 640, 640, 640}, 6}, Shared{{16}, 0},
        Shared{{0, 0, 0, 0, 0}, 0});
    CAPTURE(s.lengths);
    const KernelProfile kernel = judged(paged_kv_rung, {.lengths = s.lengths, .d = 128});
    const flash::simt::BufferTraffic traffic = buffer(kernel, "the parts");
    CHECK(traffic.store.bytes == s.parts * 4 * 129 * 4);
    CHECK(traffic.load.bytes == s.parts * 4 * (128 + 32) * 4); // each thread reads an LSE
    // no bank conflict
    CHECK(kernel.total.shared_load.wavefronts == kernel.total.shared_load.ideal);
    CHECK(kernel.total.async_store.wavefronts == kernel.total.async_store.ideal);
    CHECK(kernel.total.shared_store.wavefronts == kernel.total.shared_store.ideal);
}

TEST_CASE("a part that costs more to merge than it saves is not cut off") {
    // 16 rows, and 4 SMs with room for four blocks each. 1000 keys are 16 rounds, one for each
    // block; but sqrt(16 x 16 / 64) = 2. Of 8 rounds each is cut off: sqrt(8 x 16 / 64) = 1.4.
    const int64_t length = GENERATE(1000, 500);
    const KernelProfile kernel = judged(paged_kv_rung, {.lengths = {length}, .heads = 16, .d = 32});
    CHECK(buffer(kernel, "the parts").store.bytes == 8 * 16 * 33 * 4);
}

TEST_CASE("a table with a page that does not exist is refused before the kernel runs") {
    const Case c = Setup{.lengths = {100, 0, 16}, .page = 16}.suite_case();
    const flash::conformance::Tensors tensors = flash::conformance::make_inputs(c);
    PagedCache cache = flash::in_pages(c.problem, tensors.view(c.dtype), 16, {100, 0, 16}, 1);
    const auto run = [&] { return paged_kv_rung.on_pages(cache, c.dtype, tensors.q); };
    CHECK_NOTHROW(run());
    for (const int wrong : {-1, static_cast<int>(cache.pages())}) {
        const int right = std::exchange(cache.table[6], wrong);
        CHECK_THROWS_AS(run(), flash::Error);
        cache.table[6] = right;
    }
    cache.table[7] = -1; // the first one behind the length
    CHECK_NOTHROW(run());
}

namespace {

/// A rung's attention_paged, with lengths that no sequence may have for 0 and for N_kv.
template <class T, auto attention_paged>
void with_wrong_lengths(const Problem& p, const flash::PagedKV<T>& cache, const T* Q, T* O,
                        float* LSE, void* workspace) {
    int* const lengths = const_cast<int*>(cache.lengths); // the SIMT backend's memory is the host's
    for (int64_t b = 0; b < p.batch; ++b) {
        lengths[b] = lengths[b] == 0 ? -7 : lengths[b] == p.kv_len ? 0x7fffffff : lengths[b];
    }
    attention_paged(p, cache, Q, O, LSE, workspace);
}

} // namespace

TEST_CASE("lengths that a row of the table has no room for count as the nearest that it has") {
    const size_t which = GENERATE(0, 1);
    const flash::PagedKind& rung = *rungs[which];
    Case c = Setup{.lengths = {0, 100, 200, 0, 200, 16}, .page = 16}.suite_case();
    c.problem.kv_len = 200;
    const flash::conformance::Tensors tensors = flash::conformance::make_inputs(c);
    const PagedCache cache =
        flash::in_pages(c.problem, tensors.view(c.dtype), 16, {0, 100, 200, 0, 200, 16}, 1);
    flash::PagedRung wrong = described[which];
    wrong.bf16 =
        which == 0
            ? with_wrong_lengths<flash::Bfloat16, page_table::attention_paged<flash::Bfloat16>>
            : with_wrong_lengths<flash::Bfloat16, paged_kv::attention_paged<flash::Bfloat16>>;
    const auto run = rung.on_pages(cache, c.dtype, tensors.q);
    const auto run_wrong = flash::PagedKind(wrong).on_pages(cache, c.dtype, tensors.q);
    run->run();
    run_wrong->run();
    CHECK(run_wrong->o() == run->o());
    CHECK(run_wrong->lse() == run->lse());
}

TEST_CASE("page_table and paged_kv refuse pages and strides that their copies cannot have") {
    const auto attention_paged =
        GENERATE(as<flash::ForwardPaged<flash::Half>>{}, page_table::attention_paged<flash::Half>,
                 paged_kv::attention_paged<flash::Half>);
    const Problem p{.kv_len = 64, .head_dim = 64};
    const int page_number = 0;
    const auto call = [&](int page, int64_t row_stride, const int* table = nullptr) {
        const flash::PagedKV<flash::Half> cache{.K = nullptr,
                                                .V = nullptr,
                                                .page_stride = 4096,
                                                .head_stride = 4096,
                                                .row_stride = row_stride,
                                                .page = page,
                                                .table = table,
                                                .most_pages = 1,
                                                .lengths = nullptr};
        attention_paged(p, cache, nullptr, nullptr, nullptr, nullptr);
    };
    CHECK_THROWS_AS(call(20, 64), flash::Error);
    CHECK_THROWS_AS(call(0, 64), flash::Error);
    CHECK_THROWS_AS(call(16, 68), flash::Error);
    CHECK_THROWS_AS(call(48, 64, &page_number), flash::Error); // a row for 48 keys, and N_kv = 64
}
