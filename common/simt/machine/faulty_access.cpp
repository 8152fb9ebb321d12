#include "common/simt/machine/faulty_access.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <utility>

namespace flash::simt {
namespace {

/// The system copies bytes into a pipe and out of it, and says when there is no memory to copy from
/// or to, where an access of our own would end the program.
class Probe {
  public:
    Probe() : made_(pipe(ends_) == 0) {}

    bool read(char* copy, const char* address, size_t bytes) {
        return put(address, bytes) && take(copy, bytes);
    }
    bool write(char* address, const char* values, size_t bytes) {
        char rest[16];
        return put(values, bytes) && (take(address, bytes) || (take(rest, bytes), false));
    }

  private:
    bool put(const char* from, size_t bytes) {
        return made_ && all(bytes, [&] { return ::write(ends_[1], from, bytes); });
    }
    bool take(char* to, size_t bytes) {
        return all(bytes, [&] { return ::read(ends_[0], to, bytes); });
    }
    /// Again if a signal came between.
    template <class Copy> static bool all(size_t bytes, Copy copy) {
        ssize_t copied = 0;
        do {
            copied = copy();
        } while (copied < 0 && errno == EINTR);
        return copied == static_cast<ssize_t>(bytes);
    }

    int ends_[2];
    bool made_;
};

std::mutex probe_mutex;
Probe& probe() {
    static Probe only;
    return only;
}

/// The pages around an access become memory, or addresses only.
bool set_pages(char* address, unsigned bytes, bool memory) {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t before = reinterpret_cast<size_t>(address) % page;
    char* const begin = address - before;
    const size_t size = (before + bytes + page - 1) / page * page;
    if (!memory) {
        madvise(begin, size, MADV_DONTNEED);
    }
    return mprotect(begin, size, memory ? PROT_READ | PROT_WRITE : PROT_NONE) == 0;
}

} // namespace

bool FaultyAccesses::Suspicion::has_changed() const {
    return std::memcmp(before.data(), address, bytes) != 0;
}

void FaultyAccesses::Suspicion::undo() const { std::memcpy(address, before.data(), bytes); }

bool FaultyAccesses::pass_over(char* address, unsigned bytes, LocationId origin) {
    const std::lock_guard lock(probe_mutex);
    origin_ = origin;
    const unsigned most = std::min(bytes, 16u);
    Passed access{address, most, {}, false};
    constexpr char zeros[16] = {};
    if (!probe().read(access.before.data(), address, most)) {
        // Guard pages are mappings already: only those can become memory.
        access.opened = set_pages(address, most, true);
        if (!access.opened) {
            return false;
        }
    } else if (!probe().write(address, zeros, most)) {
        return false;
    }
    passed_.push_back(access);
    under_way_ = true;
    return true;
}

void FaultyAccesses::suspect(Fault fault, char* address, unsigned bytes, LocationId origin) {
    origin_ = origin;
    Suspicion& made =
        suspicions_.emplace_back(Suspicion{std::move(fault), address, std::min(bytes, 16u), {}});
    std::memcpy(made.before.data(), address, made.bytes);
    under_way_ = true;
}

std::vector<FaultyAccesses::Suspicion> FaultyAccesses::end() {
    for (auto access = passed_.rbegin(); access != passed_.rend(); ++access) {
        if (access->opened) {
            set_pages(access->address, access->bytes, false);
        } else {
            std::memcpy(access->address, access->before.data(), access->bytes);
        }
    }
    passed_.clear();
    under_way_ = false;
    return std::exchange(suspicions_, {});
}

} // namespace flash::simt
