// Random inputs that are the same everywhere.
#pragma once

#include <cstdint>
#include <random>

namespace flash {

/// Independent standard normal numbers, N(0, 1). A seed gives the same bits on every platform and
/// compiler, which std::normal_distribution and the logarithm of the C library do not promise.
class NormalGenerator {
  public:
    explicit NormalGenerator(uint64_t seed) : bits_(seed) {}

    /// Part `part` of a sequence that several generators make side by side. Part 0 is
    /// NormalGenerator(seed).
    NormalGenerator(uint64_t seed, uint32_t part);

    float operator()();

  private:
    std::mt19937_64 bits_; // its numbers are fixed by the C++ standard
    float spare_ = 0;
    bool has_spare_ = false;
};

} // namespace flash
