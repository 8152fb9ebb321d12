// The profile as summary, JSON, annotated text and HTML.
#include <algorithm>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <nlohmann/json.hpp>

#include "common/simt/report.hpp"
#include "common/simt/tests/support.hpp"

using namespace simt_test;
using Catch::Matchers::ContainsSubstring;

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
    const With counting([](simt::Options& options) { options.count = true; });
    simt::clear_profile();
    launch(transpose_badly, 3, 32, 0, in.data(), out.data());
    return simt::profile();
}

/// The line of a text that contains a tag.
std::string line_with(const std::string& text, const std::string& tag) {
    const size_t at = text.find(tag);
    REQUIRE(at != std::string::npos);
    const size_t begin = text.rfind('\n', at) + 1;
    return text.substr(begin, text.find('\n', at) - begin);
}

} // namespace

TEST_CASE("findings: bank conflicts and uncoalesced accesses, but no short requests") {
    const auto kernels = profile_of_transposition();
    REQUIRE(kernels.size() == 1);
    const auto found = [&](const char* tag) {
        const int number = line_of(__FILE__, tag);
        const auto line =
            std::ranges::find_if(kernels[0].lines, [&](const auto& own) { return own.line.line == number; });
        REQUIRE(line != kernels[0].lines.end());
        return simt::findings(line->counters);
    };
    CHECK(found("both bad").uncoalesced);
    CHECK(found("both bad").conflicted);
    CHECK_FALSE(found("both good").uncoalesced);
    CHECK_FALSE(found("both good").conflicted);
    CHECK_FALSE(found("one lane").uncoalesced);
}

TEST_CASE("the summary names the lines that matter") {
    const std::string text = simt::summary(profile_of_transposition());
    CHECK_THAT(text, ContainsSubstring("transpose_badly: 1 launch of 3 x 1 x 1 blocks, 32 x 1 x 1 threads, "
                                       "4,096 bytes of shared memory"));
    CHECK_THAT(text, ContainsSubstring("global loads   96 requests, 3,072 sectors (32.00 a request)"));
    CHECK_THAT(text,
               ContainsSubstring("shared stores  96 requests, 3,072 wavefronts, 96 without conflicts (32.00-way)"));
    CHECK_THAT(text, ContainsSubstring("events         3 barriers"));
    const std::string bad = ":" + std::to_string(line_of(__FILE__, "both bad")) + " ";
    CHECK_THAT(line_with(text, bad), ContainsSubstring("<- uncoalesced") && ContainsSubstring("<- bank conflicts"));
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
    }
    CHECK(sectors == 3072);
}

TEST_CASE("the annotated text has the whole source, with counts beside it") {
    const std::string text = simt::annotated_text(profile_of_transposition());
    const std::string bad = line_with(text, "// both bad");
    CHECK_THAT(bad, ContainsSubstring("96     32.00!       3,072 32.00!"));
    CHECK_THAT(bad, ContainsSubstring(std::to_string(line_of(__FILE__, "both bad")) + " |         tile["));
    CHECK_THAT(line_with(text, "// both good"), ContainsSubstring("96      4.00           96  1.00 "));
    CHECK_THAT(line_with(text, "// all rows are there"), ContainsSubstring("<< 3 barriers"));
    CHECK_THAT(text, ContainsSubstring("| // The profile as summary, JSON, annotated text and HTML."));
}

TEST_CASE("the HTML page is complete in itself and escapes the source") {
    const std::string page = simt::annotated_html("a < b", profile_of_transposition());
    CHECK_THAT(page, ContainsSubstring("<title>a &lt; b: memory traffic by line</title>"));
    CHECK_THAT(page, ContainsSubstring("prefers-color-scheme: dark"));
    CHECK_THAT(page, ContainsSubstring("for (int c = 0; c &lt; 32; ++c) {"));
    CHECK_THAT(page, !ContainsSubstring("<script") && !ContainsSubstring("<link") && !ContainsSubstring("<img"));
    const auto row_of = [&](const char* tag) {
        return line_with(page, "id=L1-" + std::to_string(line_of(__FILE__, tag)) + ">");
    };
    const std::string bad = row_of("both bad");
    CHECK_THAT(bad, ContainsSubstring("<tr class=bad") && ContainsSubstring(">uncoalesced<") &&
                        ContainsSubstring(">bank conflicts<") && ContainsSubstring(">3,072<") &&
                        ContainsSubstring("both bad</span>"));
    CHECK_THAT(bad, ContainsSubstring("title=\"loads: 96 requests, 3,072 sectors, 384 at best\""));
    CHECK_THAT(bad, ContainsSubstring("title=\"stores: 96 requests, 3,072 wavefronts, 96 at best\""));
    CHECK_THAT(row_of("both good"), !ContainsSubstring("class=bad") && ContainsSubstring("both good</span>"));
}

TEST_CASE("the HTML page begins with the lines that matter, and links to them") {
    const std::string page = simt::annotated_html("title", profile_of_transposition());
    const auto link_to = [](const char* tag) {
        const std::string number = std::to_string(line_of(__FILE__, tag));
        return "<a href=\"#L1-" + number + "\">line " + number + "</a>";
    };
    CHECK_THAT(line_with(page, link_to("both bad")), ContainsSubstring("<td class=bad>32.0<") &&
                                                         ContainsSubstring("<td class=bad>32.00<") &&
                                                         ContainsSubstring("tile[32 * threadIdx.x + c]"));
    CHECK_THAT(line_with(page, link_to("both good")), !ContainsSubstring("class=bad"));
    CHECK_THAT(page, !ContainsSubstring(link_to("one lane")));
}
