// Runs a CUDA rung on the SIMT backend and returns what its kernels did to memory.
#pragma once

#include <string>
#include <vector>

#include "common/attention.hpp"
#include "common/rung_function.hpp"
#include "common/simt/machine/simt_options.hpp"
#include "common/simt/report/profile.hpp"

namespace flash::tests {

/// The kernels' profile of one run on N(0,1) input. The buffers are named Q, K, V, O and LSE, and
/// what the rung calls the parts of its workspace, of which it gets ample bytes.
std::vector<simt::KernelProfile> count_kernels(Forward<float> attention, const Problem& p);

/// The traffic of the buffer of that name; none when the kernel did not touch it.
simt::BufferTraffic buffer(const simt::KernelProfile& kernel, const std::string& name);

/// While it lives, a block may have so much shared memory.
class SharedLimit {
  public:
    explicit SharedLimit(int kib) : before_(simt::options().shared_kib) {
        simt::options().shared_kib = kib;
    }
    ~SharedLimit() { simt::options().shared_kib = before_; }
    SharedLimit(const SharedLimit&) = delete;
    SharedLimit& operator=(const SharedLimit&) = delete;

  private:
    int before_;
};

} // namespace flash::tests
