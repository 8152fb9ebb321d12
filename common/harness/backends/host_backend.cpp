#include <unistd.h>
#ifdef _OPENMP
#include <omp.h>
#endif

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <new>
#include <thread>
#include <vector>

#include "common/attention.hpp"
#include "common/harness/backends/backend.hpp"
#include "common/harness/backends/host_memory.hpp"
#include "common/harness/backends/peak_memory.hpp"
#include "common/harness/files/text.hpp"

namespace flash {
namespace {

constexpr std::align_val_t alignment{256};

class HostMemory final : public Memory {
  public:
    explicit HostMemory(size_t bytes)
        : data_(static_cast<char*>(::operator new(bytes, alignment))), bytes_(bytes) {}
    ~HostMemory() override { ::operator delete(data_, alignment); }
    HostMemory(const HostMemory&) = delete;
    HostMemory& operator=(const HostMemory&) = delete;

    void* data() const override { return data_; }
    size_t bytes() const override { return bytes_; }
    void write(size_t offset, const void* source, size_t bytes) override {
        std::memcpy(data_ + offset, source, bytes);
    }
    void read(size_t offset, void* destination, size_t bytes) const override {
        std::memcpy(destination, data_ + offset, bytes);
    }

  private:
    char* data_;
    size_t bytes_;
};

/// Threads that an OpenMP loop of a rung will use: honours OMP_NUM_THREADS and the process's CPU
/// mask.
int thread_count() {
#ifdef _OPENMP
    return omp_get_max_threads();
#else
    return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
#endif
}

std::string processor_name() {
    std::ifstream file("/proc/cpuinfo");
    std::string line;
    while (std::getline(file, line)) {
        if (line.starts_with("model name")) { // "model name\t: AMD EPYC ..."
            const size_t start = line.find_first_not_of(" \t:", std::strlen("model name"));
            return start == std::string::npos ? "unnamed processor" : line.substr(start);
        }
    }
    return "unnamed processor";
}

size_t cache_bytes(int name) {
    const long bytes = sysconf(name);
    return bytes > 0 ? static_cast<size_t>(bytes) : 0;
}

/// More than the shared last-level cache holds, and than all the private ones hold together.
size_t flush_bytes() {
    const size_t last_level =
        std::max(cache_bytes(_SC_LEVEL3_CACHE_SIZE), cache_bytes(_SC_LEVEL4_CACHE_SIZE));
    const size_t all_private =
        cache_bytes(_SC_LEVEL2_CACHE_SIZE) * static_cast<size_t>(thread_count());
    const size_t largest = std::max(last_level, all_private);
    return std::clamp<size_t>(largest + largest / 2, size_t{64} << 20, size_t{1} << 30);
}

class HostBackend final : public Backend {
  public:
    std::string name() const override { return "cpu"; }

    std::string description() const override {
        const int threads = thread_count();
        return processor_name() + ", " + std::to_string(threads) +
               (threads == 1 ? " thread" : " threads");
    }

    size_t available_bytes() const override { return available_host_memory(); }

    std::unique_ptr<Memory> allocate(size_t bytes) override {
        // The kernel promises more than it has: without this test, a far too large request is
        // granted here, and the process is killed while it fills the memory.
        const size_t available = available_bytes();
        if (bytes <= available) {
            try {
                return std::make_unique<HostMemory>(bytes);
            } catch (const std::bad_alloc&) {
            }
        }
        throw Error("not enough memory: " + format_bytes(static_cast<double>(bytes)) + " wanted, " +
                    format_bytes(static_cast<double>(available)) +
                    " available; try a smaller problem");
    }

    void flush_caches() override {
        if (flush_buffer_.empty()) {
            flush_buffer_.resize(flush_bytes() / sizeof(int));
        }
        // By all the threads, because the private caches of each core hold a part of the tensors.
        const auto size = static_cast<std::ptrdiff_t>(flush_buffer_.size());
        const int* const buffer = flush_buffer_.data();
        int sum = 0;
#ifdef _OPENMP
#pragma omp parallel for schedule(static) reduction(+ : sum)
#endif
        for (std::ptrdiff_t i = 0; i < size; ++i) {
            sum += buffer[i];
        }
        flush_sum_ = sum;
    }

    std::optional<size_t> peak_memory_of(const std::function<void()>& work) override {
        return flash::peak_memory_of(work);
    }

    double time(const std::function<void()>& work) override {
        const auto start = std::chrono::steady_clock::now();
        work();
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    }

  private:
    std::vector<int> flush_buffer_;
    volatile int flush_sum_ = 0; // so that the reading is not optimised away
};

} // namespace

Backend& host_backend() {
    static HostBackend backend;
    return backend;
}

} // namespace flash
