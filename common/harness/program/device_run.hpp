// One rung on one problem: inputs converted and uploaded, outputs poisoned, canaries around
// everything.
// The command line, the benchmark and the conformance suite all run a rung through this class.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "common/harness/program/any_run.hpp"
#include "common/harness/program/rung.hpp"

namespace flash {

/// Q, K, V, O and LSE of one problem in the memory of the rung's backend; for a backward rung O and
/// LSE are inputs, as is dO, and dQ, dK and dV are the outputs.
///
/// Each tensor sits inside a larger allocation, `margin` bytes before it and after it. Margins of
/// inputs hold NaN, so that a read outside shows in the result; margins of outputs hold a pattern,
/// so that a write outside is found.
/// The rung's workspace, if it takes one, is surrounded likewise.
class DeviceRun final : public AnyRun {
  public:
    /// Bytes; a multiple of 256 keeps the tensors aligned.
    static constexpr size_t default_margin = 4096;

    /// Throws Error when the rung does not support the type or head dim, or when memory does not
    /// suffice.
    DeviceRun(const Rung& rung, const Problem& problem, const Inputs& inputs,
              size_t margin = default_margin);

    /// The same without inputs, which upload() brings one by one: the host may be too small for all
    /// of them as floats.
    DeviceRun(const Rung& rung, const Problem& problem, DType dtype,
              size_t margin = default_margin);

    /// Fills input `i`, in the order of the rung's parameters. Throws Error when `values` has
    /// another size than the problem needs.
    void upload(size_t i, std::span<const float> values);

    void poison() override;
    void launch(); // the rung's function; its work may still be going on when this returns
    void run() override;
    double time() override;

    std::vector<float> o() const override { return values(outputs_[0]); }
    std::vector<float> lse() const override { return values(outputs_[1]); }
    /// Elements first .. first + count - 1 of them.
    std::vector<float> o(int64_t first, int64_t count) const {
        return values(outputs_[0], first, count);
    }
    std::vector<float> lse(int64_t first, int64_t count) const {
        return values(outputs_[1], first, count);
    }
    Gradients gradients() const override {
        return {values(outputs_[0]), values(outputs_[1]), values(outputs_[2])};
    }

    size_t workspace_bytes() const override { return workspace_ ? workspace_->bytes : 0; }
    std::string damage() const override;

    /// Where input `i` lies for the rung, in the order of its parameters.
    const void* device_input(size_t i) const { return data<const void>(inputs_[i]); }

  private:
    struct Tensor {
        const char* name;
        DType dtype;
        int64_t size; // elements
        size_t bytes; // without the margins
        std::unique_ptr<Memory> memory;
        std::vector<std::byte> uploaded; // of an input, margins included
    };
    void poison(Tensor& tensor, std::span<const uint16_t> pattern);
    template <class T> T* data(const Tensor& tensor) const {
        return reinterpret_cast<T*>(static_cast<char*>(tensor.memory->data()) + margin_);
    }
    std::vector<float> values(const Tensor& tensor, int64_t first, int64_t count) const;
    std::vector<float> values(const Tensor& tensor) const { return values(tensor, 0, tensor.size); }

    Rung rung_;
    Problem problem_;
    DType dtype_;
    size_t margin_;
    std::vector<Tensor> inputs_, outputs_; // in the order of the rung's parameters
    std::optional<Tensor> workspace_;
    int poisonings_ = 0;
};

} // namespace flash
