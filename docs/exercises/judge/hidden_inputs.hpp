// On the SIMT backend device memory is the process's own. So that no host code computes the answer,
// inputs are there while a kernel runs, and NaN at all other times.
#pragma once

#include <cstddef>
#include <vector>

#include "common/simt/machine/device_memory.hpp"
#include "common/simt/machine/observer_factory.hpp"
#include "common/simt/machine/simt_options.hpp"

/// Kernels may touch `bytes` from `margin` on, and messages call them by a name.
inline void name_buffer(char* memory, size_t margin, size_t bytes, const char* name) {
    flash::simt::memory_around(memory)->declare(margin, bytes, name);
}

/// Where kernels are observed: else launches tell nobody.
class HiddenInputs final : public flash::simt::ObserverFactory {
  public:
    HiddenInputs() : watch_(flash::simt::observer_factory) {}
    ~HiddenInputs() override { flash::simt::observer_factory = watch_; }

    void add(char* memory, size_t margin, size_t bytes) {
        inputs_.push_back({memory + margin, std::vector<char>(bytes)});
    }
    void hide() {
        if (flash::simt::options().detect || flash::simt::options().count) {
            flash::simt::observer_factory = this;
            take_away();
        }
    }
    void show() {
        if (flash::simt::observer_factory == this) {
            flash::simt::observer_factory = watch_;
            bring_back();
        }
    }

    void begin_launch() override {
        bring_back();
        watch_->begin_launch();
    }
    flash::simt::Observers observers(flash::simt::Block& block) override {
        return watch_->observers(block);
    }
    void end_launch(const flash::simt::Launch& launch, const flash::simt::Kernel& kernel) override {
        watch_->end_launch(launch, kernel);
        take_away();
    }

  private:
    struct Input {
        char* device;
        std::vector<char> bytes; // while they are not there
    };

    void take_away() {
        for (Input& one : inputs_) {
            const size_t bytes = one.bytes.size();
            cudaMemcpy(one.bytes.data(), one.device, bytes, cudaMemcpyDeviceToHost);
            cudaMemset(one.device, 0xff, bytes);
        }
    }
    void bring_back() {
        for (const Input& one : inputs_) {
            cudaMemcpy(one.device, one.bytes.data(), one.bytes.size(), cudaMemcpyHostToDevice);
        }
    }

    flash::simt::ObserverFactory* const watch_;
    std::vector<Input> inputs_;
};
