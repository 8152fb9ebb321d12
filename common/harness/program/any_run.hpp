// A rung on one problem: on one device (DeviceRun), or on those of a ring.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/types.hpp"

namespace flash {

/// A tensor that a rung reads or writes. A file calls it by the same name in lower case.
struct TensorSpec {
    const char* name; // "dQ"
    DType dtype;
    std::vector<int64_t> shape;

    int64_t size() const; // elements
    size_t bytes() const { return static_cast<size_t>(size() * dtype_bytes(dtype)); }
};

class AnyRun {
  public:
    /// Bytes around each tensor; a multiple of 256 keeps the tensors aligned.
    static constexpr size_t default_margin = 4096;

    virtual ~AnyRun() = default;

    /// Fills the outputs with NaN, the workspace with garbage that is another one each time, and
    /// rewrites the canaries.
    virtual void poison() = 0;

    /// Runs the rung once and waits for its end.
    virtual void run() = 0;

    /// Seconds of one run, caches flushed before it.
    virtual double time() = 0;

    /// Output `i`, converted to float: O and LSE, or dQ, dK, dV and dsink.
    virtual std::vector<float> output(size_t i) const = 0;
    std::vector<float> o() const { return output(0); }
    std::vector<float> lse() const { return output(1); }

    /// Bytes of the rung's workspace.
    virtual size_t workspace_bytes() const = 0;

    /// Empty when every byte outside outputs and workspace still holds its canary and no input has
    /// changed; else says which tensor's surroundings were written, and at which offset.
    virtual std::string damage() const = 0;

    /// Of the processes that take part one has the outputs, judges and writes.
    virtual bool is_first() const { return true; }

    /// What all processes that take part do: what the first one wants to.
    virtual bool agree(bool wanted) { return wanted; }
};

} // namespace flash
