// A CUDA rung that is judged on the SIMT backend while it counts.
#pragma once

#include <string>
#include <vector>

#include "common/simt/machine/simt_options.hpp"
#include "common/simt/report/profile.hpp"
#include "reference/conformance/cases.hpp"

namespace flash::tests {

/// As long as it lives the SIMT backend runs with these options, and counts.
class Counting {
  public:
    explicit Counting(simt::Options chosen);
    ~Counting() { simt::options() = before_; }
    Counting(const Counting&) = delete;
    Counting& operator=(const Counting&) = delete;

    /// What the one kernel did that has run so far; a test with another number of them fails.
    simt::KernelProfile kernel() const;

    /// The same of the kernel with this in its name, beside others.
    simt::KernelProfile kernel(const std::string& name) const;

  private:
    simt::Options before_;
};

/// Fails where the suite finds something wrong, and returns what the rung's one kernel did.
simt::KernelProfile judged(const Rung& rung, const conformance::Case& c,
                           const simt::Options& chosen = {});

/// What the kernel did to a buffer; nothing when it has none of that name.
simt::BufferTraffic buffer(const simt::KernelProfile& kernel, const std::string& name);

} // namespace flash::tests
