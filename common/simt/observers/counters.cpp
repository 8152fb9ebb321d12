#include "common/simt/observers/counters.hpp"

#include <algorithm>
#include <bit>

namespace flash::simt {
namespace {

/// The most different words that one of the 32 banks has to give.
unsigned worst_bank(uint32_t* words, unsigned count) {
    uint32_t first[32];
    uint32_t used = 0; // banks that `first` holds a word of
    bool conflict = false;
    for (unsigned i = 0; i < count && !conflict; ++i) {
        const uint32_t bank = words[i] % 32;
        conflict = (used >> bank & 1) != 0 && first[bank] != words[i];
        first[bank] = words[i];
        used |= 1u << bank;
    }
    if (!conflict) {
        return 1;
    }
    std::sort(words, words + count);
    unsigned of_bank[32] = {};
    unsigned worst = 0;
    for (unsigned i = 0; i < count; ++i) {
        if (i == 0 || words[i] != words[i - 1]) {
            worst = std::max(worst, ++of_bank[words[i] % 32]);
        }
    }
    return worst;
}

} // namespace

Wavefronts wavefronts(uint32_t lanes, const uint32_t (&words)[32], unsigned bytes) {
    const unsigned words_each = bytes > 4 ? bytes / 4 : 1;
    const unsigned lanes_each = 32 / words_each; // that one wavefront can serve
    Wavefronts sum;
    for (unsigned first = 0; first < 32; first += lanes_each) {
        uint32_t wanted[32];
        unsigned count = 0;
        for (unsigned lane = first; lane < first + lanes_each; ++lane) {
            if ((lanes >> lane & 1) != 0) {
                for (unsigned i = 0; i < words_each; ++i) {
                    wanted[count++] = words[lane] + i;
                }
            }
        }
        if (count > 0) {
            sum.needed += worst_bank(wanted, count);
            ++sum.ideal;
        }
    }
    return sum;
}

unsigned count_distinct(uint32_t lanes, const uint32_t (&values)[32]) {
    uint32_t sorted[32];
    unsigned count = 0;
    for (; lanes != 0; lanes &= lanes - 1) {
        sorted[count++] = values[std::countr_zero(lanes)];
    }
    std::sort(sorted, sorted + count);
    return static_cast<unsigned>(std::unique(sorted, sorted + count) - sorted);
}

} // namespace flash::simt
