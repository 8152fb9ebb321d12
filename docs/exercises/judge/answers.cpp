// What a judged kernel is asked, and whether its answers are right. Another process runs the kernel
// (kernel_process.cu), which never sees this program; in between lie files.
//   ask LIST SEED TAKES FOLDER     problems and inputs of a list, for the kernel
//   judge LIST SEED TAKES FOLDER   its answers: a line of JSON for each problem
// LIST is one of those in `lists` below, with "backward " before it for gradients; TAKES the file
// in which the kernel's process has said what it takes. Inputs are as random as the seed.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "common/error.hpp"
#include "common/harness/files/convert.hpp"
#include "common/harness/forward/forward_kind.hpp"
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

const std::set<Kind> spoilt = {Kind::nan_row, Kind::inf_row, Kind::nan_head};
const std::set<Kind> extreme = {Kind::logits_1e4,      Kind::logits_6e4,   Kind::logits_negative,
                                Kind::negative_scores, Kind::huge_equal,   Kind::large_scale,
                                Kind::tiny_scale,      Kind::large_values, Kind::small_values};

std::vector<Case> of_full(const conformance::Scope& scope,
                          const std::function<bool(const Case&)>& wanted) {
    std::vector<Case> cases = conformance::full(scope).cases;
    std::erase_if(cases, [&](const Case& c) {
        return c.kind == Kind::real_text || c.problem.kv_len > 512 || !wanted(c);
    });
    return cases;
}

/// Sizes that no list names, for each type and head dim.
std::vector<Case> drawn(const conformance::Scope& scope, uint64_t seed) {
    std::mt19937_64 bits(seed);
    const auto below = [&](uint64_t n) { return static_cast<int64_t>(bits() % n); };
    std::vector<Case> cases;
    for (const DType type : scope.dtypes) {
        for (const int64_t d : scope.head_dims) {
            const int64_t kv_heads = 1 + below(3);
            cases.push_back({Kind::normal,
                             type,
                             {.batch = 1 + below(2),
                              .heads = kv_heads * (1 + below(3)),
                              .kv_heads = kv_heads,
                              .q_len = 1 + below(150),
                              .kv_len = 1 + below(150),
                              .head_dim = d,
                              .scale = default_scale(d),
                              .causal = below(2) == 1},
                             2,
                             scope.backward});
        }
    }
    return cases;
}

const std::map<std::string, std::function<std::vector<Case>(const conformance::Scope&, uint64_t)>>
    lists = {
        {"shapes",
         [](const auto& scope, uint64_t) {
             return of_full(scope, [](const Case& c) { return c.kind == Kind::normal; });
         }},
        {"drawn", drawn},
        {"scores",
         [](const auto& scope, uint64_t) {
             return of_full(scope, [](const Case& c) {
                 return c.kind != Kind::normal && !spoilt.contains(c.kind) &&
                        !extreme.contains(c.kind);
             });
         }},
        {"extremes",
         [](const auto& scope, uint64_t) {
             return of_full(scope, [](const Case& c) { return extreme.contains(c.kind); });
         }},
        {"NaN",
         [](const auto& scope, uint64_t) {
             return of_full(scope, [](const Case& c) { return spoilt.contains(c.kind); });
         }},
        {"detect", [](const auto& scope, uint64_t) { return conformance::detect(scope).cases; }},
        {"schedules",
         [](const auto& scope, uint64_t) { return conformance::schedules(scope).cases; }},
        {"traffic",
         [](const auto& scope, uint64_t) {
             const int64_t d = scope.head_dims.front();
             return std::vector<Case>{
                 {Kind::normal,
                  scope.dtypes.front(),
                  {.q_len = 256, .kv_len = 256, .head_dim = d, .scale = default_scale(d)},
                  1,
                  scope.backward}};
         }},
};

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

std::vector<Case> cases_of(const std::string& list, uint64_t seed, const Takes& takes) {
    const std::string backward = "backward ";
    const bool of_gradients = list.starts_with(backward);
    std::vector<Case> cases;
    std::set<std::string> names;
    for (Case c : lists.at(of_gradients ? list.substr(backward.size())
                                        : list)(scope_of(takes, of_gradients), seed)) {
        const bool about_scale = c.kind == Kind::large_scale || c.kind == Kind::tiny_scale;
        c.problem = fitted(c.problem, takes);
        c.seed = seed;
        const std::string name = c.group() + " " + c.name();
        if (!(about_scale && !takes.is("any_scale")) && names.insert(name).second) {
            cases.push_back(c);
        }
    }
    return cases;
}

/// NaN and canaries must reach as far as a kernel may stray: more rows than any tile has.
size_t margin_of(const Case& c) {
    return static_cast<size_t>(256 * c.problem.head_dim * dtype_bytes(c.dtype));
}

struct Tensor {
    TensorSpec spec;
    std::vector<float> values; // of an input
};

/// Its inputs and then its outputs, as they lie in the files.
std::vector<Tensor> tensors_of(const Case& c, const conformance::Tensors& t) {
    const Problem& p = c.problem;
    const std::vector<int64_t> q = {p.batch, p.heads, p.q_len, p.head_dim},
                               kv = {p.batch, p.kv_heads, p.kv_len, p.head_dim},
                               lse = {p.batch, p.heads, p.q_len};
    if (c.backward) {
        return {{{"Q", c.dtype, q}, t.q},           {{"K", c.dtype, kv}, t.k},
                {{"V", c.dtype, kv}, t.v},          {{"O", c.dtype, q}, t.o},
                {{"LSE", DType::fp32, lse}, t.lse}, {{"dO", c.dtype, q}, t.d_o},
                {{"dQ", c.dtype, q}, {}},           {{"dK", c.dtype, kv}, {}},
                {{"dV", c.dtype, kv}, {}}};
    }
    return {{{"Q", c.dtype, q}, t.q},
            {{"K", c.dtype, kv}, t.k},
            {{"V", c.dtype, kv}, t.v},
            {{"O", c.dtype, q}, {}},
            {{"LSE", DType::fp32, lse}, {}}};
}

std::vector<char> bytes_of(const Tensor& one) {
    std::vector<char> bytes(one.spec.bytes());
    to_bytes(one.spec.dtype, one.values, reinterpret_cast<std::byte*>(bytes.data()));
    return bytes;
}

void ask(const std::vector<Case>& cases, const std::string& folder) {
    std::ofstream problems(folder + "/problems");
    for (size_t n = 0; n < cases.size(); ++n) {
        const Case& c = cases[n];
        const Problem& p = c.problem;
        char scale[32];
        std::snprintf(scale, sizeof scale, "%a", static_cast<double>(p.scale));
        problems << n << ' ' << c.runs << ' ' << c.backward << ' ' << margin_of(c) << ' '
                 << static_cast<int>(c.dtype) << ' ' << p.batch << ' ' << p.heads << ' '
                 << p.kv_heads << ' ' << p.q_len << ' ' << p.kv_len << ' ' << p.head_dim << ' '
                 << scale << ' ' << p.causal << '\n';
        std::ofstream file(folder + "/" + std::to_string(n) + ".in", std::ios::binary);
        for (const Tensor& one : tensors_of(c, conformance::make_inputs(c))) {
            if (!one.values.empty()) {
                const std::vector<char> bytes = bytes_of(one);
                file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
            }
        }
    }
}

constexpr char canary = 0x5a, nan_byte = '\xff'; // as kernel_process.cu has them

/// A run of the kernel, as its process has left it in a file.
class AnsweredRun final : public AnyRun {
  public:
    /// With `lse` that is what it says of LSE.
    AnsweredRun(const Case& c, std::vector<Tensor> tensors, std::istream& file,
                std::vector<float> lse)
        : margin_(margin_of(c)), tensors_(std::move(tensors)), file_(file), lse_(std::move(lse)) {}

    void poison() override {} // as kernel_process.cu did

    void run() override {
        memory_.clear();
        for (const Tensor& one : tensors_) {
            memory_.push_back(read(one.spec.bytes() + 2 * margin_));
        }
        around_workspace_ = read(2 * margin_);
    }

    double time() override { return 0; }
    size_t workspace_bytes() const override { return 0; }

    std::vector<float> output(size_t i) const override {
        if (i == 1 && !lse_.empty()) {
            return lse_;
        }
        const auto first =
            std::ranges::find_if(tensors_, [](const Tensor& one) { return one.values.empty(); });
        const size_t n = static_cast<size_t>(first - tensors_.begin()) + i;
        std::vector<float> values(static_cast<size_t>(tensors_[n].spec.size()));
        const auto* const bytes = reinterpret_cast<const std::byte*>(memory_[n].data());
        to_floats(tensors_[n].spec.dtype, bytes + margin_, values);
        return values;
    }

    std::string damage() const override {
        for (size_t n = 0; n < tensors_.size(); ++n) {
            const Tensor& one = tensors_[n];
            const bool is_input = !one.values.empty();
            std::vector<char> expected(memory_[n].size(), is_input ? nan_byte : canary);
            const std::vector<char> inside =
                is_input ? bytes_of(one)
                         : std::vector<char>(memory_[n].begin() + static_cast<long>(margin_),
                                             memory_[n].end() - static_cast<long>(margin_));
            std::ranges::copy(inside, expected.begin() + static_cast<long>(margin_));
            const auto wrong = std::ranges::mismatch(memory_[n], expected).in1;
            if (wrong != memory_[n].end()) {
                const long at = wrong - memory_[n].begin() - static_cast<long>(margin_);
                const bool in_it = at >= 0 && at < static_cast<long>(inside.size());
                return in_it ? std::string(one.spec.name) + ", an input, was overwritten at byte " +
                                   std::to_string(at)
                             : std::string("memory beside ") + one.spec.name +
                                   " was overwritten, at its byte " + std::to_string(at);
            }
        }
        return std::ranges::count(around_workspace_, canary) == std::ssize(around_workspace_)
                   ? ""
                   : "memory beside the workspace was overwritten";
    }

  private:
    std::vector<char> read(size_t bytes) {
        std::vector<char> memory(bytes);
        if (!file_.read(memory.data(), static_cast<std::streamsize>(bytes))) {
            throw Error("the kernel's process gave no answer to this problem");
        }
        return memory;
    }

    size_t margin_;
    std::vector<Tensor> tensors_;
    std::istream& file_;
    std::vector<float> lse_;
    std::vector<std::vector<char>> memory_;
    std::vector<char> around_workspace_;
};

template <class T> void nothing(const Problem&, const T*, const T*, const T*, T*, float*) {}

/// A rung that has been run already.
class Answered final : public ForwardKind {
  public:
    Answered(const conformance::Prepared& prepared, const Takes& takes, const std::string& file)
        : ForwardKind({.name = "the kernel",
                       .fp32 = nothing<float>,
                       .fp16 = nothing<Half>,
                       .bf16 = nothing<Bfloat16>,
                       .rounded_sums = true}),
          prepared_(prepared), file_(file, std::ios::binary), has_lse_(takes.is("lse")) {
        has_gradients = prepared.c.backward;
        unordered_dQ = takes.is("unordered_dq");
    }

  private:
    std::unique_ptr<AnyRun> make_run(const Problem&, const Inputs&, size_t) const override {
        return std::make_unique<AnsweredRun>(prepared_.c,
                                             tensors_of(prepared_.c, prepared_.tensors), file_,
                                             has_lse_ ? std::vector<float>() : right_lse());
    }

    /// Of a kernel that writes none.
    std::vector<float> right_lse() const {
        std::vector<float> lse(prepared_.expected.lse.begin(), prepared_.expected.lse.end());
        for (size_t row = 0; row < prepared_.tensors.spoilt.size(); ++row) {
            if (prepared_.tensors.spoilt[row]) {
                lse[row] = std::numeric_limits<float>::quiet_NaN();
            }
        }
        return lse;
    }

    const conformance::Prepared& prepared_;
    mutable std::ifstream file_;
    bool has_lse_;
};

void judge(const std::vector<Case>& cases, const std::string& folder, const Takes& takes) {
    for (size_t n = 0; n < cases.size(); ++n) {
        const Case& c = cases[n];
        const conformance::Prepared prepared = conformance::prepare(c);
        const Answered kernel(prepared, takes, folder + "/" + std::to_string(n) + ".out");
        nlohmann::ordered_json wrong = nlohmann::json::array();
        for (const auto& [kind, said] : conformance::findings(kernel, prepared)) {
            wrong.push_back({{"kind", kind}, {"said", said}});
        }
        const nlohmann::ordered_json line = {{"problem", c.group() + ", " + c.name()},
                                             {"wrong", wrong}};
        std::printf("%s\n", line.dump().c_str());
    }
}

int run(int argc, char** argv) {
    const std::vector<std::string> arguments(argv + 1, argv + argc);
    const Takes takes(arguments.at(3));
    const std::vector<Case> cases = cases_of(arguments.at(1), std::stoull(arguments.at(2)), takes);
    if (arguments.at(0) == "ask") {
        ask(cases, arguments.at(4));
    } else {
        judge(cases, arguments.at(4), takes);
    }
    return 0;
}

} // namespace
} // namespace flash

int main(int argc, char** argv) {
    try {
        return flash::run(argc, argv);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 2;
    }
}
