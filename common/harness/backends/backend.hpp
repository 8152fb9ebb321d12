// Where a rung runs: the memory that its pointers point to, and the clock that times it.
// `host_backend()` is the CPU's own; CUDA and SIMT bring theirs.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/attention.hpp"

namespace flash {

/// Memory that the rung may read and write. Freed on destruction.
class Memory {
  public:
    virtual ~Memory() = default;
    virtual void* data() const = 0; // as the rung sees it; aligned to 256 bytes
    virtual size_t bytes() const = 0;
    virtual void write(size_t offset, const void* source, size_t bytes) = 0;     // host -> memory
    virtual void read(size_t offset, void* destination, size_t bytes) const = 0; // memory -> host

    /// Says that kernels may touch only `bytes` from `offset` on. A backend that watches accesses
    /// reports the others. `name` is what it calls the buffer in its messages.
    virtual void declare(size_t offset, size_t bytes, const std::string& name) {
        static_cast<void>(offset);
        static_cast<void>(bytes);
        static_cast<void>(name);
    }
};

/// An option of the command line that only this backend has.
struct BackendFlag {
    std::string name; // "--profile"
    std::string help;
    std::function<void()> use; // called when the option is given
};

class Backend {
  public:
    virtual ~Backend() = default;
    virtual std::string name() const = 0; // "cpu", "cuda" or "simt"
    // what it runs on, for people: processor and threads, or GPU
    virtual std::string description() const = 0;

    /// Throws Error, with what would help, when the machine cannot run rungs of this backend (no
    /// GPU, too old, ...).
    virtual void require_device() const {}

    /// Whether `allocate` takes the host's memory, or a device's own.
    virtual bool uses_host_memory() const { return true; }

    /// Bytes that `allocate` could still hand out; used to refuse a problem before it is tried.
    virtual size_t available_bytes() const = 0;

    /// Throws Error when there is not that much memory.
    virtual std::unique_ptr<Memory> allocate(size_t bytes) = 0;

    /// Waits for the work to end; throws Error when it failed.
    virtual void synchronize() {}

    /// Empties the caches that a repeated run would otherwise find warm.
    virtual void flush_caches() = 0;

    /// What its programs' command line offers beyond the options that all rungs have.
    virtual std::vector<BackendFlag> flags() { return {}; }

    /// Called once the rung has run for the first time; ends what the flags began. `program` is its
    /// name.
    /// Returns lines for the report. Throws Error when it cannot write what was asked for.
    virtual std::string end_first_run(const std::string& program) {
        static_cast<void>(program);
        return {};
    }

    /// The most memory that was in use at once during `work`, in bytes beyond what was in use
    /// before it; nothing where it cannot be measured. `work` is called in any case. Call `work`
    /// once before, so that threads and libraries have been set up and are not counted.
    virtual std::optional<size_t> peak_memory_of(const std::function<void()>& work) {
        work();
        return std::nullopt;
    }

    /// Seconds that `work` takes, measured by the backend's own clock (CUDA events on a GPU), its
    /// end included.
    virtual double time(const std::function<void()>& work) = 0;
};

Backend& host_backend();

} // namespace flash
