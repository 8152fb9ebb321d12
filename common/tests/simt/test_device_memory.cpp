// Buffers in global memory when the system refuses, and on a system whose pages are 64 KiB.
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <catch2/matchers/catch_matchers_string.hpp>

#include "common/simt/machine/device_memory.hpp"
#include "common/tests/simt/support.hpp"

using namespace simt_test;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr size_t large_page = 64 << 10;
bool pages_are_large = false;

bool is_of_pages(const void* address) {
    return reinterpret_cast<size_t>(address) % large_page == 0;
}

} // namespace

// The linker puts these in place of the system's (--wrap). With large pages they refuse what such a
// system refuses.
extern "C" {
long __real_sysconf(int name);
int __real_mprotect(void* address, size_t bytes, int protection);
void* __real_mmap(void* address, size_t bytes, int protection, int flags, int file, off_t offset);

long __wrap_sysconf(int name) {
    return pages_are_large && name == _SC_PAGESIZE ? static_cast<long>(large_page)
                                                   : __real_sysconf(name);
}
int __wrap_mprotect(void* address, size_t bytes, int protection) {
    return pages_are_large && !is_of_pages(address) ? -1
                                                    : __real_mprotect(address, bytes, protection);
}
void* __wrap_mmap(void* address, size_t bytes, int protection, int flags, int file, off_t offset) {
    if (pages_are_large) {
        bytes = (bytes + large_page - 1) / large_page * large_page;
        if (!is_of_pages(address)) {
            return MAP_FAILED;
        }
    }
    return __real_mmap(address, bytes, protection, flags, file, offset);
}
}

TEST_CASE("memory that the system refuses is an error that says so") {
    rlimit before{};
    getrlimit(RLIMIT_DATA, &before);
    const rlimit little{rlim_t{1} << 20, before.rlim_max};
    std::string message;
    simt::DeviceMemory{4}; // what is set up once, is
    setrlimit(RLIMIT_DATA, &little);
    try {
        simt::DeviceMemory{size_t{64} << 20};
    } catch (const Error& error) {
        message = error.what();
    }
    setrlimit(RLIMIT_DATA, &before);
    CHECK_THAT(message,
               ContainsSubstring(
                   "not enough memory: a buffer of 67108864 bytes is more than the system gives"));
    CHECK_NOTHROW(simt::DeviceMemory{size_t{64} << 20});
}

TEST_CASE("buffers begin and end where pages of 64 KiB allow it") {
    pages_are_large = true;
    for (const size_t bytes : {size_t{4}, size_t{5000}, large_page, 3 * large_page + 4}) {
        CAPTURE(bytes);
        const simt::DeviceMemory buffer(bytes);
        auto* const data = reinterpret_cast<unsigned char*>(buffer.data());
        CHECK(data[0] == 0xff);
        CHECK(data[bytes - 1] == 0xff);
    }
    pages_are_large = false;
}
