// Does the conformance suite bite in backward rungs? As test_wrong_attentions.cpp: gradients with
// one known mistake each must be rejected, for the right reason, in every type and by both lists.
// Correct ones must pass.
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "common/harness/backward/backward.hpp"
#include "common/harness/program/progress.hpp"
#include "reference/conformance/judge.hpp"
#include "reference/tests/defective_backward.hpp"

namespace {

using namespace flash;
using conformance::Case;
using conformance::List;
using conformance::Prepared;
using tests::BackwardDefect;

struct Suspect {
    BackwardRung rung;
    std::string sign; // what the suite's message must contain: the right reason, not just any
    bool needs_full = false;
};

template <BackwardDefect defect>
Suspect suspect(const char* name, const char* sign, bool needs_full = false,
                bool unordered_dQ = false) {
    return {{.name = name,
             .fp32 = tests::backward<defect, float>,
             .fp16 = tests::backward<defect, Half>,
             .bf16 = tests::backward<defect, Bfloat16>,
             .window_and_sink = true,
             .unordered_dQ = unordered_dQ},
            sign,
            needs_full};
}

std::vector<Suspect> suspects() {
    using enum BackwardDefect;
    std::vector<Suspect> all = {
        suspect<delta_left_out>("leaves delta out", "dQ at"),
        suspect<scale_left_out_of_dq>("leaves scale out of dQ", "dQ at"),
        suspect<scale_left_out_of_dk>("leaves scale out of dK", "dK at"),
        suspect<ds_not_masked>("does not mask dS", "dQ at"),
        suspect<p_not_masked>("does not mask P in dV", "dV at"),
        suspect<lse_base_2>("takes LSE for one in base 2", "dV at"),
        suspect<one_head_of_group>("dK and dV of one head of the group", "dV at"),
        suspect<dv_not_normalised>("dV without normalisation", "dV at"),
        suspect<other_layout_of_do>("reads dO as (B, N, H, d)", "dV at"),
        suspect<do_is_ones>("takes dO for ones", "dV at"),
        suspect<rows_past_the_end>("adds the rows that pad the last tile", "dV at"),
        suspect<drops_last_query_tile>("drops the last partial tile of queries", "dQ at"),
        suspect<drops_last_key_tile>("drops the last partial tile of keys", "dV at"),
        suspect<order_depends_on_run>("order of summation depends on the run", "other bits", true),
        suspect<order_depends_on_run>("may differ in dQ, and differs in dK", "other bits", true,
                                      true),
        suspect<wrong_second_dq>("may differ in dQ, and is wrong", "dQ at", true, true),
        suspect<keys_past_the_end>("does not mask the keys that pad the last tile", "dQ at"),
        suspect<top_left_causal>("causal mask aligned top-left", "dV at"),
        suspect<kv_head_modulo>("head h reads K/V head h % H_kv", "dV at", true),
        suspect<blind_rows_nan>("NaN in rows that see nothing", "is nan"),
        suspect<blind_rows_unwritten>("leaves dQ of rows that see nothing unwritten", "dQ at"),
        suspect<adds_to_dq>("adds to a dQ that nobody has set to 0", "dQ at"),
        suspect<zero_dk>("dK all zeros", "dK is zero everywhere"),
        suspect<writes_past_dq>("writes one element past dQ", "memory after dQ"),
        suspect<writes_past_dv>("writes one element past dV", "memory after dV"),
        suspect<writes_to_do>("writes to dO", "dO, an input"),
        suspect<hides_nan>("turns NaN into 0", "is finite", true),
        suspect<trusts_lse>("trusts LSE: P may exceed 1", "dV at", true),
        suspect<accumulates_in_type>("accumulates dK and dV in 16 bits", "at", true),
    };
    all.back().rung.fp32 = nullptr;
    all[all.size() - 2].rung.fp16 = nullptr; // whose gradients would be infinite
    return all;
}

// Mistakes that only problems with a window or a sink show.
std::vector<Suspect> suspects_with_windows() {
    using enum BackwardDefect;
    return {
        suspect<window_one_short>("window of W - 1 keys", "dV at"),
        suspect<window_one_too_many>("window of W + 1 keys", "dV at"),
        suspect<top_left_window>("window aligned top-left", "dV at"),
        suspect<unseen_keys_unwritten>("leaves dK of keys that no query sees unwritten", "is nan"),
        suspect<dsink_sign>("dsink with the other sign", "dsink at"),
        suspect<dsink_scaled>("scales dsink", "dsink at"),
        suspect<dsink_of_last_batch>("dsink of the last batch entry", "dsink at"),
        suspect<dsink_of_keys>("dsink with the keys' weight", "dsink at"),
        suspect<dsink_of_no_sink>("NaN where there is neither a key nor a sink", "is nan", true),
        suspect<zero_dsink>("dsink all zeros", "dsink is zero everywhere"),
        suspect<writes_past_dsink>("writes one element past dsink", "memory after dsink"),
    };
}

conformance::Scope scope(DType type) {
    return {.dtypes = {type}, .head_dims = {64}, .longest = 512, .backward = true};
}

std::string joined(const std::vector<std::string>& messages) {
    std::string all;
    for (const std::string& message : messages) {
        all += (all.empty() ? "" : "\n") + message;
    }
    return all;
}

// Of a list those with a window or a sink.
List windows(List (*list_of)(const conformance::Scope&), DType type) {
    conformance::Scope with = scope(type);
    with.window_and_sink = true;
    List list = list_of(with);
    std::erase_if(list.cases,
                  [](const Case& c) { return c.problem.window == 0 && !c.problem.sink; });
    return list;
}

// Feeds all suspects to the list, the smallest problems first, each until its first rejection;
// prints who fell where. Correct gradients must pass every case of it, and the same with one of
// them all zeros must not.
void try_list(const std::string& title, List list, DType type, bool is_full,
              const std::vector<Suspect>& all = suspects()) {
    std::ranges::stable_sort(list.cases, {}, [](const Case& c) { return c.problem.flops(); });
    struct Fallen {
        Suspect suspect;
        const Rung& rung;
        std::string where, why;
    };
    std::vector<Fallen> fallen;
    for (const Suspect& s : all) {
        if (const Rung& made = rung_of(s.rung); made.supports(type) && (is_full || !s.needs_full)) {
            fallen.push_back({s, made, {}, {}});
        }
    }
    const Rung& correct = rung_of(suspect<BackwardDefect::none>("correct", "").rung);
    ProgressLine progress("wrong gradients, " + title);
    for (size_t n = 0; n < list.cases.size(); ++n) {
        const Prepared prepared = conformance::prepare(list.cases[n]);
        CAPTURE(list.cases[n].group(), list.cases[n].name());
        CHECK(joined(conformance::judge(correct, prepared)) == "");
        for (Fallen& f : fallen) {
            const std::string why =
                f.where.empty() ? joined(conformance::judge(f.rung, prepared)) : "";
            if (!why.empty()) {
                f.where = list.cases[n].group() + " " + list.cases[n].name();
                f.why = why;
            }
        }
        progress.update(static_cast<double>(n) / static_cast<double>(list.cases.size()));
    }
    std::printf("\n%s: %zu cases accept correct gradients\n", title.c_str(), list.cases.size());
    for (const Fallen& f : fallen) {
        std::printf("%-46s  %-66s  %s\n", f.rung.name.c_str(),
                    f.where.empty() ? "NOTHING" : f.where.c_str(),
                    f.why.substr(0, std::min<size_t>(100, f.why.find('\n'))).c_str());
    }
    std::fflush(stdout);
    for (const Fallen& f : fallen) {
        CAPTURE(title, f.rung.name, f.where, f.why);
        CHECK_FALSE(f.where.empty());
        CHECK(f.why.find(f.suspect.sign) != std::string::npos);
    }
}

} // namespace

TEST_CASE("the detect list rejects every wrong gradient and accepts correct ones") {
    for (const DType type : {DType::fp32, DType::fp16, DType::bf16}) {
        try_list(std::string("list `detect`, ") + dtype_name(type),
                 conformance::detect(scope(type)), type, false);
    }
}

TEST_CASE("the full list rejects every wrong gradient and accepts correct ones in fp32") {
    try_list("list `full`, fp32", conformance::full(scope(DType::fp32)), DType::fp32, true);
}
TEST_CASE("the full list rejects every wrong gradient and accepts correct ones in fp16") {
    try_list("list `full`, fp16", conformance::full(scope(DType::fp16)), DType::fp16, true);
}
TEST_CASE("the full list rejects every wrong gradient and accepts correct ones in bf16") {
    try_list("list `full`, bf16", conformance::full(scope(DType::bf16)), DType::bf16, true);
}
TEST_CASE("problems with windows and sinks reject every wrong gradient of theirs") {
    for (const bool is_full : {false, true}) {
        for (const DType type : {DType::fp32, DType::fp16, DType::bf16}) {
            const std::string name = is_full ? "full" : "detect";
            try_list("windows and sinks of the list `" + name + "`, " + dtype_name(type),
                     windows(is_full ? conformance::full : conformance::detect, type), type,
                     is_full, suspects_with_windows());
        }
    }
}
