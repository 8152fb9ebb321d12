#include "common/simt/machine/workers.hpp"

#include <sched.h>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <exception>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/attention.hpp"

namespace flash::simt {
namespace {

int cores() {
    cpu_set_t allowed;
    return sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
}

class Pool {
  public:
    ~Pool() {
        {
            const std::lock_guard lock(mutex_);
            closing_ = true;
        }
        start_.notify_all();
        for (std::thread& thread : threads_) {
            thread.join();
        }
    }

    /// Returns on how many workers there was memory for `threads` fibers; on those it called `work`.
    unsigned run(unsigned workers, unsigned threads, const std::function<void(Block&)>& work) {
        std::unique_lock lock(mutex_);
        try {
            while (threads_.size() < workers) {
                threads_.emplace_back([this, rank = static_cast<unsigned>(threads_.size())] { serve(rank); });
            }
        } catch (const std::exception&) { // no memory, or too many threads for the system
            workers = static_cast<unsigned>(threads_.size());
        }
        work_ = &work;
        fibers_ = threads;
        wanted_ = workers;
        busy_ = workers;
        able_ = 0;
        thrown_ = nullptr;
        ++round_;
        start_.notify_all();
        end_.wait(lock, [this] { return busy_ == 0; });
        if (thrown_) {
            std::rethrow_exception(thrown_);
        }
        return able_;
    }

  private:
    void serve(unsigned rank) {
        std::optional<Block> block; // here, because it belongs to this OS thread
        uint64_t done = 0;
        std::unique_lock lock(mutex_);
        while (true) {
            start_.wait(lock, [&] { return closing_ || (round_ != done && busy_ > 0); });
            if (closing_) {
                return;
            }
            done = round_;
            if (rank < wanted_) {
                lock.unlock();
                const bool able = prepare(block);
                std::exception_ptr thrown;
                try {
                    if (able) {
                        (*work_)(*block);
                    }
                } catch (...) {
                    thrown = std::current_exception();
                }
                lock.lock();
                able_ += able ? 1 : 0;
                thrown_ = thrown_ ? thrown_ : thrown;
                if (--busy_ == 0) {
                    end_.notify_one();
                }
            }
        }
    }

    bool prepare(std::optional<Block>& block) {
        try {
            if (!block) {
                block.emplace();
            }
            block->reserve(fibers_);
            return true;
        } catch (const std::bad_alloc&) {
            return false;
        }
    }

    std::mutex mutex_;
    std::condition_variable start_, end_;
    std::vector<std::thread> threads_;
    const std::function<void(Block&)>* work_ = nullptr;
    unsigned wanted_ = 0;
    unsigned busy_ = 0;
    unsigned fibers_ = 0;
    unsigned able_ = 0;
    std::exception_ptr thrown_; // the first
    uint64_t round_ = 0;
    bool closing_ = false;
};

} // namespace

void run_on_workers(uint64_t blocks, unsigned threads, const std::function<void(Block&)>& work) {
    static Pool pool;
    static std::mutex one_launch; // host threads may launch at the same time; their kernels take turns
    static bool said = false;
    const std::lock_guard lock(one_launch);
    const int chosen = options().workers > 0 ? options().workers : cores();
    const uint64_t most = options().detect ? 1 : std::min<uint64_t>(blocks, static_cast<uint64_t>(chosen));
    const auto workers = static_cast<unsigned>(most);
    const unsigned able = pool.run(workers, threads, work);
    if (able == 0) {
        throw Error("not enough memory to execute a block of " + std::to_string(threads) + " threads");
    }
    if (able < workers && !said) {
        said = true;
        std::fprintf(stderr, "simt: memory for %u of %u workers; going on with those\n", able, workers);
    }
}

} // namespace flash::simt
