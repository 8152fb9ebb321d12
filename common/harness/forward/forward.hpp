// A rung that computes O and LSE from Q, K and V: most of them.
#pragma once

#include "common/harness/program/described.hpp"

namespace flash {

/// As its main.cpp describes it. Its idea stands in steps/ladder.txt.
struct ForwardRung {
    std::string_view name; // the folder's, without the number

    // The types it supports are the functions it names.
    Forward<float> fp32 = {};
    Forward<Half> fp16 = {};
    Forward<Bfloat16> bf16 = {};

    // of an array that lives as long as the program; empty: any
    std::span<const int> head_dims = {};
    /// V's and O's beside each of head_dims, where they are others.
    std::span<const int> head_dims_v = {};

    /// Bytes that it needs on its backend beyond its inputs and outputs; null: a negligible amount.
    /// A CUDA rung gets them from its caller, as its workspace; a CPU rung allocates them.
    int64_t (*workspace_bytes)(const Problem&) = nullptr;

    Backend& (*backend)() = host_backend;

    /// It knows Problem::window, and its function takes a sink.
    bool window_and_sink = false;

    /// Every main passes flash::reference::check.
    Check check = nullptr;

    /// naive_attention leaves the row maximum out on purpose: exp overflows at logits past 88.
    bool overflows = false;

    /// It sums up P after rounding it to 16 bits, so that its LSE is off by as much as a weight is:
    /// by up to 2^-11 in fp16 and 2^-8 in bf16. All other rungs are held to 2e-5.
    bool rounded_sums = false;
};

/// Lives as long as the program.
Rung& rung_of(const ForwardRung& rung);

inline int rung_main(const ForwardRung& rung, int argc, char** argv) {
    return rung_main(rung_of(rung), argc, argv);
}

} // namespace flash
