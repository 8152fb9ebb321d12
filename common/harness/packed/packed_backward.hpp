// A backward rung whose sequences lie one after the other, each of its own length.
#pragma once

#include "common/harness/program/described.hpp"

namespace flash {

/// As its main.cpp describes it; as of a BackwardRung.
struct PackedBackwardRung {
    std::string_view name;
    BackwardPacked<float> fp32 = {};
    BackwardPacked<Half> fp16 = {};
    BackwardPacked<Bfloat16> bf16 = {};
    std::span<const int> head_dims = {};
    /// Of the line it may ask for the totals alone.
    int64_t (*workspace_bytes)(const Problem&, const PackedSequences&) = nullptr;
    Backend& (*backend)() = host_backend;
    Check check = nullptr;
    ForwardReference forward = nullptr;
    bool unordered_dQ = false;
};

/// Lives as long as the program.
Rung& rung_of(const PackedBackwardRung& rung);

inline int rung_main(const PackedBackwardRung& rung, int argc, char** argv) {
    return rung_main(rung_of(rung), argc, argv);
}

} // namespace flash
