// Does the conformance suite bite? Attentions with one known mistake each go through the very code
// that judges rungs, and each must be rejected, in every type and by both lists. Correct ones must
// pass.
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "common/harness/forward/forward.hpp"
#include "common/harness/program/progress.hpp"
#include "reference/conformance/judge.hpp"
#include "reference/tests/defective_attention.hpp"

namespace {

using namespace flash;
using conformance::Case;
using conformance::List;
using conformance::Prepared;
using conformance::Scope;
using tests::Defect;

struct Suspect {
    ForwardRung rung;
    std::string sign; // what the suite's message must contain: the right reason, not just any
    bool needs_full = false; // shows only with more heads, keys or runs than the list `detect` has
};

template <Defect defect> ForwardRung rung(const char* name) {
    return {.name = name,
            .fp32 = tests::attention<defect, float>,
            .fp16 = tests::attention<defect, Half>,
            .bf16 = tests::attention<defect, Bfloat16>,
            .window_and_sink = true};
}

// V's head dim is 128, and that of Q and K 192.
constexpr int dim_of_Q[] = {192}, dim_of_V[] = {128};
template <Defect defect> ForwardRung of_two_dims(const char* name) {
    ForwardRung made = rung<defect>(name);
    made.head_dims = dim_of_Q;
    made.head_dims_v = dim_of_V;
    return made;
}

template <Defect defect> Suspect suspect(const char* name, const char* sign) {
    return {rung<defect>(name), sign};
}

std::vector<Suspect> suspects() {
    std::vector<Suspect> all = {
        suspect<Defect::drops_last_partial_tile>("drops the last partial tile of keys", "LSE at"),
        suspect<Defect::drops_last_key>("drops the last key", "LSE at"),
        suspect<Defect::overlapping_last_tile>("last tile of keys overlaps the one before",
                                               "LSE at"),
        suspect<Defect::unmasked_padding>("counts the zeros that pad the last tile as keys",
                                          "LSE at"),
        suspect<Defect::drops_last_query_tile>("drops the last partial tile of queries", "O at"),
        suspect<Defect::forgets_to_rescale_o>("forgets to rescale O", "O at"),
        suspect<Defect::forgets_to_rescale_l>("forgets to rescale l", "LSE at"),
        suspect<Defect::forgets_to_divide>("forgets to divide by l", "O at"),
        suspect<Defect::no_maximum>("leaves the maximum out", "O at"),
        suspect<Defect::maximum_starts_at_zero>("maximum starts at 0", "O at"),
        suspect<Defect::maximum_starts_at_minus_10000>("maximum starts at -10000", "O at"),
        suspect<Defect::never_raises_the_maximum>("never raises the maximum", "O at"),
        suspect<Defect::limits_P>("limits P at 2^60", "at"),
        suspect<Defect::drops_before_a_jump>("drops what came before a jump by 2^6", "LSE at"),
        suspect<Defect::top_left_causal>("causal mask aligned top-left", "LSE at"),
        suspect<Defect::causal_without_diagonal>("causal mask hides the diagonal", "LSE at"),
        suspect<Defect::causal_one_too_many>("causal mask shows one key too many", "LSE at"),
        suspect<Defect::finite_mask>("masks with -FLT_MAX, not -inf", "expected -inf"),
        suspect<Defect::blind_rows_unwritten>("leaves rows that see nothing unwritten",
                                              "expected -inf"),
        suspect<Defect::blind_rows_nan>("gives 0 / 0 in rows that see nothing", "O at"),
        suspect<Defect::fuses_the_exponent>("fuses S c - m, with m rounded", "O "),
        suspect<Defect::fuses_that_of_P>("fuses S c - m for P, and not for l", "O "),
        suspect<Defect::loses_small_V>("loses small V", "O at"),
        suspect<Defect::overflows_with_V>("overflows with V", "O at"),
        suspect<Defect::sums_rounded_P>("sums up P rounded to 16 bits", "LSE at"),
        suspect<Defect::lse_base_2>("LSE in base 2", "LSE at"),
        suspect<Defect::lse_without_maximum>("LSE without the maximum", "LSE at"),
        suspect<Defect::kv_head_modulo>("head h reads K/V head h % H_kv", "LSE at"),
        suspect<Defect::first_batch_only>("reads the first batch's K and V for all", "LSE at"),
        suspect<Defect::reads_past_the_end>("NaN past the end of V leaks in through 0 * NaN",
                                            "is nan"),
        suspect<Defect::writes_past_o>("writes one element past O", "memory after O"),
        suspect<Defect::writes_past_lse>("writes one element past LSE", "memory after LSE"),
        suspect<Defect::writes_to_q>("writes to Q", "Q, an input"),
        suspect<Defect::ignores_scale>("ignores scale", "LSE at"),
        suspect<Defect::all_zeros>("O all zeros, LSE right", "O is zero everywhere"),
        suspect<Defect::hides_nan>("turns NaN rows into 0", "is finite"),
        suspect<Defect::order_depends_on_run>("order of summation depends on the run",
                                              "other bits"),
        suspect<Defect::coarse_reciprocal>("fp32 divides by l with 20 bits",
                                           "with one key O must be V"),
        suspect<Defect::tf32_inputs>("fp32 inputs rounded to TF32", "at"),
        suspect<Defect::accumulates_in_type>("accumulates O in 16 bits", "O at"),
        suspect<Defect::rounds_scores_to_type>("rounds S to 16 bits", "LSE at"),
    };
    for (Suspect& s : all) {
        s.needs_full = s.sign == "other bits" || s.rung.name.ends_with("% H_kv") ||
                       s.rung.name.starts_with("accumulates") || s.rung.name == "loses small V";
        if (s.rung.name.starts_with("fp32")) { // too fine to show in 16 bits
            s.rung.fp16 = nullptr;
            s.rung.bf16 = nullptr;
        }
        if (s.rung.name == "overflows with V") { // bf16 and fp32 have room
            s.rung.bf16 = nullptr;
        }
        if (s.rung.name == "loses small V") { // fp16 would lose all of P
            s.rung.fp16 = nullptr;
        }
        if (s.rung.name.ends_with("16 bits") || s.rung.name == "overflows with V") {
            s.rung.fp32 = nullptr;
        }
    }
    return all;
}

// Mistakes that only problems with a window or a sink show.
std::vector<Suspect> suspects_with_windows() {
    return {
        suspect<Defect::window_one_short>("window of W - 1 keys", "LSE at"),
        suspect<Defect::window_one_too_many>("window of W + 1 keys", "LSE at"),
        suspect<Defect::top_left_window>("window aligned top-left", "LSE at"),
        suspect<Defect::window_by_tiles>("window that begins with a tile", "LSE at"),
        suspect<Defect::ignores_sink>("ignores the sink", "LSE at"),
        suspect<Defect::sink_not_in_lse>("LSE without the sink", "LSE at"),
        suspect<Defect::scales_sink>("scales the sink", "LSE at"),
        suspect<Defect::sink_of_kv_head>("takes the sink of the K/V head", "LSE at"),
        suspect<Defect::sink_without_maximum>("maximum without the sink", "LSE at"),
        suspect<Defect::sink_loses_blind_rows>("no sink in rows that see nothing", "is -inf"),
    };
}

// Mistakes that only problems show in which V is not as wide as Q and K.
std::vector<Suspect> suspects_with_two_dims() {
    return {
        {of_two_dims<Defect::sums_d_v_columns>("scores over d_v columns"), "LSE at"},
        {of_two_dims<Defect::scale_of_d_v>("scale 1 / sqrt(d_v)"), "LSE at"},
        {of_two_dims<Defect::first_panel_of_V>("64 columns of V serve for all"), "O at"},
    };
}

// The lists of SIMT, N <= 512. Wrong attentions are tried with one head dim, which their mistakes
// do not depend on; correct ones with those of the CUDA rungs, spread over the types.
Scope scope(DType type, std::vector<int64_t> head_dims = {64}) {
    return {{type}, std::move(head_dims), 512};
}

// Of a list those with a window or a sink.
List windows(List (*list_of)(const Scope&), DType type, std::vector<int64_t> head_dims = {64}) {
    Scope with = scope(type, std::move(head_dims));
    with.window_and_sink = true;
    List list = list_of(with);
    std::erase_if(list.cases,
                  [](const Case& c) { return c.problem.window == 0 && !c.problem.sink; });
    return list;
}

std::string joined(const std::vector<std::string>& messages) {
    std::string all;
    for (const std::string& message : messages) {
        all += all.empty() ? message : "\n" + message;
    }
    return all;
}

std::string short_text(const std::string& text, size_t length) {
    const std::string line = text.substr(0, text.find('\n'));
    return line.size() <= length ? line : line.substr(0, length - 3) + "...";
}

// Feeds all suspects that have the type to the list, each until its first rejection, and prints who
// fell where.
// The smallest problems come first, because they tell most suspects from correct attentions in no
// time; but a head of NaN comes last, because what reads the wrong K and V must be noticed by its
// numbers.
void reject_all(const std::string& title, List list, DType type, bool is_full,
                const std::vector<Suspect>& among = suspects()) {
    std::ranges::stable_sort(list.cases, {}, [](const Case& c) {
        return std::pair{c.kind == conformance::Kind::nan_head, c.problem.flops()};
    });
    struct Verdict {
        Suspect suspect;
        const Rung& rung;
        std::string where, why;
    };
    std::vector<Verdict> verdicts;
    for (const Suspect& s : among) {
        if (const Rung& made = rung_of(s.rung); made.supports(type) && (is_full || !s.needs_full)) {
            verdicts.push_back({s, made, {}, {}});
        }
    }
    size_t at_large = verdicts.size();
    ProgressLine progress("wrong attentions, " + title);
    for (size_t n = 0; n < list.cases.size() && at_large > 0; ++n) {
        const Prepared prepared = conformance::prepare(list.cases[n]);
        for (Verdict& v : verdicts) {
            const std::string why =
                v.where.empty() ? joined(conformance::judge(v.rung, prepared)) : "";
            if (!why.empty()) {
                v.where = list.cases[n].group() + " " + list.cases[n].name();
                v.why = why;
                --at_large;
            }
        }
        progress.update(static_cast<double>(n) / static_cast<double>(list.cases.size()));
    }

    std::printf("\n%s\n%-50s  %-72s  %s\n", title.c_str(), "wrong attention", "rejected by",
                "because");
    for (const Verdict& v : verdicts) {
        std::printf("%-50s  %-72s  %s\n", v.rung.name.c_str(),
                    v.where.empty() ? "NOTHING" : v.where.c_str(), short_text(v.why, 100).c_str());
    }
    std::fflush(stdout);
    for (const Verdict& v : verdicts) {
        CAPTURE(title, v.rung.name, v.where, v.why);
        CHECK_FALSE(v.where.empty());
        CHECK(v.why.find(v.suspect.sign) != std::string::npos);
    }
}

// Every case of the list must accept correct attentions and reject zeros; and naive_attention,
// which has no maximum, must be excused exactly where it overflows.
void accept_correct(const List& list) {
    ForwardRung without_maximum = rung<Defect::no_maximum>("no maximum, and says so");
    without_maximum.overflows = true;
    // which ends at 65504 = exp(11): N(0,1) inputs overflow it here and there
    without_maximum.fp16 = nullptr;
    const Rung* const correct[] = {&rung_of(rung<Defect::none>("correct")),
                                   &rung_of(rung<Defect::none_base_2>("correct, base 2")),
                                   &rung_of(without_maximum)};
    // right, but registered as one that overflows: found out where it must
    ForwardRung pretends = rung<Defect::none>("correct");
    pretends.overflows = true;
    const Rung& pretender = rung_of(pretends);
    size_t overflows = 0;
    ProgressLine progress("correct attentions");
    for (size_t n = 0; n < list.cases.size(); ++n) {
        const Case& c = list.cases[n];
        CAPTURE(c.group(), c.name());
        const Prepared prepared = conformance::prepare(c);
        for (const Rung* r : correct) {
            INFO(r->name);
            if (r->supports(c.dtype)) {
                CHECK(joined(conformance::judge(*r, prepared)) == "");
            }
        }

        const std::vector<float> zeros(static_cast<size_t>(c.problem.q_size()));
        const std::vector<float> lse(prepared.expected.lse.begin(), prepared.expected.lse.end());
        const Verdict verdict = reference::compare(c.problem, prepared.expected, {zeros, lse});
        // the bound alone rejects zeros, unless fp32 does not tell keys apart
        const bool too_large = c.kind == conformance::Kind::large_scale ||
                               (c.kind == conformance::Kind::huge_equal && c.problem.kv_len > 16);
        CHECK(verdict.says_little == too_large);
        const bool bound_rejects = verdict.message.find("O at") != std::string::npos;
        CHECK((bound_rejects || too_large));
        CHECK(verdict.message.find("O is zero everywhere") != std::string::npos);
        CHECK(verdict.message.find("LSE at") == std::string::npos);

        const bool found_out = !conformance::judge(pretender, prepared).empty();
        const bool huge =
            c.kind == conformance::Kind::logits_1e4 || c.kind == conformance::Kind::logits_6e4 ||
            c.kind == conformance::Kind::logits_negative ||
            c.kind == conformance::Kind::huge_equal || c.kind == conformance::Kind::large_scale;
        CHECK((found_out || !huge));
        overflows += found_out ? 1 : 0;
        progress.update(static_cast<double>(n) / static_cast<double>(list.cases.size()));
    }
    std::printf("%zu cases accept correct attentions and reject zeros; %zu demand that "
                "naive_attention overflow\n",
                list.cases.size(), overflows);
}

} // namespace

TEST_CASE("the detect list rejects every wrong attention") {
    for (const DType type : {DType::fp32, DType::fp16, DType::bf16}) {
        reject_all(std::string("list `detect`, ") + dtype_name(type),
                   conformance::detect(scope(type)), type, false);
    }
}

TEST_CASE("the detect list accepts correct attentions") {
    for (const DType type : {DType::fp32, DType::fp16, DType::bf16}) {
        accept_correct(conformance::detect(scope(type)));
    }
}

TEST_CASE("problems with windows and sinks reject every mistake about them, and nothing right") {
    for (const DType type : {DType::fp32, DType::fp16, DType::bf16}) {
        for (const bool is_full : {false, true}) {
            const std::string name = is_full ? "full" : "detect";
            reject_all("windows and sinks of the list `" + name + "`, " + dtype_name(type),
                       windows(is_full ? conformance::full : conformance::detect, type), type,
                       is_full, suspects_with_windows());
        }
        accept_correct(windows(conformance::full, type, {32, 128}));
    }
}

TEST_CASE("problems with two head dims reject every mistake about them, and nothing right") {
    for (const DType type : {DType::fp32, DType::fp16, DType::bf16}) {
        Scope both = scope(type, {dim_of_Q[0]});
        both.head_dims_v = {dim_of_V[0]};
        for (const bool is_full : {false, true}) {
            reject_all(std::string("two head dims, ") + dtype_name(type),
                       is_full ? conformance::full(both) : conformance::detect(both), type, is_full,
                       suspects_with_two_dims());
        }
        const Rung& correct = rung_of(of_two_dims<Defect::none>("correct"));
        for (const Case& c : conformance::detect(both).cases) {
            CAPTURE(c.group(), c.name());
            CHECK(joined(conformance::judge(correct, conformance::prepare(c))) == "");
        }
    }
}

TEST_CASE("the full list rejects every wrong attention in fp32") {
    reject_all("list `full`, fp32", conformance::full(scope(DType::fp32)), DType::fp32, true);
}
TEST_CASE("the full list rejects every wrong attention in fp16") {
    reject_all("list `full`, fp16", conformance::full(scope(DType::fp16)), DType::fp16, true);
}
TEST_CASE("the full list rejects every wrong attention in bf16") {
    reject_all("list `full`, bf16", conformance::full(scope(DType::bf16)), DType::bf16, true);
}

// Of the whole list only the scores that rise late or have a large spread: they alone must reject
// what fails on them.
TEST_CASE("scores that rise, tower or spread reject a maximum that does not follow them") {
    std::vector<Suspect> among = suspects();
    std::erase_if(among, [](const Suspect& s) {
        return !s.rung.name.starts_with("never raises") && !s.rung.name.starts_with("limits P") &&
               !s.rung.name.starts_with("drops what");
    });
    REQUIRE(among.size() == 3);
    for (const DType type : {DType::fp32, DType::fp16, DType::bf16}) {
        List rising = conformance::full(scope(type)), spread = rising;
        std::erase_if(rising.cases, [](const Case& c) {
            return c.kind < conformance::Kind::rises_50 ||
                   c.kind > conformance::Kind::towering_last;
        });
        std::erase_if(spread.cases, [](const Case& c) {
            return c.kind != conformance::Kind::spread_16 && c.kind != conformance::Kind::spread_24;
        });
        reject_all(std::string("scores that rise or tower, ") + dtype_name(type), rising, type,
                   true, among);
        std::vector<Suspect> by_spread =
            among; // a maximum that stays is right while nothing overflows: so in fp16 alone
        if (type != DType::fp16) {
            by_spread.erase(by_spread.begin());
        }
        reject_all(std::string("scores of large spread, ") + dtype_name(type), spread, type, true,
                   by_spread);
    }
}

// In fp32 the CPU rungs are more correct attentions yet, with every head dim.
TEST_CASE("the full list accepts correct attentions in fp32") {
    accept_correct(conformance::full(scope(DType::fp32, {64})));
}
TEST_CASE("the full list accepts correct attentions in fp16") {
    accept_correct(conformance::full(scope(DType::fp16, {32, 64})));
}
TEST_CASE("the full list accepts correct attentions in bf16") {
    accept_correct(conformance::full(scope(DType::bf16, {32, 128})));
}
