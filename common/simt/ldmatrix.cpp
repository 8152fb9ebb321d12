#include "common/simt/ldmatrix.hpp"

#include <cstring>

#include "common/simt/block.hpp"

namespace flash::simt {
namespace {

struct Rows {
    uint32_t* registers;
    const void* row;
    const Thread* thread;
    Site site;
};

/// The 8 rows of one matrix are one wavefront if their 16-byte pieces lie in different banks.
void watch(Watcher& watcher, const Operands& lanes, size_t matrices) {
    Counters* const counters = watcher.counters(static_cast<const Rows*>(lanes[0])->site);
    SharedTraffic traffic{1, 0, 0, 0};
    for (size_t m = 0; m < matrices; ++m) {
        uint32_t words[32] = {};
        for (size_t i = 0; i < 8; ++i) {
            const auto& own = *static_cast<const Rows*>(lanes[8 * m + i]);
            watcher.check(*own.thread, own.row, 16, Kind::load, Origin::of(own.site));
            words[i] = static_cast<uint32_t>(reinterpret_cast<size_t>(own.row) / 4);
        }
        const Wavefronts passes = wavefronts(0xff, words, 16);
        traffic += {0, 128, passes.needed, passes.ideal};
    }
    if (counters != nullptr) {
        counters->shared_load += traffic;
    }
}

/// Without transposition lane l receives elements 2 (l % 4), 2 (l % 4) + 1 of row l / 4 of each matrix;
/// transposed, the same of column l / 4.
template <int Count, bool Transposed> void load(const Operands& lanes, uint32_t) {
    if (Watcher* const watcher = current_block().watching()) {
        watch(*watcher, lanes, Count);
    }
    for (size_t m = 0; m < Count; ++m) {
        uint16_t matrix[8][8];
        for (size_t i = 0; i < 8; ++i) {
            std::memcpy(matrix[i], static_cast<const Rows*>(lanes[8 * m + i])->row, 16);
        }
        for (size_t lane = 0; lane < 32; ++lane) {
            const size_t g = lane / 4;
            const size_t t = 2 * (lane % 4);
            const uint32_t low = Transposed ? matrix[t][g] : matrix[g][t];
            const uint32_t high = Transposed ? matrix[t + 1][g] : matrix[g][t + 1];
            static_cast<const Rows*>(lanes[lane])->registers[m] = low | high << 16;
        }
    }
}

} // namespace

void load_matrices(uint32_t* registers, const void* row, int count, bool transposed, Site site) {
    Rows own{registers, row, &current_block().current(), site};
    const char* const name = count == 1 ? "ldmatrix_x1" : count == 2 ? "ldmatrix_x2" : "ldmatrix_x4";
    const Combine combine = count == 1   ? (transposed ? load<1, true> : load<1, false>)
                            : count == 2 ? (transposed ? load<2, true> : load<2, false>)
                                         : (transposed ? load<4, true> : load<4, false>);
    warp_collective(Meeting::ldmatrix, name, full_mask, &own, combine, site);
}

} // namespace flash::simt
