// A rung that computes dQ, dK and dV from Q, K, V, O, LSE and dO, and with a sink dsink.
#pragma once

#include "common/harness/program/described.hpp"

namespace flash {

/// As its main.cpp describes it. What is not explained here is as in ForwardRung.
struct BackwardRung {
    std::string_view name;
    Backward<float> fp32 = {};
    Backward<Half> fp16 = {};
    Backward<Bfloat16> bf16 = {};
    std::span<const int> head_dims = {};
    int64_t (*workspace_bytes)(const Problem&) = nullptr;
    Backend& (*backend)() = host_backend;

    /// It knows Problem::window, and its function takes a sink and gives dsink.
    bool window_and_sink = false;

    /// Every main passes flash::reference::check_gradients.
    Check check = nullptr;

    /// Where O and LSE come from when the input holds none: flash::reference::forward.
    ForwardReference forward = nullptr;

    /// It adds up dQ in an order that depends on the run: its last bits may differ. Those of dK, dV
    /// and dsink may not.
    bool unordered_dQ = false;
};

/// Lives as long as the program.
Rung& rung_of(const BackwardRung& rung);

inline int rung_main(const BackwardRung& rung, int argc, char** argv) {
    return rung_main(rung_of(rung), argc, argv);
}

} // namespace flash
