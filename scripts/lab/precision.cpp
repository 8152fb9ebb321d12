// How far rungs 02 to 05 are from the float64 oracle, for growing N. Built and run by lab/precision.py.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

#include "common/cpu/head.hpp"
#include "common/harness/random.hpp"
#include "common/harness/rung.hpp"
#include "reference/oracle.hpp"
#include "steps/02_safe_softmax/safe_softmax.hpp"
#include "steps/03_three_pass_softmax/three_pass_softmax.hpp"
#include "steps/04_two_pass_softmax/two_pass_softmax.hpp"
#include "steps/05_one_pass_softmax/one_pass_softmax.hpp"

namespace {

using flash::Problem;

/// Rung 05 with tiles of one key: as many merges as there are keys.
void key_by_key(const Problem& p, const float* Q, const float* K, const float* V, float* O, float* LSE) {
    for (int64_t bh = 0; bh < p.batch * p.heads; ++bh) {
        flash::cpu::Head h = flash::cpu::head(p, bh, Q, K, V, O, LSE);
        step05::Partial seen = step05::no_keys(p.q_len, p.head_dim);
        for (int64_t j = 0; j < p.kv_len; ++j) {
            const flash::cpu::ConstMatrixView key(h.K.row(j).data(), 1, p.head_dim);
            const flash::cpu::ConstMatrixView value(h.V.row(j).data(), 1, p.head_dim);
            seen = step05::merge(seen, step05::attend_tile(p, 0, j, h.Q, key, value));
        }
        h.O = seen.l.cwiseInverse().asDiagonal() * seen.O;
        h.LSE = seen.m.array() + seen.l.array().log();
    }
}

constexpr std::pair<const char*, flash::Forward<float>> rungs[] = {{"02", step02::attention},
                                                                   {"03", step03::attention},
                                                                   {"04", step04::attention},
                                                                   {"05", step05::attention},
                                                                   {"05, Bc = 1", key_by_key}};

std::vector<float> normal_numbers(int64_t count, flash::NormalGenerator& normal) {
    std::vector<float> values(static_cast<size_t>(count));
    std::ranges::generate(values, [&] { return normal(); });
    return values;
}

/// sqrt(sum (x - exact)^2 / sum exact^2)
double relative_error(const std::vector<float>& x, const std::vector<double>& exact) {
    double error = 0, size = 0;
    for (size_t i = 0; i < x.size(); ++i) {
        error += (x[i] - exact[i]) * (x[i] - exact[i]);
        size += exact[i] * exact[i];
    }
    return std::sqrt(error / size);
}

/// sqrt(mean (x - exact)^2)
double absolute_error(const std::vector<float>& x, const std::vector<double>& exact) {
    double error = 0;
    for (size_t i = 0; i < x.size(); ++i) {
        error += (x[i] - exact[i]) * (x[i] - exact[i]);
    }
    return std::sqrt(error / static_cast<double>(x.size()));
}

/// Prints one JSON line a rung.
///
/// Q and K are multiples of 1/16, so that scores need no rounding and errors are those of the softmax and of P V.
void measure(int64_t N, bool rising, uint64_t seed) {
    Problem p{.heads = 2, .kv_heads = 2, .q_len = 128, .kv_len = N, .head_dim = 64};
    flash::NormalGenerator normal(seed);
    auto Q = normal_numbers(p.q_size(), normal), K = normal_numbers(p.kv_size(), normal);
    const auto V = normal_numbers(p.kv_size(), normal);
    for (auto* tensor : {&Q, &K}) {
        std::ranges::for_each(*tensor, [](float& x) { x = std::round(16 * x) / 16; });
    }
    if (rising) {
        // A term of the scores that rises by 4 from the first key to the last, so that nearly every tile brings a new
        // maximum: 32 * j / N, times the default scale of 1/8.
        for (size_t i = 0; i < Q.size(); i += static_cast<size_t>(p.head_dim)) {
            Q[i] = 1;
        }
        for (size_t j = 0; j < K.size(); j += static_cast<size_t>(p.head_dim)) {
            const auto row = static_cast<int64_t>(j) / p.head_dim % N;
            K[j] = 32 * static_cast<float>(row) / static_cast<float>(N);
        }
    }
    const flash::reference::Exact exact = flash::reference::oracle(p, {flash::DType::fp32, Q, K, V});
    for (const auto& [name, attention] : rungs) {
        std::vector<float> O(static_cast<size_t>(p.q_size())), LSE(static_cast<size_t>(p.lse_size()));
        attention(p, Q.data(), K.data(), V.data(), O.data(), LSE.data());
        std::printf(R"({"input": "%s", "N": %lld, "seed": %llu, "rung": "%s", "o_error": %.4g, "lse_error": %.4g})"
                    "\n",
                    rising ? "rising" : "random", static_cast<long long>(N), static_cast<unsigned long long>(seed),
                    name, relative_error(O, exact.o), absolute_error(LSE, exact.lse));
    }
    std::fflush(stdout);
}

} // namespace

int main(int argc, char** argv) {
    const int64_t longest = argc > 1 ? std::atoll(argv[1]) : 16384;
    for (const bool rising : {false, true}) {
        for (int64_t N = 256; N <= longest; N *= 2) {
            for (uint64_t seed = 1; seed <= 4; ++seed) {
                measure(N, rising, seed);
            }
        }
    }
    return 0;
}
