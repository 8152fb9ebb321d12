// What kernels print. Blocks run side by side and end in any order; what they print comes in the
// order of their turns, as if one worker ran them all.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>

namespace flash::simt {

class Printing {
  public:
    void begin_launch();

    // A worker begins a block and ends it; between, that prints.
    void begin_block(uint64_t turn);
    void print(std::string_view text);
    void end_block(uint64_t turn);

    /// The launch is over, or stopped: what blocks up to this turn have printed comes out.
    void end_launch(uint64_t last_turn);

  private:
    void write(uint64_t turn, std::string_view more);

    std::mutex mutex_;
    uint64_t next_ = 0;                     // the block that prints at once
    std::set<uint64_t> ended_;              // behind that
    std::map<uint64_t, std::string> later_; // what others have printed
};

Printing& printing(); // launches take turns

} // namespace flash::simt
