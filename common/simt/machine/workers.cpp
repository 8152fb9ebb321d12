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

#include "common/attention.hpp"
#include "common/simt/machine/traps.hpp"

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
        make_trap_stack();
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

} // namespace

void run_on_workers(uint64_t blocks, unsigned threads, const std::function<void(Block&)>& work) {
    static std::list<Worker> pool;
    // host threads may launch at the same time; their kernels take turns
    static std::mutex one_launch;
    static bool said = false;
    const std::lock_guard lock(one_launch);
    const int chosen = options().workers > 0 ? options().workers : cores();
    const uint64_t most =
        options().detect ? 1 : std::min<uint64_t>(blocks, static_cast<uint64_t>(chosen));
    const auto workers = static_cast<unsigned>(most);

    std::mutex mutex;
    unsigned able = 0;         // have memory for their fibers
    std::exception_ptr thrown; // the first
    const Worker::Work serve = [&](std::optional<Block>& block) {
        try {
            // or each takes a part of little memory, and nobody has enough
            const std::lock_guard one_by_one(mutex);
            if (!block) {
                block.emplace();
            }
            block->reserve(threads);
            ++able;
        } catch (const std::bad_alloc&) {
            return;
        }
        try {
            work(*block);
        } catch (...) {
            const std::lock_guard first_wins(mutex);
            thrown = thrown ? thrown : std::current_exception();
        }
    };
    try {
        while (pool.size() < workers) {
            pool.emplace_back();
        }
    } catch (const std::exception&) {
        // no memory, or too many threads for the system: go on with those that there are
    }
    const auto end = std::next(pool.begin(),
                               static_cast<std::ptrdiff_t>(std::min<size_t>(workers, pool.size())));
    std::for_each(pool.begin(), end, [&](Worker& worker) { worker.start(serve); });
    std::for_each(pool.begin(), end, [](Worker& worker) { worker.wait(); });

    if (thrown) {
        std::rethrow_exception(thrown);
    }
    if (able == 0) {
        throw Error("not enough memory to execute a block of " + std::to_string(threads) +
                    " threads");
    }
    if (able < workers && !said) {
        said = true;
        std::fprintf(stderr, "simt: memory for %u of %u workers; going on with those\n", able,
                     workers);
    }
}

} // namespace flash::simt
