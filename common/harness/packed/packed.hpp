// A forward rung whose sequences lie one after the other, each of its own length.
#pragma once

#include "common/harness/program/described.hpp"

namespace flash {

/// As its main.cpp describes it; as of a ForwardRung.
struct PackedRung {
    std::string_view name;
    ForwardPacked<float> fp32 = {};
    ForwardPacked<Half> fp16 = {};
    ForwardPacked<Bfloat16> bf16 = {};
    std::span<const int> head_dims = {};
    int64_t (*workspace_bytes)(const Problem&) = nullptr;
    Backend& (*backend)() = host_backend;
    Check check = nullptr;
};

/// Lives as long as the program.
Rung& rung_of(const PackedRung& rung);

inline int rung_main(const PackedRung& rung, int argc, char** argv) {
    return rung_main(rung_of(rung), argc, argv);
}

} // namespace flash
