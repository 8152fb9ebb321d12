// The lists of the conformance suite hold what they promise, and the inputs are what their names
// say.
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "reference/conformance/judge.hpp"

namespace {

using namespace flash;
using conformance::Case;
using conformance::Kind;
using conformance::List;
using conformance::Scope;

const std::vector<int64_t> cpu_dims = {1, 5, 32, 64, 128, 256}, cuda_dims = {32, 64, 128},
                           hopper_dims = {64, 128, 256};

Scope scope(std::vector<int64_t> dims, int64_t longest = 1024) {
    return {{DType::fp32}, std::move(dims), longest};
}

// What is varied from case to case, as name and value.
std::map<std::string, std::string> features(const Case& c) {
    const Problem& p = c.problem;
    return {{"kind", conformance::kind_name(c.kind)},
            {"shape", std::to_string(p.q_len) + "x" + std::to_string(p.kv_len)},
            {"d", std::to_string(p.head_dim)},
            {"mask", p.causal ? "causal" : "full"},
            {"heads", std::to_string(p.heads) + "/" + std::to_string(p.kv_heads)},
            {"scale", p.scale == default_scale(p.head_dim) ? "default" : "other"}};
}

// Pairs of values that no case has together, of all those that occur at all.
std::vector<std::string> missing_pairs(const std::vector<Case>& cases) {
    std::map<std::string, std::set<std::string>> values;
    std::set<std::array<std::string, 4>> pairs;
    for (const Case& c : cases) {
        const auto all = features(c);
        for (const auto& [name, value] : all) {
            values[name].insert(value);
            for (const auto& [other, other_value] : all) {
                pairs.insert({name, value, other, other_value});
            }
        }
    }
    std::vector<std::string> missing;
    for (const auto& [name, some] : values) {
        for (const auto& [other, others] : values) {
            for (const std::string& value : some) {
                for (const std::string& other_value : others) {
                    if (name < other && !pairs.contains({name, value, other, other_value})) {
                        missing.push_back(name + " " + value + " with " + other + " " +
                                          other_value);
                    }
                }
            }
        }
    }
    return missing;
}

std::vector<Case> of_kind(const List& list, bool normal) {
    std::vector<Case> some;
    std::ranges::copy_if(list.cases, std::back_inserter(some),
                         [&](const Case& c) { return (c.kind == Kind::normal) == normal; });
    return some;
}

bool has_spread(const Case& c) { return c.kind == Kind::spread_16 || c.kind == Kind::spread_24; }

// Kinds that are tried on one shape of their own.
bool has_own_shape(const Case& c) {
    return c.kind == Kind::real_text || has_spread(c) || c.kind >= Kind::huge_equal ||
           (c.kind >= Kind::rises_50 && c.kind <= Kind::towering_last);
}

std::string joined(const std::vector<std::string>& lines) {
    std::string all;
    for (const std::string& line : lines) {
        all += line + "\n";
    }
    return all;
}

} // namespace

TEST_CASE("full: every shape and head dim and mask and grouping and scale meets every other") {
    for (const auto& [dims, longest] :
         {std::pair{cpu_dims, 1024}, {cuda_dims, 1024}, {cuda_dims, 512}, {hopper_dims, 1024}}) {
        const List list = conformance::full(scope(dims, longest));
        CHECK(joined(missing_pairs(of_kind(list, true))) == "");
        std::vector<Case> others = of_kind(list, false);
        std::erase_if(others, has_own_shape);
        CHECK(joined(missing_pairs(others)) == "");
    }
}

TEST_CASE("full: all shapes and heads and kinds of the design are there") {
    std::set<std::pair<int64_t, int64_t>> shapes;
    std::set<std::pair<int64_t, int64_t>> heads;
    std::set<Kind> kinds;
    std::set<int64_t> batches;
    std::set<float> other_scales;
    const List list = conformance::full(scope(cpu_dims));
    for (const Case& c : list.cases) {
        const Problem& p = c.problem;
        shapes.emplace(p.q_len, p.kv_len);
        heads.emplace(p.heads, p.kv_heads);
        kinds.insert(c.kind);
        batches.insert(p.batch);
        CHECK_NOTHROW(validate(p));
    }
    for (const auto& [q, kv] : std::vector<std::pair<int64_t, int64_t>>{{1, 1},
                                                                        {1, 239},
                                                                        {3, 799},
                                                                        {64, 128},
                                                                        {97, 97},
                                                                        {113, 203},
                                                                        {127, 512},
                                                                        {128, 217},
                                                                        {200, 200},
                                                                        {239, 1},
                                                                        {256, 512},
                                                                        {512, 256},
                                                                        {1023, 1024}}) {
        CHECK(shapes.contains({q, kv}));
        CHECK(shapes.contains({kv, q}));
    }
    // 12: real text, 1: spread
    CHECK(heads == std::set<std::pair<int64_t, int64_t>>{{6, 6}, {6, 2}, {6, 1}, {12, 12}, {1, 1}});
    CHECK(kinds.size() == 24);
    CHECK(batches == std::set<int64_t>{1, 2});
}

TEST_CASE("full: repeated runs and masked tiles occur and what is left out is said") {
    const List list = conformance::full(scope(cuda_dims, 512));
    CHECK(std::ranges::count_if(list.cases, [](const Case& c) { return c.runs > 1; }) > 8);
    CHECK(std::ranges::any_of(list.cases, [](const Case& c) { // whole tiles of any size see nothing
        return c.problem.causal && c.problem.q_len - c.problem.kv_len >= 256;
    }));
    CHECK(std::ranges::none_of(list.cases, [](const Case& c) {
        return std::max(c.problem.q_len, c.problem.kv_len) > 512 && !has_spread(c);
    }));
    const std::string said = joined(list.left_out);
    CHECK(said.find("1023x1024: too long") != std::string::npos);
    CHECK(said.find("799x3: too long") != std::string::npos);
    CHECK(said.find("4096x4096 with scores of large spread: on a GPU alone") != std::string::npos);
    CHECK(said.find("more blocks than a GPU has SMs: on a GPU alone") != std::string::npos);

    Scope gpu = scope(cuda_dims);
    gpu.many_rows = true;
    // 160 SMs, 192 rows to a block
    CHECK(std::ranges::any_of(conformance::full(gpu).cases, [](const Case& c) {
        return c.runs > 1 &&
               c.problem.batch * c.problem.heads * ((c.problem.q_len + 191) / 192) > 160;
    }));

    // Chosen and left out together are the whole product: 19 shapes, 6 head dims, 12 combinations.
    const List cpu = conformance::full(scope(cpu_dims));
    size_t left_out = 0;
    for (const std::string& line : cpu.left_out) {
        if (line.starts_with("normal ")) {
            left_out += std::stoul(line.substr(line.find(": ") + 2));
        }
    }
    CHECK(of_kind(cpu, true).size() + left_out == 19 * 6 * 12);
}

TEST_CASE("detect: small problems of two heads and every pair") {
    for (const auto& dims : {cpu_dims, cuda_dims, hopper_dims}) {
        const List list = conformance::detect(scope(dims));
        for (const Case& c : list.cases) {
            CHECK(c.problem.q_len * c.problem.kv_len <= 200 * 200); // scores of a head
            CHECK(c.problem.heads == 2);
        }
        CHECK(joined(missing_pairs(of_kind(list, true))) == "");
    }
}

TEST_CASE(
    "schedules: some of the cases for detectors, every head dim with each mask and each type") {
    const conformance::Scope scope{{DType::fp16, DType::bf16}, cuda_dims, 512};
    std::set<std::string> names, met, types;
    for (const Case& c : conformance::detect(scope).cases) {
        names.insert(c.group() + " " + c.name());
        const std::string mask = c.problem.causal ? "causal" : "full";
        types.insert(
            {std::string(dtype_name(c.dtype)) + conformance::kind_name(c.kind),
             std::string(dtype_name(c.dtype)) + std::to_string(c.problem.q_len),
             std::string(dtype_name(c.dtype)) + mask + std::to_string(c.problem.head_dim)});
    }
    // 10 kinds, 9 numbers of queries, 3 head dims with each mask: of both types
    CHECK(types.size() == 2 * (10 + 9 + 3 * 2));
    const List list = conformance::schedules(scope);
    for (const Case& c : list.cases) {
        CHECK(names.contains(c.group() + " " + c.name()));
        const std::string d = "d=" + std::to_string(c.problem.head_dim);
        met.insert({d + dtype_name(c.dtype), d + (c.problem.causal ? "causal" : "full")});
    }
    CHECK(list.cases.size() * 2 < names.size());
    CHECK(met.size() == cuda_dims.size() * (2 + 2));
}

TEST_CASE(
    "windows of one key and of all, beside edges of tiles, and sinks, for rungs that know them") {
    Scope scope{{DType::fp16, DType::bf16}, hopper_dims, 512};
    for (const Case& c : conformance::full(scope).cases) {
        CHECK((c.problem.window == 0 && !c.problem.sink));
    }
    scope.window_and_sink = true;
    for (const int64_t d : hopper_dims) {
        std::set<std::string> seen;
        for (const Case& c : conformance::full(scope).cases) {
            const Problem& p = c.problem;
            if (p.head_dim != d || (p.window == 0 && !p.sink)) {
                continue;
            }
            CHECK_NOTHROW(validate(p));
            seen.insert({dtype_name(c.dtype), p.sink ? "a sink" : "none",
                         p.q_len < p.kv_len   ? "fewer queries"
                         : p.q_len > p.kv_len ? "rows that see nothing"
                                              : "as many"});
            if (p.window == 0) {
                seen.insert(p.causal ? "a sink, causal" : "a sink, full");
            } else {
                seen.insert(p.window == 1          ? "W = 1"
                            : p.window >= p.kv_len ? "W >= N_kv"
                            : p.window % 64 == 0   ? "an edge"
                            : p.window % 64 == 1   ? "behind an edge"
                            : p.window % 64 == 63  ? "before an edge"
                                                   : "elsewhere");
            }
            if (c.kind == Kind::extreme_sinks) {
                seen.insert("extreme sinks");
                const std::vector<float> sink = conformance::make_inputs(c).sink;
                REQUIRE(sink.size() == 6);
                CHECK(std::abs(sink[0]) < 80);
                CHECK(sink[1] == -std::numeric_limits<float>::infinity());
                CHECK(sink[2] == 1e30f);
                CHECK(sink[3] == -1e30f);
                CHECK(sink[4] > 60);
                CHECK(sink[5] < -60);
            }
        }
        CAPTURE(d);
        CHECK(seen.size() == 2 + 2 + 3 + 2 + 6 + 1);
    }
}

TEST_CASE("V has its own head dim in every case, for rungs that know it") {
    Scope scope{{DType::fp16, DType::bf16}, {192, 64}, 512};
    scope.head_dims_v = {128, 32};
    for (const List& list :
         {conformance::full(scope), conformance::detect(scope), conformance::schedules(scope)}) {
        for (const Case& c : list.cases) {
            CHECK(c.problem.head_dim_v == (c.problem.head_dim == 192 ? 128 : 32));
            CHECK_NOTHROW(validate(c.problem));
        }
    }
    scope.head_dims = {192};
    scope.head_dims_v = {128};
    Case c = conformance::detect(scope).cases.front();
    CHECK(c.name().find("d=192/128 ") != std::string::npos);
    for (const Kind kind : {Kind::normal, Kind::nan_head, Kind::large_values}) {
        c.kind = kind;
        c.problem.batch = 2;
        const conformance::Tensors t = conformance::make_inputs(c);
        CHECK(t.v.size() == static_cast<size_t>(c.problem.v_size()));
        CHECK(t.k.size() == static_cast<size_t>(c.problem.kv_size()));
        const auto nans = [](const std::vector<float>& x) {
            return std::ranges::count_if(x, [](float y) { return std::isnan(y); });
        };
        const int64_t head = kind == Kind::nan_head ? c.problem.kv_len : 0;
        CHECK(nans(t.k) == head * 192);
        CHECK(nans(t.v) == head * 128);
    }
}

TEST_CASE("names are unique") {
    Scope windows{{DType::fp16, DType::bf16}, hopper_dims, 512};
    windows.window_and_sink = true;
    for (const List& list : {conformance::full({{DType::fp32, DType::fp16}, cpu_dims, 1024}),
                             conformance::detect({{DType::fp16, DType::bf16}, cuda_dims, 512}),
                             conformance::full(windows), conformance::detect(windows),
                             conformance::schedules(windows)}) {
        std::set<std::string> names, groups;
        std::string group;
        for (const Case& c : list.cases) {
            CHECK(names.insert(c.group() + " " + c.name()).second);
            const bool is_new = group != c.group(); // each group in one piece
            CHECK(groups.insert(c.group()).second == is_new);
            group = c.group();
        }
    }
}

TEST_CASE("inputs are what their kind says") {
    const List list = conformance::full({{DType::fp32, DType::fp16, DType::bf16}, {1, 32}, 128});
    size_t outliers = 0, values = 0;
    for (const Case& c : list.cases) {
        CAPTURE(c.group(), c.name());
        const Problem& p = c.problem;
        const conformance::Tensors t = conformance::make_inputs(c);
        REQUIRE(t.q.size() == static_cast<size_t>(p.q_size()));
        REQUIRE(t.k.size() == static_cast<size_t>(p.kv_size()));
        REQUIRE(t.v.size() == static_cast<size_t>(p.kv_size()));
        const auto bad = [](float x) { return !std::isfinite(x); };

        // Representable in the type.
        for (const auto* tensor : {&t.q, &t.k, &t.v}) {
            CHECK(std::ranges::all_of(
                *tensor, [&](float x) { return std::isnan(x) || round_to(c.dtype, x) == x; }));
        }

        // NaN and infinity where they belong, and the rows that hold them marked.
        const auto spoilt = std::ranges::count(t.spoilt, true);
        const bool row = c.kind == Kind::nan_row || c.kind == Kind::inf_row;
        CHECK(std::ranges::count_if(t.q, bad) == (row ? 1 : 0));
        const auto bad_keys = std::ranges::count_if(t.k, bad);
        CHECK(bad_keys == (c.kind == Kind::nan_head ? p.kv_len * p.head_dim : 0));
        CHECK(std::ranges::count_if(t.v, bad) == bad_keys);
        CHECK(spoilt == (row ? 1 : c.kind == Kind::nan_head ? p.q_len * p.heads / p.kv_heads : 0));
        CHECK(spoilt < p.lse_size()); // some rows remain to be compared
        if (row) {
            const auto where = std::ranges::find_if(t.q, bad) - t.q.begin();
            CHECK(t.spoilt[static_cast<size_t>(where / p.head_dim)]);
            CHECK(p.visible_keys(where / p.head_dim % p.q_len) > 0);
            CHECK(std::isnan(t.q[static_cast<size_t>(where)]) == (c.kind == Kind::nan_row));
        }

        // Scores, from the definition.
        double lowest = 1e300, highest = -1e300, highest_of_spoilt = -1e300;
        for (int64_t b = 0; b < p.batch; ++b) {
            for (int64_t h = 0; h < p.heads; ++h) {
                for (int64_t i = 0; i < p.q_len; ++i) {
                    const bool is_spoilt =
                        !t.spoilt.empty() &&
                        t.spoilt[static_cast<size_t>(p.q_offset(b, h) / p.head_dim + i)];
                    for (int64_t j = 0; j < p.kv_len; ++j) {
                        double s = 0;
                        for (int64_t x = 0; x < p.head_dim; ++x) {
                            s += static_cast<double>(t.q[static_cast<size_t>(p.q_offset(b, h) +
                                                                             i * p.head_dim + x)]) *
                                 static_cast<double>(t.k[static_cast<size_t>(p.kv_offset(b, h) +
                                                                             j * p.head_dim + x)]);
                        }
                        s *= static_cast<double>(p.scale);
                        if (is_spoilt) {
                            highest_of_spoilt = j < p.visible_keys(i)
                                                    ? std::max(highest_of_spoilt, s)
                                                    : highest_of_spoilt;
                        } else {
                            lowest = std::min(lowest, s);
                            highest = std::max(highest, s);
                        }
                    }
                }
            }
        }
        const double largest = std::max(highest, -lowest);
        bool equal = true;
        switch (c.kind) {
        case Kind::logits_1e4:
            CHECK(std::abs(largest - 1e4) < 1e2);
            CHECK(lowest < 0);
            CHECK(highest > 0);
            break;
        case Kind::logits_6e4:
            CHECK(std::abs(largest - 6e4) < 6e2);
            break;
        case Kind::logits_negative:
            CHECK(highest < -5e4);
            CHECK(lowest > -6e4);
            break;
        case Kind::huge_equal: // and all are one number
            CHECK(highest == lowest);
            CHECK(highest > 1e8);
            break;
        case Kind::large_scale:
            CHECK(largest > 1e7);
            break;
        case Kind::tiny_scale:
            CHECK(largest < 1e-28);
            break;
        case Kind::nan_row:
            CHECK(std::abs(highest - 200) < 20); // of the rows that share lanes with it
            break;
        case Kind::inf_row:
            CHECK(highest_of_spoilt == std::numeric_limits<double>::infinity());
            break;
        case Kind::equal_keys:
            for (int64_t x = p.head_dim; x < p.kv_size(); ++x) {
                const bool first_key = x % (p.kv_len * p.head_dim) < p.head_dim;
                equal = equal && (first_key || t.k[static_cast<size_t>(x)] ==
                                                   t.k[static_cast<size_t>(x - p.head_dim)]);
            }
            CHECK(equal);
            break;
        case Kind::outliers:
            outliers += static_cast<size_t>(
                std::ranges::count_if(t.k, [](float x) { return std::abs(x) > 6; }));
            values += t.k.size();
            break;
        case Kind::one_sign:
            CHECK(std::ranges::count_if(t.v, [](float x) { return x <= 0; }) * 1000 <
                  std::ssize(t.v));
            break;
        default:
            CHECK(largest < 80); // N(0,1) must not overflow naive_attention
        }
    }
    // Half of N(0, sd 10) lies beyond 6.7, a little more beyond 6: about one value in 1800.
    CHECK(outliers * 2400 > values);
    CHECK(outliers * 900 < values);
}

TEST_CASE("full: many keys with scores of large spread in every type, and many rows on a GPU") {
    Scope here{{DType::fp16, DType::bf16}, cuda_dims, 512};
    for (const bool gpu : {false, true}) {
        here.many_rows = gpu;
        std::set<std::tuple<Kind, DType, int64_t, int64_t>> found;
        for (const Case& c : conformance::full(here).cases) {
            if (has_spread(c)) {
                CHECK(c.problem.kv_len == 4096);
                found.emplace(c.kind, c.dtype, c.problem.head_dim, c.problem.q_len);
            }
        }
        // two kinds, types and head dims, each with 128 queries
        CHECK(found.size() == (gpu ? 16 : 8));
    }
}

TEST_CASE("scores spread, rise and tower as their kind says") {
    Scope here = scope(cuda_dims, 512);
    here.dtypes = {DType::fp32, DType::fp16, DType::bf16};
    size_t seen = 0;
    for (const Case& c : conformance::full(here).cases) {
        if (!has_own_shape(c) || c.kind == Kind::real_text || c.kind >= Kind::huge_equal) {
            continue;
        }
        CAPTURE(c.group(), c.name());
        const Problem& p = c.problem;
        const conformance::Tensors t = conformance::make_inputs(c);
        for (int64_t i = 0; i < p.q_len; i += 40) {
            std::vector<double> s(static_cast<size_t>(p.kv_len));
            double mean = 0, squares = 0;
            for (int64_t j = 0; j < p.kv_len; ++j) {
                double& score = s[static_cast<size_t>(j)];
                for (int64_t x = 0; x < p.head_dim; ++x) {
                    score += static_cast<double>(p.scale *
                                                 t.q[static_cast<size_t>(i * p.head_dim + x)]) *
                             static_cast<double>(t.k[static_cast<size_t>(j * p.head_dim + x)]);
                }
                mean += score / static_cast<double>(p.kv_len);
                squares += score * score / static_cast<double>(p.kv_len);
            }
            const double deviation = std::sqrt(squares - mean * mean);
            const auto highest = std::ranges::max_element(s) - s.begin();
            // of N(0,1)
            const double N =
                static_cast<double>(p.scale) * std::sqrt(static_cast<double>(p.head_dim));
            const auto rises_by = [&](double total) {
                CHECK(std::abs(s.back() - s.front() - total) < 8 * N + total / 100);
                CHECK(std::abs(s[s.size() / 2] - s.front() - total / 2) < 8 * N + total / 100);
            };
            const auto towers = [&](int64_t key) {
                CHECK(highest == key);
                double next = -1e300;
                for (int64_t j = 0; j < p.kv_len; ++j) {
                    next = j == key ? next : std::max(next, s[static_cast<size_t>(j)]);
                }
                CHECK(s[static_cast<size_t>(key)] - next > 200 - 8 * N);
            };
            switch (c.kind) {
            case Kind::spread_16:
                CHECK(std::abs(deviation - 16) < 8); // |q| differs from row to row
                break;
            case Kind::spread_24:
                CHECK(std::abs(deviation - 24) < 12);
                break;
            case Kind::rises_50:
                rises_by(50);
                break;
            case Kind::rises_200:
                rises_by(200);
                break;
            case Kind::rises_2000:
                rises_by(2000);
                break;
            case Kind::towering_first:
                towers(0);
                break;
            case Kind::towering_middle:
                towers(p.kv_len / 2);
                break;
            default:
                towers(p.kv_len - 1);
            }
        }
        ++seen;
    }
    CHECK(seen > 20);
}

TEST_CASE("the same case has the same inputs every time and another case has others") {
    const List list = conformance::full(scope(cuda_dims, 128));
    const conformance::Tensors a = conformance::make_inputs(list.cases[0]),
                               again = conformance::make_inputs(list.cases[0]),
                               b = conformance::make_inputs(list.cases[1]);
    CHECK(a.q == again.q);
    CHECK(a.k == again.k);
    CHECK(a.v == again.v);
    CHECK(a.q != b.q);
    CHECK(a.q[0] == a.q[0]);
    CHECK(a.k[0] != a.v[0]);
}
