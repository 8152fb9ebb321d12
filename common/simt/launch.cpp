#include "common/simt/launch.hpp"

#include <algorithm>
#include <mutex>
#include <numeric>
#include <optional>
#include <string>

#include "common/simt/block.hpp"
#include "common/simt/symbols.hpp"
#include "common/simt/traps.hpp"
#include "common/simt/workers.hpp"

namespace flash::simt {
namespace {

std::string sizes(dim3 size) {
    return std::to_string(size.x) + " x " + std::to_string(size.y) + " x " + std::to_string(size.z);
}

/// The limits of compute capability 8.0, except for shared memory, which can be chosen.
void check(const Launch& launch, const Kernel& kernel) {
    const auto refuse = [&](const std::string& reason) {
        Fault fault(FaultKind::launch, "cannot launch " + kernel.name + "\nat " + launch.site.file + ":" +
                                           std::to_string(launch.site.line) + ": " + reason);
        fault.kernel = kernel.name;
        fault.where.line = {launch.site.file, launch.site.line};
        throw fault;
    };
    if (volume(launch.grid) == 0 || volume(launch.block) == 0) {
        refuse("a grid of " + sizes(launch.grid) + " blocks of " + sizes(launch.block) + " threads is empty");
    }
    if (launch.grid.x > 2147483647 || launch.grid.y > 65535 || launch.grid.z > 65535) {
        refuse("a grid of " + sizes(launch.grid) +
               " blocks is too large; the limit is 2147483647 in x and 65535 in y "
               "and z");
    }
    if (volume(launch.block) > 1024 || launch.block.z > 64) {
        refuse(sizes(launch.block) + " threads a block are too many; the limit is 1024, and 64 in z");
    }
    if (kernel.shared_bytes > 48 << 10) {
        refuse(std::to_string(kernel.shared_bytes) + " bytes of __shared__ variables are too many: beyond 49152 nvcc "
                                                     "wants dynamic shared memory");
    }
    const auto most = static_cast<size_t>(options().shared_kib) << 10;
    if (launch.smem_bytes + kernel.shared_bytes > most) {
        refuse(std::to_string(launch.smem_bytes + kernel.shared_bytes) +
               " bytes of shared memory a block are too many: "
               "the limit is " +
               std::to_string(most) + " (FLASH_SIMT_SHARED_KIB=" + std::to_string(options().shared_kib) + ")");
    }
}

/// The order in which blocks are taken follows the schedule too.
class BlockOrder {
  public:
    explicit BlockOrder(uint64_t count) : count_(count), schedule_(options().schedule) {}

    uint64_t count() const { return count_; }
    uint64_t operator[](uint64_t turn) const {
        switch (schedule_.kind) {
        case Schedule::reverse:
            return count_ - 1 - turn;
        case Schedule::shuffle: // a step that shares no factor with the count visits every block once
            return (schedule_.number + turn % count_ * step()) % count_;
        default:
            return turn;
        }
    }

  private:
    uint64_t step() const {
        uint64_t step = (schedule_.number % count_) | 1;
        while (std::gcd(step, count_) != 1) {
            ++step;
        }
        return step;
    }
    uint64_t count_;
    Schedule schedule_;
};

} // namespace

void run(const Launch& launch) {
    const Kernel& kernel = kernel_at(launch.kernel);
    check(launch, kernel);

    const Options& chosen = options();
    if (chosen.detect || chosen.count) {
        require_instrumented();
    }

    const BlockOrder order(volume(launch.grid));
    std::mutex mutex;
    uint64_t next = 0;               // turn that nobody has taken
    uint64_t faulty = order.count(); // the earliest turn that went wrong: the one a run on one core would report
    std::optional<Fault> fault;
    std::vector<Tally*> tallies;
    const auto work = [&](Block& block) {
        const bool watched = block.watcher().begin_launch(chosen);
        if (chosen.count) {
            const std::lock_guard lock(mutex);
            tallies.push_back(&block.watcher().tally());
        }
        while (true) {
            uint64_t turn = 0;
            {
                const std::lock_guard lock(mutex);
                if (next >= faulty) {
                    return;
                }
                turn = next++;
            }
            if (auto found = block.run(launch, kernel, element(launch.grid, order[turn]), watched)) {
                const std::lock_guard lock(mutex);
                if (turn < faulty) {
                    faulty = turn;
                    fault = std::move(found);
                }
            }
        }
    };
    const TrapHandlers traps;
    run_on_workers(order.count(), work);
    if (fault) {
        throw completed(std::move(*fault));
    }
    if (chosen.count) {
        add_to_profile(kernel.name, launch, launch.smem_bytes + kernel.shared_bytes, tallies);
    }
}

void* dynamic_shared_memory() { return current_block().shared().dynamic(); }

} // namespace flash::simt

int flash::blocks_per_sm(size_t smem_bytes) {
    constexpr size_t own = 1 << 10; // the system keeps 1 KiB of each block's part, so the largest block leaves that
    return static_cast<int>(((static_cast<size_t>(simt::options().shared_kib) << 10) + own) / (smem_bytes + own));
}
