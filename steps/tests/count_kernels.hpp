// Runs a CUDA rung on the SIMT backend and returns what its kernels did to memory.
#pragma once

#include <string>
#include <vector>

#include "common/attention.hpp"
#include "common/simt/machine/simt_options.hpp"
#include "common/simt/report/profile.hpp"

namespace flash::tests {

using Attention = void (*)(const Problem&, const float* Q, const float* K, const float* V, float* O, float* LSE);

/// The kernels' profile of one run on N(0,1) input. The buffers are named Q, K, V, O and LSE, and what the rung calls
/// those that it allocates.
std::vector<simt::KernelProfile> count_kernels(Attention attention, const Problem& p);

/// The traffic of the buffer of that name; none when the kernel did not touch it.
simt::BufferTraffic buffer(const simt::KernelProfile& kernel, const std::string& name);

/// While it lives, a block may have so much shared memory.
class SharedLimit {
  public:
    explicit SharedLimit(int kib) : before_(simt::options().shared_kib) { simt::options().shared_kib = kib; }
    ~SharedLimit() { simt::options().shared_kib = before_; }
    SharedLimit(const SharedLimit&) = delete;
    SharedLimit& operator=(const SharedLimit&) = delete;

  private:
    int before_;
};

} // namespace flash::tests
