// one_pass_softmax's merge is associative and commutative, and no_keys is its neutral element. So
// keys may be split anywhere and the parts merged in any order: a property test over random splits
// and random trees.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>

#include <algorithm>
#include <cmath>
#include <random>

#include "reference/oracle.hpp"
#include "steps/05_one_pass_softmax/one_pass_softmax.hpp"
#include "steps/tests/attention_data.hpp"

namespace {

using namespace flash::tests;
using flash::Problem;
using flash::cpu::ConstMatrixView;
using one_pass_softmax::Partial;

using Random = std::mt19937;

int64_t up_to(int64_t limit, Random& random) {
    return std::uniform_int_distribution<int64_t>(0, limit)(random);
}

/// The Partial of keys first .. last - 1 for all queries of a problem with one head.
Partial partial(const AttentionData& data, int64_t first, int64_t last) {
    const Problem& p = data.problem;
    if (first == last) {
        return one_pass_softmax::no_keys(p.q_len, p.head_dim);
    }
    return one_pass_softmax::attend_tile(
        p, 0, first, ConstMatrixView(data.Q.data(), p.q_len, p.head_dim),
        ConstMatrixView(data.K.data() + first * p.head_dim, last - first, p.head_dim),
        ConstMatrixView(data.V.data() + first * p.head_dim, last - first, p.head_dim));
}

/// The keys cut at random places; equal cuts leave a part with no keys.
std::vector<Partial> random_parts(const AttentionData& data, Random& random) {
    const int64_t N_kv = data.problem.kv_len;
    std::vector<int64_t> cuts = {0, N_kv};
    for (int64_t n = up_to(12, random); n > 0; --n) {
        cuts.push_back(up_to(N_kv, random));
    }
    std::ranges::sort(cuts);
    std::vector<Partial> parts;
    for (size_t k = 1; k < cuts.size(); ++k) {
        parts.push_back(partial(data, cuts[k - 1], cuts[k]));
    }
    return parts;
}

/// Merges any two parts, then any two of what is left, until one remains.
Partial merge_in_random_order(std::vector<Partial> parts, Random& random) {
    while (parts.size() > 1) {
        std::ranges::shuffle(parts, random);
        const Partial b = std::move(parts.back());
        parts.pop_back();
        parts.back() = one_pass_softmax::merge(parts.back(), b);
    }
    return parts.front();
}

/// max |x - y|, where equal infinities differ by nothing and NaN by infinitely much.
template <class X, class Y> double difference(const X& x, const Y& y) {
    double largest = 0;
    for (Eigen::Index i = 0; i < x.size(); ++i) {
        const double a = x(i), b = y(i);
        const double error = a == b ? 0 : std::abs(a - b);
        largest = error <= largest ? largest : (std::isnan(error) ? INFINITY : error);
    }
    return largest;
}

bool same_bits(const Partial& a, const Partial& b) {
    return a.m == b.m && a.l == b.l && a.O == b.O;
}

/// A random problem with one head: short and long, causal or not, logits small or beyond +-1e4.
AttentionData random_problem(Random& random) {
    const Problem p{.q_len = 1 + up_to(20, random),
                    .kv_len = 1 + up_to(99, random),
                    .head_dim = 1 + up_to(9, random),
                    .scale = 1,
                    .causal = up_to(1, random) == 1};
    return random_attention(p, random(), up_to(1, random) == 1 ? 1.0f : 3e3f);
}

} // namespace

TEST_CASE("any split of the keys, merged in any order, gives the exact result to rounding") {
    Random random(static_cast<uint32_t>(GENERATE(range(0, 300))));
    const AttentionData data = random_problem(random);
    const Problem& p = data.problem;
    const Partial merged = merge_in_random_order(random_parts(data, random), random);
    const flash::reference::Exact exact = flash::reference::oracle(p, data.inputs());

    const float v_max = ConstMatrixView(data.V.data(), p.kv_len, p.head_dim).cwiseAbs().maxCoeff();
    const double s_max = p.head_dim *
                         ConstMatrixView(data.Q.data(), p.q_len, p.head_dim).cwiseAbs().maxCoeff() *
                         ConstMatrixView(data.K.data(), p.kv_len, p.head_dim).cwiseAbs().maxCoeff();
    const double tolerance = 1e-5 + 0x1p-20 * s_max; // scores carry a relative error of a few 2^-24
    INFO("N_q " << p.q_len << ", N_kv " << p.kv_len << ", d " << p.head_dim << ", causal "
                << p.causal);
    for (int64_t i = 0; i < p.q_len; ++i) {
        INFO("query " << i);
        if (p.visible_keys(i) == 0) {
            CHECK((merged.m(i) == -flash::cpu::infinity && merged.l(i) == 0 &&
                   merged.O.row(i).isZero(0)));
            continue;
        }
        const Eigen::Map<const Eigen::RowVectorXd> O_exact(exact.o.data() + i * p.head_dim,
                                                           p.head_dim);
        const Eigen::RowVectorXd O = merged.O.row(i).cast<double>() / merged.l(i);
        CHECK(difference(O, O_exact) <= tolerance * v_max);
        const double LSE = merged.m(i) + std::log(static_cast<double>(merged.l(i)));
        CHECK(std::abs(LSE - exact.lse[static_cast<size_t>(i)]) <= tolerance);
    }
}

TEST_CASE("two orders of merging the same parts agree far closer: only the merge itself rounds") {
    Random random(static_cast<uint32_t>(GENERATE(range(1000, 1300))));
    const AttentionData data = random_problem(random);
    const std::vector<Partial> parts = random_parts(data, random);
    const Partial a = merge_in_random_order(parts, random);
    const Partial b = merge_in_random_order(parts, random);
    const float v_max = ConstMatrixView(data.V.data(), data.problem.kv_len, data.problem.head_dim)
                            .cwiseAbs()
                            .maxCoeff();
    INFO(parts.size() << " parts");
    CHECK(a.m == b.m); // a maximum does not round
    for (int64_t i = 0; i < data.problem.q_len; ++i) {
        const double tolerance = 2e-6 * a.l(i);
        CHECK(std::abs(a.l(i) - b.l(i)) <= tolerance);
        CHECK(difference(a.O.row(i), b.O.row(i)) <= tolerance * v_max);
    }
}

TEST_CASE("no_keys is neutral, bit by bit") {
    Random random(static_cast<uint32_t>(GENERATE(range(2000, 2020))));
    const AttentionData data = random_problem(random);
    const Partial all = partial(data, 0, data.problem.kv_len);
    const Partial none = one_pass_softmax::no_keys(data.problem.q_len, data.problem.head_dim);
    CHECK(same_bits(one_pass_softmax::merge(all, none), all));
    CHECK(same_bits(one_pass_softmax::merge(none, all), all));
    CHECK(same_bits(one_pass_softmax::merge(none, none), none));
}

TEST_CASE("one_pass_softmax is the merge of its tiles, from left to right") {
    const Problem p{.q_len = one_pass_softmax::Br, .kv_len = 3 * one_pass_softmax::Bc + 5};
    AttentionData data = random_attention(p, 7);
    data.run(one_pass_softmax::attention);
    Partial seen = one_pass_softmax::no_keys(p.q_len, p.head_dim);
    for (int64_t first = 0; first < p.kv_len; first += one_pass_softmax::Bc) {
        seen = one_pass_softmax::merge(
            seen, partial(data, first, std::min(first + one_pass_softmax::Bc, p.kv_len)));
    }
    const flash::cpu::Matrix O = seen.l.cwiseInverse().asDiagonal() * seen.O;
    CHECK(difference(O.reshaped(),
                     ConstMatrixView(data.O.data(), p.q_len, p.head_dim).reshaped()) <= 1e-7);
}
