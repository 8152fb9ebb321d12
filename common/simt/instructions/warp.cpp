#include "common/simt/instructions/warp.hpp"

#include <chrono>
#include <ctime>

#include "common/simt/machine/block.hpp"

namespace flash::simt {
namespace {

/// Lanes of a warp at one __activemask().
struct Gathering {
    unsigned warp;
    uint32_t lanes;
    SourceLocation location;
};

class Gatherings final : public InstructionState {
  public:
    std::vector<Gathering> open;
    std::array<uint32_t, 1024> of_thread{}; // what its last gathering came to

    void begin_block(unsigned) override { open.clear(); }
    bool waits_for_blocks() const override { return !open.empty(); }
    // nobody can run, so nobody else will come
    bool release_threads(Block& block) override {
        const bool any = !open.empty();
        while (!open.empty()) {
            end(block, open.begin());
        }
        return any;
    }

    void end(Block& block, std::vector<Gathering>::iterator gathering) {
        const auto [warp, lanes, location] = *gathering;
        open.erase(gathering);
        for (uint32_t rest = lanes; rest != 0; rest &= rest - 1) {
            const unsigned thread = warp * 32 + static_cast<unsigned>(std::countr_zero(rest));
            of_thread[thread] = lanes;
            block.release(thread);
        }
    }
};

uint32_t unfinished_lanes(const Block& block, unsigned warp) {
    uint32_t lanes = 0;
    for (unsigned lane = 0; lane < 32 && warp * 32 + lane < block.thread_count(); ++lane) {
        const bool finished = const_cast<Block&>(block).thread(warp * 32 + lane).finished;
        lanes |= finished ? 0 : 1u << lane;
    }
    return lanes;
}

struct Match {
    uint64_t bits;
    uint32_t same;
};

void find_same(const Operands& operands, uint32_t lanes) {
    const auto match = [&](uint32_t bits) {
        return static_cast<Match*>(operands[static_cast<size_t>(std::countr_zero(bits))]);
    };
    for (uint32_t one = lanes; one != 0; one &= one - 1) {
        match(one)->same = 0;
        for (uint32_t other = lanes; other != 0; other &= other - 1) {
            const bool equal = match(one)->bits == match(other)->bits;
            match(one)->same |= equal ? other & -other : 0;
        }
    }
}

} // namespace

uint32_t active_lanes(SourceLocation location) {
    const Caller caller;
    Gatherings& gatherings = caller.block.state<Gatherings>();
    const unsigned warp = caller.thread.number / 32;
    auto own = std::ranges::find_if(gatherings.open, [&](const Gathering& gathering) {
        return gathering.warp == warp && gathering.location == location;
    });
    if (own == gatherings.open.end()) {
        own = gatherings.open.insert(own, {warp, 0, location});
    }
    own->lanes |= 1u << caller.thread.number % 32;
    if (own->lanes == unfinished_lanes(caller.block, warp)) {
        gatherings.end(caller.block, own);
    }
    caller.block.yield();
    return gatherings.of_thread[caller.thread.number];
}

uint32_t lanes_with_same(const char* operation, uint32_t mask, uint64_t bits,
                         SourceLocation location) {
    Match own{bits, 0};
    const RuntimeCode runtime;
    current_block().collective(CollectiveKind::collective, operation, location, mask, &own,
                               find_same);
    return own.same;
}

uint64_t nanoseconds() {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return static_cast<uint64_t>(std::chrono::nanoseconds(now).count());
}

void sleep(unsigned) {
    const Caller caller;
    caller.block.release(caller.thread.number);
    caller.block.yield();
}

} // namespace flash::simt

/// CUDA and C call it by the same name, and a file's kernels and its host code are compiled in one
/// pass. So this one takes the place of the C library's: cycles for a kernel, and for the host the
/// processor time of the program.
extern "C" clock_t clock() noexcept {
    if (flash::simt::running_block != nullptr) {
        return static_cast<clock_t>(flash::simt::nanoseconds());
    }
    timespec used{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return used.tv_sec * CLOCKS_PER_SEC + used.tv_nsec / (1'000'000'000 / CLOCKS_PER_SEC);
}
