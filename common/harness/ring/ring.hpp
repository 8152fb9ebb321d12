// A forward rung that several ranks can also compute together, each with a part of the sequence.
#pragma once

#include <memory>

#include "common/harness/forward/forward.hpp"
#include "common/harness/ring/processes.hpp"
#include "common/ranks.hpp"

namespace flash {

/// One rank's part of O and LSE, from its shard of Q, K and V (common/ranks.hpp). The problem is
/// the whole one.
template <class T>
using ForwardOfRank = void (*)(const Problem&, const Shard&, const T* /*Q*/, const T* /*K*/,
                               const T* /*V*/, T* /*O*/, float* /*LSE*/, void* workspace,
                               Exchange&);

/// As its main.cpp describes it.
struct RingRung {
    ForwardRung alone; // one rank, which needs no other
    ForwardOfRank<Half> fp16 = nullptr;
    ForwardOfRank<Bfloat16> bf16 = nullptr;
    int64_t (*workspace_bytes)(const Problem& whole, const Shard&) = nullptr;

    /// The processes that mpirun has started; null: this one alone. Throws Error when they cannot
    /// work together.
    std::unique_ptr<Processes> (*processes)() = nullptr;
};

/// Lives as long as the program. Its runs are of so many ranks, all in this process, and the heads
/// go round in so many portions.
Rung& rung_of(const RingRung& rung, int ranks = 1, int portions = 1);

inline int rung_main(const RingRung& rung, int argc, char** argv) {
    return rung_main(rung_of(rung), argc, argv);
}

} // namespace flash
