// The profile and its JSON.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "common/simt/report/profile.hpp"
#include "common/tests/simt/support.hpp"

using namespace simt_test;

namespace {

/// Reads a column (uncoalesced) and writes it to shared memory with 32-way conflicts.
__global__ void transpose_badly(const float* in, float* out) {
    __shared__ float tile[32 * 32];
    for (int c = 0; c < 32; ++c) {
        tile[32 * threadIdx.x + c] = in[32 * threadIdx.x + c]; // both bad
    }
    __syncthreads(); // all rows are there
    for (int r = 0; r < 32; ++r) {
        out[32 * r + threadIdx.x] = tile[32 * r + threadIdx.x]; // both good
    }
    if (threadIdx.x == 0) {
        out[1024] = 1; // one lane
    }
}

std::vector<simt::KernelProfile> profile_of_transposition() {
    const Buffer<float> in(1024), out(1025);
    const With counting({.count = true});
    simt::clear_profile();
    launch(transpose_badly, 3, 32, 0, in.data(), out.data());
    return simt::profile();
}

/// Stands at the end of this file, as if in a header that kernels share; it is not inlined.
__device__ void store_as_derived(float* to);
__global__ void calls_what_is_derived(float* to) { store_as_derived(to); }

} // namespace

TEST_CASE("a function that kernels share has its own line, if it was not inlined") {
    const Buffer<float> to(1);
    const With counting({.count = true});
    simt::clear_profile();
    launch(calls_what_is_derived, 1, 1, 0, to.data());
    const auto kernels = simt::profile();
    REQUIRE(kernels.size() == 1);
    REQUIRE(kernels[0].lines.size() == 1);
    const auto& line = kernels[0].lines.begin()->first;
    CHECK(line.file.ends_with("common/cuda/derived/of_this_test.hpp"));
    CHECK(line.line == 10);
}

TEST_CASE("findings: bank conflicts and uncoalesced accesses, but no short requests") {
    const auto kernels = profile_of_transposition();
    REQUIRE(kernels.size() == 1);
    const auto found = [&](const char* tag) {
        const int number = line_of(__FILE__, tag);
        const auto line = std::ranges::find_if(
            kernels[0].lines, [&](const auto& own) { return own.first.line == number; });
        REQUIRE(line != kernels[0].lines.end());
        return simt::findings(line->second);
    };
    CHECK(found("both bad").uncoalesced);
    CHECK(found("both bad").conflicted);
    CHECK_FALSE(found("both good").uncoalesced);
    CHECK_FALSE(found("both good").conflicted);
    CHECK_FALSE(found("one lane").uncoalesced);
}

TEST_CASE("JSON holds every count, and two runs give the same bytes") {
    const std::string first = simt::to_json(profile_of_transposition());
    const std::string second = simt::to_json(profile_of_transposition());
    CHECK(first == second);
    const auto document = nlohmann::json::parse(first);
    const auto& kernel = document.at("kernels").at(0);
    CHECK(kernel.at("name") == "transpose_badly");
    CHECK(kernel.at("grid") == nlohmann::json({3, 1, 1}));
    CHECK(kernel.at("total").at("global_load").at("sectors") == 3072);
    CHECK(kernel.at("total").at("global_load").at("ideal") == 384);
    CHECK(kernel.at("total").at("shared_store").at("wavefronts") == 3072);
    CHECK(kernel.at("buffers").at(1).at("store").at("bytes") == 3 * 1025 * 4);
    uint64_t sectors = 0;
    for (const auto& line : kernel.at("lines")) {
        CHECK(line.at("file").get<std::string>().ends_with("test_report.cpp"));
        sectors += line.at("global_load").at("sectors").get<uint64_t>();
        const bool bad = line.at("line") == line_of(__FILE__, "both bad");
        CHECK(line.at("uncoalesced") == bad);
        CHECK(line.at("conflicted") == bad);
    }
    CHECK(sectors == 3072);
}

namespace {
// clang-format off
#line 9 "common/cuda/derived/of_this_test.hpp"
[[gnu::noinline]] __device__ void store_as_derived(float* to) {
    *to = 1;
}
// clang-format on
} // namespace
