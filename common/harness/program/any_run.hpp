// A rung on one problem, as its program sees it: on one device (DeviceRun), or on those of a ring
// (RingRun).
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace flash {

class AnyRun {
  public:
    struct Gradients {
        std::vector<float> d_q, d_k, d_v;
    };

    virtual ~AnyRun() = default;

    /// Fills the outputs with NaN, the workspace with garbage that is another one each time, and
    /// rewrites the canaries.
    virtual void poison() = 0;

    /// Runs the rung once and waits for its end.
    virtual void run() = 0;

    /// Seconds of one run, caches flushed before it.
    virtual double time() = 0;

    virtual std::vector<float> o() const = 0; // converted to float
    virtual std::vector<float> lse() const = 0;
    virtual Gradients gradients() const { return {}; } // of a backward rung

    /// Bytes of the rung's workspace.
    virtual size_t workspace_bytes() const = 0;

    /// Empty when every byte outside outputs and workspace still holds its canary and no input has
    /// changed; else says which tensor's surroundings were written, and at which offset.
    virtual std::string damage() const = 0;

    /// What all processes that take part do: what process 0 wants to.
    virtual bool agree(bool wanted) { return wanted; }
};

} // namespace flash
