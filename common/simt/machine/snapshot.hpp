// Global memory as it was at a moment.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace flash::simt {

class Snapshot {
  public:
    /// None where that takes more than `most` bytes, or more than there are, or where kernels have
    /// a heap.
    static std::optional<Snapshot> take(size_t most);

    /// All that kernels can write, and what is known of who has written, is again what it was.
    void restore() const;

  private:
    std::vector<std::pair<std::span<char>, std::vector<char>>> pieces_; // where, and what
};

} // namespace flash::simt
