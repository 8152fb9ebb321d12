#include "common/simt/watch/quick_check.hpp"

#include <algorithm>
#include <vector>

namespace flash::simt {
namespace {

using Words = std::vector<QuickCheck::Word>;
// of this OS thread: apart from quick_check, which needs no destructor and is found at once
thread_local Words words_of_variables, words_of_dynamic;

constexpr QuickCheck::Word nobodys{0, ~uint32_t{0}}; // in no variable: neither access passes

} // namespace

constinit thread_local QuickCheck quick_check;

void QuickCheck::begin_block(const SharedMemory& shared, const Kernel& kernel) {
    const Segment& segment = shared.segment();
    if (epoch_ >= last_epoch / 2 || kernel_ != &kernel || variables_.begin != segment.begin) {
        epoch_ = 0;
        kernel_ = &kernel;
        words_of_variables.assign(segment.bytes / 4, nobodys);
        std::ranges::fill(words_of_dynamic, Word());
        for (const SharedVariable& variable : kernel.shared) {
            const size_t end = std::min(variable.offset + variable.bytes, segment.bytes) / 4;
            for (size_t word = (variable.offset + 3) / 4; word < end; ++word) {
                words_of_variables[word] = {};
            }
        }
    }
    if (words_of_dynamic.size() < shared.dynamic_bytes() / 4) {
        words_of_dynamic.resize(shared.dynamic_bytes() / 4);
    }
    variables_ = {segment.begin, segment.bytes & ~size_t{15}, words_of_variables.data()};
    dynamic_ = {shared.dynamic(), shared.dynamic_bytes() & ~size_t{15}, words_of_dynamic.data()};
    epoch_ += 1 << thread_bits;
    block_begin_ = epoch_;
}

} // namespace flash::simt
