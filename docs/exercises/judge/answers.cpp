// What a judged kernel is asked, and whether its answers are right. Another process runs the kernel
// (kernel_process.cu), and never meets this program: files go back and forth.
//   ask LIST SEED TAKES FOLDER     FOLDER/N.asked gets problem N of a list, and its inputs
//   judge LIST SEED TAKES FOLDER   what FOLDER/N.answer holds: a line of JSON for each problem
// LIST is one of those in list(), with "backward " before it for gradients; TAKES the file in which
// the kernel's process has said what it takes. Inputs are as random as the seed.
//
// To the suite the kernel is a rung, whose function writes down all that it is given, and later
// reads what has become of it: the suite poisons outputs, and looks for damage, as it always does.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "common/error.hpp"
#include "common/harness/backward/backward.hpp"
#include "common/harness/forward/forward.hpp"
#include "common/harness/program/rung.hpp"
#include "reference/conformance/judge.hpp"

namespace flash {
namespace {

using conformance::Case;
using conformance::Kind;

/// What a kernel takes, line by line: a name, and a value.
class Takes {
  public:
    explicit Takes(const std::string& file) {
        std::ifstream lines(file);
        for (std::string line; std::getline(lines, line);) {
            const size_t blank = line.find(' ');
            values_[line.substr(0, blank)] = line.substr(blank + 1);
        }
    }
    bool is(const std::string& name) const { return values_.at(name) == "1"; }
    int number(const std::string& name) const { return std::stoi(values_.at(name)); }
    std::vector<std::string> words(const std::string& name) const {
        std::istringstream stream(values_.at(name));
        return {std::istream_iterator<std::string>(stream), {}};
    }

  private:
    std::map<std::string, std::string> values_;
};

// Which problems.

conformance::Scope scope_of(const Takes& takes, bool backward) {
    conformance::Scope scope;
    for (const DType type : {DType::fp32, DType::fp16, DType::bf16}) {
        if (std::ranges::count(takes.words("types"), dtype_name(type)) > 0) {
            scope.dtypes.push_back(type);
        }
    }
    for (const std::string& d : takes.words("head_dims")) {
        scope.head_dims.push_back(std::stoi(d));
    }
    scope.longest = 256; // minutes on the SIMT backend
    scope.backward = backward;
    return scope;
}

/// Of the suite's full list, the part to which a kind of input belongs.
std::string part_of(Kind kind) {
    switch (kind) {
    case Kind::normal:
        return "shapes";
    case Kind::nan_row:
    case Kind::inf_row:
    case Kind::nan_head:
        return "NaN";
    case Kind::logits_1e4:
    case Kind::logits_6e4:
    case Kind::logits_negative:
    case Kind::negative_scores:
    case Kind::huge_equal:
    case Kind::large_scale:
    case Kind::tiny_scale:
    case Kind::large_values:
    case Kind::small_values:
        return "extremes";
    case Kind::real_text: // the same numbers for everybody
        return "";
    default:
        return "scores";
    }
}

/// Sizes that no list names, for each type and head dim, and each of them twice.
std::vector<Case> drawn(const conformance::Scope& scope, uint64_t seed) {
    std::mt19937_64 bits(seed);
    const auto below = [&](uint64_t n) { return static_cast<int64_t>(bits() % n); };
    std::vector<Case> cases;
    for (const DType type : scope.dtypes) {
        for (const int64_t d : scope.head_dims) {
            const int64_t kv_heads = 1 + below(3);
            Case c{.dtype = type,
                   .problem = {.batch = 1 + below(2),
                               .heads = kv_heads * (2 + below(2)),
                               .kv_heads = kv_heads,
                               .q_len = 1 + below(100),
                               .kv_len = 1 + below(100),
                               .head_dim = d,
                               .scale = default_scale(d),
                               .causal = below(2) == 1},
                   .runs = 2,
                   .backward = scope.backward,
                   .seed = seed};
            cases.push_back(c);
            c.seed = bits();
            cases.push_back(c);
        }
    }
    return cases;
}

std::vector<Case> list(const std::string& name, const conformance::Scope& scope, uint64_t seed) {
    if (name == "drawn") {
        return drawn(scope, seed);
    }
    if (name == "detect") {
        return conformance::detect(scope).cases;
    }
    if (name == "traffic") {
        const int64_t d = scope.head_dims.front();
        return {{.dtype = scope.dtypes.front(),
                 .problem = {.q_len = 256, .kv_len = 256, .head_dim = d, .scale = default_scale(d)},
                 .backward = scope.backward}};
    }
    std::vector<Case> cases = conformance::full(scope).cases;
    std::erase_if(cases,
                  [&](const Case& c) { return part_of(c.kind) != name || c.problem.kv_len > 512; });
    for (Case& c : cases) { // two of the suite's six heads, but for those beside one with NaN
        if (c.kind != Kind::nan_head) {
            c.problem.kv_heads = c.problem.kv_heads == c.problem.heads ? 2 : 1;
            c.problem.heads = 2;
        }
    }
    return cases;
}

/// The problem as the kernel takes it.
Problem fitted(Problem p, const Takes& takes) {
    const int multiple = takes.number("length_multiple");
    const auto rounded = [&](int64_t n) { return (n + multiple - 1) / multiple * multiple; };
    p.q_len = rounded(p.q_len);
    p.kv_len = rounded(p.kv_len);
    if (!takes.is("unequal_lengths")) {
        p.q_len = p.kv_len = std::max(p.q_len, p.kv_len);
    }
    p.causal = p.causal ? takes.is("causal") : !takes.is("full");
    p.kv_heads = takes.is("grouped_heads") ? p.kv_heads : p.heads;
    p.scale = takes.is("any_scale") ? p.scale : default_scale(p.head_dim);
    return p;
}

std::vector<Case> cases_of(std::string name, uint64_t seed, const Takes& takes) {
    const std::string backward = "backward ";
    const bool of_gradients = name.starts_with(backward);
    if (of_gradients) {
        name.erase(0, backward.size());
    }
    std::vector<Case> cases;
    std::set<std::string> names;
    for (Case c : list(name, scope_of(takes, of_gradients), seed)) {
        const bool about_scale = c.kind == Kind::large_scale || c.kind == Kind::tiny_scale;
        c.problem = fitted(c.problem, takes);
        c.seed = c.seed == 0 ? seed : c.seed;
        const std::string known = c.group() + c.name() + std::to_string(c.seed);
        if (!(about_scale && !takes.is("any_scale")) && names.insert(known).second) {
            cases.push_back(c);
        }
    }
    return cases;
}

// The rung.

/// The problem at hand.
struct {
    std::fstream file;
    bool asks; // else it answers
    size_t margin;
    std::vector<float> lse; // of a kernel that writes none, the right one
} exchange;

struct Part {
    const void* tensor;
    int64_t bytes;
};

/// Writes a call down, or reads what has become of it.
void hand_over(const Problem& p, DType type, bool backward, const std::vector<Part>& parts) {
    std::fstream& file = exchange.file;
    if (exchange.asks) {
        char scale[32];
        std::snprintf(scale, sizeof scale, "%a", static_cast<double>(p.scale));
        file << backward << ' ' << exchange.margin << ' ' << static_cast<int>(type) << ' '
             << p.batch << ' ' << p.heads << ' ' << p.kv_heads << ' ' << p.q_len << ' ' << p.kv_len
             << ' ' << p.head_dim << ' ' << scale << ' ' << p.causal << '\n';
    }
    for (const auto& [tensor, bytes] : parts) {
        char* const begin = static_cast<char*>(const_cast<void*>(tensor)) - exchange.margin;
        const auto size =
            static_cast<std::streamsize>(bytes) + 2 * static_cast<std::streamsize>(exchange.margin);
        if (exchange.asks) {
            file.write(begin, size);
        } else if (!file.read(begin, size)) {
            throw Error("the kernel's process gave no answer to this problem");
        }
    }
}

template <class T>
void attention(const Problem& p, const T* Q, const T* K, const T* V, T* O, float* LSE) {
    const int64_t q = p.q_size() * dtype_bytes(dtype_of<T>),
                  kv = p.kv_size() * dtype_bytes(dtype_of<T>),
                  lse = p.lse_size() * dtype_bytes(DType::fp32);
    hand_over(p, dtype_of<T>, false, {{Q, q}, {K, kv}, {V, kv}, {O, q}, {LSE, lse}});
    std::ranges::copy(exchange.lse, LSE);
}

template <class T>
void attention_backward(const Problem& p, const T* Q, const T* K, const T* V, const T* O,
                        const float* LSE, const T* dO, T* dQ, T* dK, T* dV) {
    const int64_t q = p.q_size() * dtype_bytes(dtype_of<T>),
                  kv = p.kv_size() * dtype_bytes(dtype_of<T>),
                  lse = p.lse_size() * dtype_bytes(DType::fp32);
    hand_over(p, dtype_of<T>, true,
              {{Q, q}, {K, kv}, {V, kv}, {O, q}, {LSE, lse}, {dO, q}, {dQ, q}, {dK, kv}, {dV, kv}});
}

Rung& rung_of(const Takes& takes, bool backward) {
    if (backward) {
        return flash::rung_of(BackwardRung{.name = "the kernel",
                                           .fp32 = attention_backward<float>,
                                           .fp16 = attention_backward<Half>,
                                           .bf16 = attention_backward<Bfloat16>,
                                           .unordered_dQ = takes.is("unordered_dq")});
    }
    return flash::rung_of(ForwardRung{.name = "the kernel",
                                      .fp32 = attention<float>,
                                      .fp16 = attention<Half>,
                                      .bf16 = attention<Bfloat16>,
                                      .rounded_sums = takes.is("rounded_sums")});
}

void ask(const Rung& rung, const Case& c) {
    const conformance::Tensors tensors = conformance::make_inputs(c);
    const auto run = rung.on(c.problem, tensors.view(c.dtype), exchange.margin);
    run->run();
    for (int n = 1; n < c.runs; ++n) {
        run->poison();
        run->run();
    }
}

std::vector<float> right_lse(const conformance::Prepared& prepared) {
    std::vector<float> lse(prepared.expected.lse.begin(), prepared.expected.lse.end());
    for (size_t row = 0; row < prepared.tensors.spoilt.size(); ++row) {
        if (prepared.tensors.spoilt[row]) {
            lse[row] = std::numeric_limits<float>::quiet_NaN();
        }
    }
    return lse;
}

void judge(const Rung& rung, const Case& c, bool writes_lse) {
    const conformance::Prepared prepared = conformance::prepare(c);
    if (!c.backward && !writes_lse) {
        exchange.lse = right_lse(prepared);
    }
    nlohmann::ordered_json wrong = nlohmann::json::array();
    for (const auto& [kind, said] : conformance::findings(rung, prepared)) {
        wrong.push_back({{"kind", kind}, {"said", said}});
    }
    const nlohmann::ordered_json line = {{"problem", c.group() + ", " + c.name()},
                                         {"wrong", wrong}};
    std::printf("%s\n", line.dump().c_str());
}

int run(const std::vector<std::string>& arguments) {
    const Takes takes(arguments.at(3));
    exchange.asks = arguments.at(0) == "ask";
    const std::vector<Case> cases = cases_of(arguments.at(1), std::stoull(arguments.at(2)), takes);
    const Rung& rung = rung_of(takes, arguments.at(1).starts_with("backward "));
    for (size_t n = 0; n < cases.size(); ++n) {
        const std::string name = arguments.at(4) + "/" + std::to_string(n);
        exchange.margin = conformance::margin_of(cases[n]);
        if (exchange.asks) {
            exchange.file.open(name + ".asked", std::ios::out | std::ios::binary);
            ask(rung, cases[n]);
        } else {
            exchange.file.open(name + ".answer", std::ios::in | std::ios::binary);
            judge(rung, cases[n], takes.is("lse"));
        }
        exchange.file.close();
        exchange.file.clear();
    }
    return 0;
}

} // namespace
} // namespace flash

int main(int argc, char** argv) {
    try {
        return flash::run({argv + 1, argv + argc});
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 2;
    }
}
