// One rung on one problem: inputs converted and uploaded, outputs poisoned, canaries around
// everything.
// The command line, the benchmark and the conformance suite all run a rung through this class.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/harness/backends/backend.hpp"
#include "common/harness/program/any_run.hpp"

namespace flash {

/// A rung's function on one problem: its tensors, in the order of its parameters, and how it is
/// called.
struct Call {
    /// Where the tensors lie for the rung.
    struct Pointers {
        std::vector<void*> inputs, outputs;
        void* workspace = nullptr;

        template <class T> const T* in(size_t i) const { return static_cast<const T*>(inputs[i]); }
        template <class T> T* out(size_t i) const { return static_cast<T*>(outputs[i]); }
    };

    std::string rung; // its name
    Backend* backend;
    std::vector<TensorSpec> inputs, outputs;

    /// Bytes that it needs beyond these; null: a negligible amount. Only a problem whose tensors
    /// have been found to fit is asked for.
    std::function<int64_t()> workspace_bytes;
    bool takes_workspace; // of its caller, or else allocates it

    std::function<void(const Pointers&)> function; // its work may go on when it returns
};

/// Each tensor sits inside a larger allocation, `margin` bytes before it and after it. Margins of
/// inputs hold NaN, so that a read outside shows in the result; margins of outputs hold a pattern,
/// so that a write outside is found.
/// The rung's workspace, if it takes one, is surrounded likewise.
class DeviceRun final : public AnyRun {
  public:
    /// The inputs are still to be uploaded. Throws Error when memory does not suffice.
    explicit DeviceRun(Call call, size_t margin = default_margin);

    /// The same with inputs, in the order of the call's.
    DeviceRun(Call call, const std::vector<std::span<const float>>& inputs,
              size_t margin = default_margin);

    /// Fills input `i`. Throws Error when `values` has another size than the problem needs.
    void upload(size_t i, std::span<const float> values);

    /// The same for a table of whole numbers; as a tensor it counts as fp32, which is as wide.
    void upload(size_t i, std::span<const int> numbers);

    void poison() override;
    void launch(); // the rung's function; its work may still be going on when this returns
    void run() override;
    double time() override;

    std::vector<float> output(size_t i) const override {
        return output(i, 0, outputs_[i].spec.size());
    }
    /// Elements first .. first + count - 1 of it.
    std::vector<float> output(size_t i, int64_t first, int64_t count) const;

    size_t workspace_bytes() const override { return workspace_ ? workspace_->spec.bytes() : 0; }
    std::string damage() const override;

    /// Where input `i` lies for the rung.
    const void* device_input(size_t i) const { return pointers_.inputs[i]; }

  private:
    struct Tensor {
        TensorSpec spec;
        std::unique_ptr<Memory> memory;
        std::vector<std::byte> uploaded; // of an input, margins included
    };
    Tensor reserve(const TensorSpec& spec) const;
    void* data(const Tensor& tensor) const {
        return static_cast<char*>(tensor.memory->data()) + margin_;
    }
    void upload(size_t i, size_t elements, const std::function<void(std::byte*)>& copy);
    void poison(Tensor& tensor, std::span<const uint16_t> pattern);

    Call call_;
    size_t margin_;
    std::vector<Tensor> inputs_, outputs_;
    std::optional<Tensor> workspace_;
    Call::Pointers pointers_;
    int poisonings_ = 0;
};

} // namespace flash
