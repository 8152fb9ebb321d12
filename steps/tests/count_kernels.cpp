#include "steps/tests/count_kernels.hpp"

#include <random>

#include "common/cuda/launch/device_buffer.hpp"
#include "common/simt/machine/simt_options.hpp"

namespace flash::tests {
namespace {

DeviceBuffer<float> random_buffer(int64_t size, const char* name, unsigned seed) {
    DeviceBuffer<float> buffer(size, name);
    std::mt19937 generator(seed);
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < size; ++i) {
        buffer.data()[i] = normal(generator); // the host can reach it here
    }
    return buffer;
}

} // namespace

std::vector<simt::KernelProfile> count_kernels(Forward<float> attention, const Problem& p) {
    const DeviceBuffer<float> Q = random_buffer(p.q_size(), "Q", 1);
    const DeviceBuffer<float> K = random_buffer(p.kv_size(), "K", 2);
    const DeviceBuffer<float> V = random_buffer(p.kv_size(), "V", 3);
    const DeviceBuffer<float> O(p.q_size(), "O");
    const DeviceBuffer<float> LSE(p.lse_size(), "LSE");
    const DeviceBuffer<char> workspace(int64_t{16} << 20, "the workspace");
    const simt::Options before = simt::options();
    simt::options().count = true;
    simt::clear_profile();
    attention(p, Q.data(), K.data(), V.data(), O.data(), LSE.data(), workspace.data());
    simt::options() = before;
    return simt::profile();
}

simt::BufferTraffic buffer(const simt::KernelProfile& kernel, const std::string& name) {
    for (const simt::BufferTraffic& found : kernel.buffers) {
        if (found.name == name) {
            return found;
        }
    }
    return {};
}

} // namespace flash::tests
