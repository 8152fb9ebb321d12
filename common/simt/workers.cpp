#include "common/simt/workers.hpp"

#include <sched.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

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

    void run(unsigned workers, const std::function<void(Block&)>& work) {
        std::unique_lock lock(mutex_);
        while (threads_.size() < workers) {
            threads_.emplace_back([this, rank = static_cast<unsigned>(threads_.size())] { serve(rank); });
        }
        work_ = &work;
        wanted_ = workers;
        busy_ = workers;
        ++round_;
        start_.notify_all();
        end_.wait(lock, [this] { return busy_ == 0; });
    }

  private:
    void serve(unsigned rank) {
        Block block; // here, because it belongs to this OS thread
        uint64_t done = 0;
        std::unique_lock lock(mutex_);
        while (true) {
            start_.wait(lock, [&] { return closing_ || (round_ != done && busy_ > 0); });
            if (closing_) {
                return;
            }
            done = round_;
            if (rank < wanted_) {
                const auto& work = *work_;
                lock.unlock();
                work(block);
                lock.lock();
                if (--busy_ == 0) {
                    end_.notify_one();
                }
            }
        }
    }

    std::mutex mutex_;
    std::condition_variable start_, end_;
    std::vector<std::thread> threads_;
    const std::function<void(Block&)>* work_ = nullptr;
    unsigned wanted_ = 0;
    unsigned busy_ = 0;
    uint64_t round_ = 0;
    bool closing_ = false;
};

} // namespace

void run_on_workers(uint64_t blocks, const std::function<void(Block&)>& work) {
    static Pool pool;
    static std::mutex one_launch; // host threads may launch at the same time; their kernels take turns
    const std::lock_guard lock(one_launch);
    const int chosen = options().workers > 0 ? options().workers : cores();
    const uint64_t workers = options().detect ? 1 : std::min<uint64_t>(blocks, static_cast<uint64_t>(chosen));
    pool.run(static_cast<unsigned>(workers), work);
}

} // namespace flash::simt
