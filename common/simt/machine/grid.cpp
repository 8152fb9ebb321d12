#include "common/simt/machine/grid.hpp"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/simt/machine/block.hpp"
#include "common/simt/machine/device_heap.hpp"
#include "common/simt/machine/observer_factory.hpp"
#include "common/simt/machine/printing.hpp"
#include "common/simt/machine/run_log.hpp"
#include "common/simt/machine/stream_order.hpp"
#include "common/simt/machine/symbols.hpp"
#include "common/simt/machine/traps.hpp"
#include "common/simt/machine/watchdog.hpp"
#include "common/simt/machine/workers.hpp"
#include "common/simt/machine/workforce.hpp"

namespace flash::simt {
namespace {

std::string sizes(dim3 size) {
    return std::to_string(size.x) + " x " + std::to_string(size.y) + " x " + std::to_string(size.z);
}

// Host threads may launch at the same time; kernels take turns. fork() takes its turn, too: in the
// child a launch of another host thread would never come to its end.
std::mutex turn_of_launch;
[[maybe_unused]] const int turn_of_fork =
    pthread_atfork([] { turn_of_launch.lock(); }, [] { turn_of_launch.unlock(); },
                   [] { turn_of_launch.unlock(); });

/// What cudaFuncSetAttribute has said of kernels.
std::map<const Kernel*, size_t>& dynamic_shared_limits() {
    static std::map<const Kernel*, size_t> of_kernel;
    return of_kernel;
}
std::mutex limits_mutex;

/// The limits of compute capability 8.0, except for shared memory, which can be chosen.
void check(const Launch& launch, const Kernel& kernel) {
    const auto refuse = [&](const std::string& reason) {
        Fault fault(FaultKind::launch, "cannot launch " + kernel.name + "\nat " +
                                           launch.location.file + ":" +
                                           std::to_string(launch.location.line) + ": " + reason);
        fault.kernel = kernel.name;
        fault.where.line = {launch.location.file, launch.location.line};
        run_log().add_last(fault);
        throw fault;
    };
    if (kernel.mangled.find("4_FUN") != std::string::npos) { // as a pointer calls a lambda
        refuse("it is a lambda expression of the host; only __global__ functions are launched (a "
               "GPU says: invalid device function)");
    }
    if (volume(launch.grid) == 0 || volume(launch.block) == 0) {
        refuse("a grid of " + sizes(launch.grid) + " blocks of " + sizes(launch.block) +
               " threads is empty");
    }
    if (launch.grid.x > 2147483647 || launch.grid.y > 65535 || launch.grid.z > 65535) {
        refuse("a grid of " + sizes(launch.grid) +
               " blocks is too large; the limit is 2147483647 in x and 65535 in y "
               "and z");
    }
    if (volume(launch.block) > 1024 || launch.block.z > 64) {
        refuse(sizes(launch.block) +
               " threads per block are too many; the limit is 1024, and 64 in z");
    }
    if (kernel.shared_bytes > 48 << 10) {
        refuse(std::to_string(kernel.shared_bytes) +
               " bytes of __shared__ variables are too many: beyond 49152 nvcc "
               "wants dynamic shared memory");
    }
    const size_t most = shared_memory_limit(launch.for_hopper);
    if (launch.smem_bytes + kernel.shared_bytes > most) {
        refuse(std::to_string(launch.smem_bytes + kernel.shared_bytes) +
               " bytes of shared memory per block are too many: "
               "the limit is " +
               std::to_string(most) + " (FLASH_SIMT_SHARED_KIB=" + std::to_string(most >> 10) +
               ")");
    }
    const size_t allowed = dynamic_shared_limit(kernel);
    if (!launch.raises_limit && launch.smem_bytes > allowed) {
        refuse(std::to_string(launch.smem_bytes) +
               " bytes of dynamic shared memory are more than the " + std::to_string(allowed) +
               " that this kernel may have (a GPU says: invalid argument); call "
               "cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes) "
               "before");
    }
}

/// The number of the block that comes at a turn: the schedule says so, too.
uint64_t block_at(uint64_t turn, uint64_t count) {
    const Schedule& schedule = options().schedule;
    if (schedule.kind == Schedule::reverse) {
        return count - 1 - turn;
    }
    if (schedule.kind != Schedule::shuffle) {
        return turn;
    }
    // one that shares no factor with the count visits every block once
    uint64_t step = (schedule.number % count) | 1;
    while (std::gcd(step, count) != 1) {
        ++step;
    }
    return (schedule.number + turn % count * step) % count;
}

/// The blocks of a launch that run: all, or as many as options() say. Half of a sample are the
/// first ones, because neighbours race, and the others are spread over the rest, up to the last.
class Sample {
  public:
    explicit Sample(uint64_t blocks)
        : blocks_(blocks),
          size_(options().sample == 0 ? blocks : std::min<uint64_t>(blocks, options().sample)) {}

    uint64_t size() const { return size_; }
    bool is_partial() const { return size_ < blocks_; }

    uint64_t block(uint64_t number) const {
        if (!is_partial() || number < side_by_side()) {
            return number;
        }
        const uint64_t spread = size_ - side_by_side(), rest = blocks_ - side_by_side();
        const uint64_t place = number - side_by_side() + 1;
        return side_by_side() + place * (rest / spread) + place * (rest % spread) / spread - 1;
    }

    std::string text() const {
        const uint64_t spread = size_ - side_by_side();
        return std::to_string(size_) + " of its " + std::to_string(blocks_) + " blocks run, 0 to " +
               std::to_string(side_by_side() - 1) +
               (spread == 0 ? "" : ", and " + std::to_string(spread) + " more up to the last");
    }

  private:
    uint64_t side_by_side() const { return (size_ + 1) / 2; }

    uint64_t blocks_, size_;
};

/// Sets options().detect for this launch.
class DetectorOn {
  public:
    explicit DetectorOn(bool on) : before_(std::exchange(options().detect, on)) {}
    ~DetectorOn() { options().detect = before_; }
    DetectorOn(const DetectorOn&) = delete;
    DetectorOn& operator=(const DetectorOn&) = delete;

  private:
    bool before_;
};

/// Says from time to time how far a launch of many blocks has come.
class GridProgress {
  public:
    GridProgress(const Kernel& kernel, uint64_t blocks) : kernel_(kernel), blocks_(blocks) {}

    /// So many blocks have begun.
    void tell(uint64_t begun) {
        const std::chrono::duration<double> time = Clock::now() - begin_;
        if (begun % look_every == 0 && time.count() >= next_) {
            const bool is_first = !std::exchange(told_, true);
            std::fprintf(stderr, "%s: %llu of %llu blocks in %.0f seconds%s\n",
                         kernel_.name.c_str(), static_cast<unsigned long long>(begun),
                         static_cast<unsigned long long>(blocks_), time.count(),
                         is_first ? "; --sample 64 (FLASH_SIMT_SAMPLE=64) runs but 64" : "");
            next_ = 2 * time.count();
        }
    }

  private:
    using Clock = std::chrono::steady_clock;
    static constexpr uint64_t look_every = 16;

    const Kernel& kernel_;
    uint64_t blocks_;
    Clock::time_point begin_ = Clock::now();
    bool told_ = false;
    double next_ = 20; // seconds
};

constexpr unsigned most_workers = 1024;

/// How the blocks of a launch ended.
struct Outcome {
    uint64_t faulty;                               // turn of the block with the fault
    std::optional<Fault> fault;                    // that ended the launch
    std::vector<std::pair<uint64_t, Fault>> found; // by turn: what did not
};

/// A launch by a kernel, with its own copy of the parameters: in CUDA bytes are all they may be. It
/// is done when the grid has ended that has launched it, which is one of the orders that a GPU may
/// choose.
class LaunchByKernel {
  public:
    explicit LaunchByKernel(const Launch& launch)
        : launch_(launch), parameters_(launch.context_bytes / sizeof(Line) + 1) {
        std::memcpy(parameters_.data(), launch.context, launch.context_bytes);
    }
    void run() {
        launch_.context = parameters_.data();
        simt::run(launch_);
    }

  private:
    struct alignas(64) Line {
        char bytes[64];
    };
    Launch launch_;
    std::vector<Line> parameters_;
};

std::mutex launches_mutex;                       // of several blocks
std::vector<LaunchByKernel> launches_by_kernels; // of the grid that runs

/// Watched blocks run one after the other, so that the first fault is always the same, and because
/// what one has done to global memory may race with what another one does.
Outcome run_blocks(const Launch& launch, const Kernel& kernel, const Sample& sample) {
    const Options& chosen = options();
    const bool observed = chosen.detect || chosen.count;
    if (observed) {
        observer_factory->begin_launch();
    }
    const uint64_t blocks = sample.size();
    std::mutex mutex;
    uint64_t next = 0; // turn that nobody has taken
    // the earliest turn that went wrong: the one a run on one core would report
    Outcome outcome{blocks, std::nullopt, {}};
    bool faulty_waits = false; // for another block
    GridProgress progress(kernel, blocks);
    const auto work = [&](Block& block) {
        const Watchdog::Shift shift(block);
        block.observe(observed ? observer_factory->observers(block) : Observers());
        while (workforce().await_place()) {
            uint64_t turn = 0;
            {
                const std::lock_guard lock(mutex);
                if (next >= outcome.faulty) {
                    return;
                }
                turn = next++;
                progress.tell(turn);
            }
            workforce().begin_block();
            const uint64_t number = sample.block(block_at(turn, blocks));
            auto stopped = block.run(launch, kernel, element(launch.grid, number));
            workforce().end_block();
            if (std::vector<Fault> passed = block.take_found(); !passed.empty()) {
                const std::lock_guard lock(mutex);
                for (Fault& one : passed) {
                    outcome.found.emplace_back(turn, std::move(one));
                }
            }
            if (stopped && chosen.keep_going && stopped->kind != FaultKind::timeout) {
                const std::lock_guard lock(mutex);
                outcome.found.emplace_back(turn, *std::move(stopped));
            } else if (stopped) {
                workforce().stop();
                const std::lock_guard lock(mutex);
                // A block that waits for one that went wrong is not what is to be reported.
                const bool waits = block.stopped_for_blocks();
                if (!outcome.fault ||
                    (waits == faulty_waits ? turn < outcome.faulty : faulty_waits)) {
                    outcome.faulty = turn;
                    faulty_waits = waits;
                    outcome.fault = std::move(stopped);
                }
            }
        }
    };
    printing().begin_launch();
    const TrapHandlers traps;
    const auto more = [&] {
        const std::lock_guard lock(mutex);
        return next < outcome.faulty;
    };
    const auto threads = static_cast<unsigned>(volume(launch.block));
    run_on_workers({.count = blocks,
                    .threads = threads,
                    .resident = resident_blocks(launch, kernel),
                    .more = more,
                    .workers = chosen.detect ? 1 : most_workers},
                   work);
    printing().end_launch(outcome.faulty);
    std::erase_if(outcome.found, [&](const auto& one) { return one.first > outcome.faulty; });
    std::ranges::stable_sort(outcome.found, {}, &std::pair<uint64_t, Fault>::first);
    return outcome;
}

} // namespace

int resident_blocks(bool for_hopper, int threads, size_t smem_bytes) {
    // the system keeps 1 KiB of each block's part, so the largest block leaves that
    constexpr size_t own = 1 << 10;
    const size_t shared = shared_memory_limit(for_hopper) + own;
    return sms * std::min({blocks_per_sm, threads_per_sm / threads,
                           static_cast<int>(shared / (smem_bytes + own))});
}

uint64_t resident_blocks(const Launch& launch, const Kernel& kernel) {
    return static_cast<uint64_t>(resident_blocks(launch.for_hopper,
                                                 static_cast<int>(volume(launch.block)),
                                                 launch.smem_bytes + kernel.shared_bytes));
}

size_t dynamic_shared_limit(const Kernel& kernel) {
    constexpr size_t without_asking = 48 << 10;
    const std::lock_guard lock(limits_mutex);
    const auto said = dynamic_shared_limits().find(&kernel);
    return said != dynamic_shared_limits().end()
               ? said->second
               : without_asking - std::min(without_asking, kernel.shared_bytes);
}

void set_dynamic_shared_limit(const Kernel& kernel, size_t bytes) {
    const std::lock_guard lock(limits_mutex);
    dynamic_shared_limits()[&kernel] = bytes;
}

size_t shared_memory_limit(bool for_hopper) {
    return static_cast<size_t>(for_hopper ? 227 : options().shared_kib) << 10;
}

std::unique_lock<std::mutex> take_turn() {
    const bool in_kernel = running_block != nullptr; // whose launch has it
    return in_kernel ? std::unique_lock<std::mutex>() : std::unique_lock(turn_of_launch);
}

void run(const Launch& launch) {
    if (running_block != nullptr) {
        const RuntimeCode runtime;
        const std::lock_guard lock(launches_mutex);
        launches_by_kernels.emplace_back(launch);
        return;
    }
    std::unique_lock turn(turn_of_launch);
    launches_by_kernels.clear();
    const Kernel& kernel = kernel_at(launch.kernel);
    const RunLog::Watched watched = run_log().begin_launch(kernel.name);
    const DetectorOn detector(watched == RunLog::Watched::yes);
    check(launch, kernel);

    const Options& chosen = options();
    if (!chosen.detect) {
        forget_writes();
    }
    recycle_heap();
    const bool observed = chosen.detect || chosen.count;
    if (observed) {
        require_instrumented();
    }

    watchdog(); // it has a thread of its own, which must come before the workers take all memory
    const Sample sample(volume(launch.grid));
    if (sample.is_partial() && run_log().add_sample(kernel.name)) {
        std::fprintf(stderr, "%s: %s\n", kernel.name.c_str(), sample.text().c_str());
    }
    if (sample.is_partial() && watched == RunLog::Watched::no_more && !chosen.count) {
        return; // its result would be none either
    }
    begin_stream_work(kernel.name + ", launched", LocationId::of(launch.location));
    Outcome outcome = run_blocks(launch, kernel, sample);
    if (sample.is_partial()) {
        forget_writes(); // what the others would have written
    }
    run_log().add(std::move(outcome.found));
    if (outcome.fault) {
        const Fault last = completed(*std::move(outcome.fault));
        run_log().add_last(last);
        throw last;
    }
    if (observed) {
        observer_factory->end_launch(launch, kernel);
    }
    std::vector<LaunchByKernel> more = std::exchange(launches_by_kernels, {});
    turn.unlock();
    for (LaunchByKernel& one : more) {
        one.run();
    }
}

constinit ObserverFactory* observer_factory = nullptr;

void require_instrumented() {
    if (!is_instrumented()) {
        throw Error("counting and detecting need a kernel that was compiled with "
                    "-fsanitize=thread, and this one was not\n"
                    "docs/simt.md has the commands; cmake --preset simt does it by itself");
    }
}

} // namespace flash::simt
