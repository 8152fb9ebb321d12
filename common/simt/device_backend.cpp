// The backend of CUDA rungs in a SIMT build: kernels run on this computer's processor.
#include "common/cuda/device_backend.hpp"

#include <algorithm>
#include <chrono>

#include "common/simt/device_memory.hpp"
#include "common/simt/options.hpp"

namespace flash {
namespace {

class SimtBackend final : public Backend {
  public:
    std::string name() const override { return "simt"; }

    std::string description() const override {
        return "CUDA threads executed on " + host_backend().description() + " (no GPU; times say nothing about one)";
    }

    void require_device() const override {
        simt::options(); // refuses what the environment misspells
        simt::arena();
    }

    size_t available_bytes() const override { return std::min(host_backend().available_bytes(), simt::Arena::bytes); }

    std::unique_ptr<Memory> allocate(size_t bytes) override { return std::make_unique<simt::DeviceMemory>(bytes); }

    void flush_caches() override {} // kernels do not run here at a speed that a cache would change

    double time(const std::function<void()>& work) override {
        const auto start = std::chrono::steady_clock::now();
        work();
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    }
};

} // namespace

Backend& device_backend() {
    static SimtBackend backend;
    return backend;
}

} // namespace flash
