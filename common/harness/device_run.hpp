// One rung on one problem: inputs converted and uploaded, outputs poisoned, canaries around everything.
// The command line, the benchmark and the conformance suite all run a rung through this class.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "common/harness/rung.hpp"

namespace flash {

/// Q, K, V, O and LSE of one problem in the memory of the rung's backend.
///
/// Each tensor sits inside a larger allocation, `margin` bytes before it and after it. Margins of inputs hold NaN,
/// so that a read outside shows in the result; margins of outputs hold a pattern, so that a write outside is found.
class DeviceRun {
  public:
    /// Bytes; a multiple of 256 keeps the tensors aligned.
    static constexpr size_t default_margin = 4096;

    /// Throws Error when the rung does not support the type or head dim, or when memory does not suffice.
    DeviceRun(const Rung& rung, const Problem& problem, const Inputs& inputs, size_t margin = default_margin);

    /// Fills O and LSE with NaN and rewrites the canaries.
    void poison();

    /// Runs the rung once and waits for its end.
    void run();

    /// Seconds of one run, caches flushed before it.
    double time();

    std::vector<float> o() const; // O, converted to float
    std::vector<float> lse() const;

    /// O in the rung's own type, bit by bit, for comparing repeated runs.
    std::vector<std::byte> o_bits() const;

    /// Empty when every byte outside O and LSE still holds its canary and Q, K, V are unchanged;
    /// else says which tensor's surroundings were written, and at which offset.
    std::string damage() const;

  private:
    void launch(); // the rung's function; its work may still be going on when this returns

    struct Tensor {
        std::unique_ptr<Memory> memory;
        size_t bytes = 0; // without the margins
        size_t margin = 0;
        void* data() const { return static_cast<char*>(memory->data()) + margin; }
    };

    Rung rung_;
    Problem problem_;
    DType dtype_;
    Tensor q_, k_, v_, o_, lse_;
    std::vector<std::byte> q_bits_, k_bits_, v_bits_; // what was uploaded, margins included
};

} // namespace flash
