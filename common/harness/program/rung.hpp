// One rung of the ladder, as its main hands it to the harness. Its idea stands in steps/ladder.txt.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/attention.hpp"
#include "common/harness/backends/backend.hpp"
#include "common/harness/program/processes.hpp"
#include "common/harness/program/verdict.hpp"
#include "common/rung_function.hpp"
#include "common/types.hpp"

namespace flash {

/// The functions of a backward rung, one for each type that it supports.
struct BackwardFunctions {
    Backward<float> fp32 = {};
    Backward<Half> fp16 = {};
    Backward<Bfloat16> bf16 = {};
};

/// What a rung adds that several processes compute together.
struct RingFunctions {
    ForwardOfRank<Half> fp16 = nullptr;
    ForwardOfRank<Bfloat16> bf16 = nullptr;
    int64_t (*workspace_bytes)(const Problem& whole, const Shard&) = nullptr;

    /// The processes that mpirun has started, or this one alone. Throws Error when they cannot work
    /// together.
    std::unique_ptr<Processes> (*processes)() = nullptr;
};

/// What a rung adds that reads K and V from pages.
struct PagedFunctions {
    ForwardPaged<Half> fp16 = nullptr;
    ForwardPaged<Bfloat16> bf16 = nullptr;
};

struct Rung {
    std::string name; // the folder's: "05_one_pass_softmax"

    // The types it supports are the functions it names.
    Forward<float> fp32 = {};
    Forward<Half> fp16 = {};
    Forward<Bfloat16> bf16 = {};

    BackwardFunctions backward = {}; // a backward rung names these and none above

    RingFunctions ring = {};   // names all of them, or none
    PagedFunctions paged = {}; // likewise

    // of an array that lives as long as the program; empty: any
    std::span<const int> head_dims = {};

    /// Bytes that it needs on its backend beyond its inputs and outputs; null: a negligible amount.
    /// A CUDA rung gets them from its caller, as its workspace; a CPU rung allocates them.
    std::function<int64_t(const Problem&)> workspace_bytes = nullptr;

    Backend& (*backend)() = host_backend;

    /// How an output is judged; every main passes flash::reference::check, or check_gradients.
    Check check = nullptr;

    /// Where a backward rung gets O and LSE from when its input holds none:
    /// flash::reference::forward.
    ForwardReference forward = nullptr;

    /// naive_attention leaves the row maximum out on purpose: exp overflows at logits past 88.
    bool overflows = false;

    /// It sums up P after rounding it to 16 bits, so that its LSE is off by as much as a weight is:
    /// by up to 2^-11 in fp16 and 2^-8 in bf16. All other rungs are held to 2e-5.
    bool rounded_sums = false;

    /// A backward rung that adds up dQ in an order that depends on the run: its last bits may
    /// differ. dK and dV may not.
    bool unordered_dQ = false;

    bool is_ring() const { return ring.fp16 != nullptr; }
    bool is_paged() const { return paged.fp16 != nullptr; }
    bool is_backward() const { return backward.fp32 || backward.fp16 || backward.bf16; }
    bool takes_workspace() const {
        return fp32.takes_workspace() || fp16.takes_workspace() || backward.fp16.takes_workspace();
    }
    double flops(const Problem& p) const { return is_backward() ? p.backward_flops() : p.flops(); }
    bool supports(DType type) const;
    std::vector<DType> dtypes() const; // in the order fp32, fp16, bf16; the first is the default
};

/// The program of one rung: reads the command line, runs the rung, checks and reports (see --help).
/// Returns the exit code: 0 passed, 1 wrong result, 2 bad input or no usable device.
/// A conformance test links another definition of this very function, so that a rung is registered
/// once.
int rung_main(const Rung& rung, int argc, char** argv);

} // namespace flash
