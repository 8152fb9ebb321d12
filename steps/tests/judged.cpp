#include "steps/tests/judged.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>

#include "reference/conformance/judge.hpp"

namespace flash::tests {

Counting::Counting(simt::Options chosen) : before_(simt::options()) {
    chosen.count = true;
    simt::options() = chosen;
    simt::clear_profile();
}

simt::KernelProfile Counting::kernel() const {
    const std::vector<simt::KernelProfile> kernels = simt::profile();
    REQUIRE(kernels.size() == 1);
    return kernels[0];
}

simt::KernelProfile Counting::kernel(const std::string& name) const {
    std::vector<simt::KernelProfile> kernels = simt::profile();
    std::erase_if(kernels,
                  [&](const auto& one) { return one.name.find(name) == std::string::npos; });
    REQUIRE(kernels.size() == 1);
    return kernels[0];
}

simt::KernelProfile judged(const Rung& rung, const conformance::Case& c,
                           const simt::Options& chosen) {
    const Counting counting(chosen);
    for (const std::string& wrong : conformance::judge(rung, conformance::prepare(c))) {
        FAIL_CHECK(wrong);
    }
    return counting.kernel();
}

simt::BufferTraffic buffer(const simt::KernelProfile& kernel, const std::string& name) {
    const auto found = std::ranges::find(kernel.buffers, name, &simt::BufferTraffic::name);
    return found == kernel.buffers.end() ? simt::BufferTraffic{} : *found;
}

} // namespace flash::tests
