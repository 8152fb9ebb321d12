// A rung of the ladder, as its program and the conformance suite see it. What it computes, and from
// what, is a matter of its kind: forward, backward, paged or ring. Each kind has a folder of its
// own beside this one, with a Rung and with what a main.cpp says to get one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/attention.hpp"
#include "common/harness/backends/backend.hpp"
#include "common/harness/program/any_run.hpp"
#include "common/harness/program/verdict.hpp"
#include "common/types.hpp"

namespace flash {

class CommandLine;
struct Call;
struct Options;
struct Report;

/// What --help says of a kind beyond the options.
struct Help {
    const char* title = "O, LSE = attention(Q, K, V)";
    const char* input = ""; // what a file may hold beyond q, k and v
    const char* output = "o and lse";
    const char* file_example = " --input qkv.safetensors --output o.safetensors\n"
                               "      tensors q, k, v from a file, o and lse to another\n";
    std::string examples = {}; // more of them
};

/// How one output differs from the reference, and what is allowed.
struct NamedError {
    const char* name; // "dQ"
    double error, bound;
    const char* remark = ""; // lines behind it
};

/// The problem of the command line: the rung on its input, and the verdict on what the run has
/// given; nothing where another process judges.
struct Task {
    std::shared_ptr<AnyRun> run;
    std::function<std::optional<Verdict>(const Progress&, int64_t rows_of_head)> judge;
};

class Rung {
  public:
    virtual ~Rung() = default;
    Rung(const Rung&) = delete;
    Rung& operator=(const Rung&) = delete;

    const std::string name;               // without its number
    std::vector<DType> dtypes;            // that it supports; the first is the default
    const std::span<const int> head_dims; // empty: any
    Backend& backend() const { return backend_(); }
    bool supports(DType type) const;

    // What the suite has to know.
    bool overflows = false;                // ForwardRung::overflows
    bool rounded_sums = false;             // ForwardRung::rounded_sums
    bool unordered_dQ = false;             // BackwardRung::unordered_dQ
    bool window_and_sink = false;          // ForwardRung::window_and_sink, or BackwardRung's
    bool has_gradients = false;            // its outputs are dQ, dK and dV, and dsink
    std::span<const int> head_dims_v = {}; // ForwardRung::head_dims_v

    /// d where nobody chooses one.
    int64_t usual_head_dim() const;
    /// The head dim of V and O that it takes beside d: d itself, unless head_dims_v has another.
    int64_t head_dim_v_of(int64_t d) const;

    /// The rung on a problem. Throws Error when it does not support type or head dim, when an input
    /// has a wrong size, or when memory does not suffice.
    std::unique_ptr<AnyRun> on(const Problem& problem, const Inputs& inputs,
                               size_t margin = AnyRun::default_margin) const;

    /// Bytes that it needs on its backend beyond its inputs and outputs.
    int64_t workspace_bytes(const Problem& problem, DType dtype) const;

    /// Another way to compute the same, which the suite tries as well; null: none. `how` is what it
    /// says of it.
    struct Way {
        std::unique_ptr<Rung> rung;
        std::string how;
    };
    virtual Way other_way(const Problem&) const { return {}; }

    // For the program, in the order in which it calls them (program.cpp).
    virtual Help help() const { return {}; }
    virtual void add_options(CommandLine&) {}
    /// The problem of the command line. Throws Error when shapes disagree, as make_problem does.
    virtual Problem problem(const Options&);
    /// Refuses what the kind's options do not allow, and notes what the report says of them.
    virtual void plan(Report&, const Options&) {}
    virtual double flops(const Problem& problem) const { return problem.flops(); }
    virtual void require_memory(const Report&, const Options&) const;
    virtual Task task(const Report&, const Options&) = 0;
    virtual std::vector<TensorSpec> outputs(const Problem&, DType) const = 0;
    virtual std::vector<NamedError> errors(const Verdict&) const = 0;

    /// The program, from the command line to the exit code.
    virtual int program(int argc, char** argv);

  protected:
    template <class Described>
    explicit Rung(const Described& rung)
        : name(rung.name), head_dims(rung.head_dims), backend_(rung.backend),
          workspace_bytes_(rung.workspace_bytes),
          takes_workspace_(rung.fp32.takes_workspace() || rung.fp16.takes_workspace()) {
        const std::pair<DType, bool> functions[] = {{DType::fp32, bool(rung.fp32)},
                                                    {DType::fp16, bool(rung.fp16)},
                                                    {DType::bf16, bool(rung.bf16)}};
        for (const auto& [dtype, supported] : functions) {
            if (supported) {
                dtypes.push_back(dtype);
            }
        }
    }

    /// What makes a run of on(): a DeviceRun of call().
    virtual std::unique_ptr<AnyRun> make_run(const Problem&, const Inputs&, size_t margin) const;

    /// The rung's function on tensors of this problem.
    virtual Call call(const Problem&, DType) const = 0;

    /// Bytes on the host beside the tensors that the rung sees: values as floats, what the run
    /// keeps of them, and the reference's results.
    virtual double host_bytes(const Problem&, DType, bool check) const = 0;

    /// A call of these tensors that still lacks its function.
    Call call_with(const Problem& problem, std::vector<TensorSpec> inputs,
                   std::vector<TensorSpec> outputs) const;

  private:
    Backend& (*backend_)();
    int64_t (*workspace_bytes_)(const Problem&);
    bool takes_workspace_;
};

/// Keeps a rung until the program ends: what a main.cpp says becomes a rung (rung_of) once.
Rung& kept(std::unique_ptr<Rung> rung);

} // namespace flash
