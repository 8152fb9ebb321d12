#include "common/simt/machine/workers.hpp"

#include <sched.h>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <exception>
#include <list>
#include <mutex>
#include <new>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>

#include "common/error.hpp"
#include "common/simt/machine/one_per_process.hpp"
#include "common/simt/machine/traps.hpp"
#include "common/simt/machine/workforce.hpp"

namespace flash::simt {
namespace {

int cores() {
    cpu_set_t allowed;
    return sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
}

/// An OS thread and its block, which it makes itself, because that belongs to it.
class Worker {
  public:
    using Work = std::function<void(std::optional<Block>&)>; // throws nothing

    void start(const Work& work) {
        {
            const std::lock_guard lock(mutex_);
            work_ = &work;
        }
        change_.notify_all();
    }

    void wait() {
        std::unique_lock lock(mutex_);
        change_.wait(lock, [this] { return work_ == nullptr; });
    }

  private:
    void serve(const std::stop_token& closing) {
        std::optional<Block> block;
        std::unique_lock lock(mutex_);
        while (change_.wait(lock, closing, [this] { return work_ != nullptr; })) {
            (*work_)(block); // whoever wants the lock waits for that
            work_ = nullptr;
            change_.notify_all();
        }
    }

    std::mutex mutex_;
    std::condition_variable_any change_;
    const Work* work_ = nullptr;
    // last: it uses the others
    std::jthread thread_{[this](const std::stop_token& closing) { serve(closing); }};
};

struct AtWork { // a worker
    AtWork() { workforce().join(); }
    ~AtWork() { workforce().leave(); }
    AtWork(const AtWork&) = delete;
    AtWork& operator=(const AtWork&) = delete;
};

} // namespace

void run_on_workers(const BlocksToRun& blocks, const std::function<void(Block&)>& work) {
    // host threads may launch at the same time; their kernels take turns
    static std::mutex one_launch;
    static bool said = false;
    const std::lock_guard lock(one_launch);
    std::list<Worker>& pool = one_per_process<std::list<Worker>>();
    const int chosen = options().workers > 0 ? options().workers : cores();
    const uint64_t most =
        std::min<uint64_t>({blocks.count, blocks.workers, static_cast<uint64_t>(chosen)});
    const auto workers = static_cast<unsigned>(most);

    std::mutex mutex;
    unsigned able = 0;         // have memory for their fibers
    unsigned unable = 0;       // have not
    std::exception_ptr thrown; // the first
    const Worker::Work serve = [&](std::optional<Block>& block) {
        const AtWork at_work;
        try {
            // or each takes a part of little memory, and nobody has enough
            const std::lock_guard one_by_one(mutex);
            if (!block) {
                make_trap_stack();
                block.emplace();
            }
            block->reserve(blocks.threads);
            ++able;
        } catch (const std::bad_alloc&) {
            const std::lock_guard one_by_one(mutex);
            ++unable;
            return;
        }
        try {
            work(*block);
        } catch (...) {
            const std::lock_guard first_wins(mutex);
            thrown = thrown ? thrown : std::current_exception();
        }
    };
    std::mutex starting;
    std::vector<Worker*> started;
    const auto start = [&] {
        const std::lock_guard one_by_one(starting);
        try {
            if (pool.size() == started.size()) {
                pool.emplace_back();
            }
        } catch (const std::exception&) {
            return false;
        }
        started.push_back(&*std::next(pool.begin(), static_cast<std::ptrdiff_t>(started.size())));
        started.back()->start(serve);
        return true;
    };
    try {
        while (pool.size() < workers) { // all before the first takes memory for a block
            pool.emplace_back();
        }
    } catch (const std::exception&) {
        // no memory, or too many threads for the system: go on with those that there are
    }
    const auto start_another = [&] {
        const std::unique_lock one_by_one(mutex);
        return unable == 0 && start();
    };
    workforce().begin({workers, blocks.resident, blocks.more, start_another});
    for (unsigned count = 0; count < workers; ++count) {
        if (!start()) {
            workforce().stay_away();
        }
    }
    const auto at = [&](size_t index) {
        const std::lock_guard one_by_one(starting);
        return index < started.size() ? started[index] : nullptr;
    };
    for (size_t index = 0; Worker* const worker = at(index); ++index) { // they may start more
        worker->wait();
    }

    if (thrown) {
        std::rethrow_exception(thrown);
    }
    if (able == 0) {
        throw Error("not enough memory to execute a block of " + std::to_string(blocks.threads) +
                    " threads");
    }
    if (able < workers && !said) {
        said = true;
        std::fprintf(stderr, "simt: memory for %u of %u workers; going on with those\n", able,
                     workers);
    }
}

} // namespace flash::simt
