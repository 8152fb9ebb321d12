// assert() and __trap() in a kernel.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

#include "common/simt/language/trap.hpp"
#include "common/simt/machine/block.hpp"
#include "common/simt/machine/host_misuse.hpp"

using namespace flash::simt;

void __trap(SourceLocation location) {
    const RuntimeCode runtime;
    Block& block = current_block();
    block.stop_thread({FaultKind::trap, "__trap() was called", block.here("calls it", location)});
}

/// What the C library's assert() calls. A kernel's is a fault of the thread; the program's own goes
/// to the library, after the verdict on its kernels.
extern "C" void __assert_fail(const char* condition, const char* file, unsigned line,
                              const char* function) noexcept {
    if (kernel_at_work) {
        const RuntimeCode runtime;
        Block& block = current_block();
        const SourceLocation location{file, static_cast<int>(line)};
        block.stop_thread({FaultKind::assertion, std::string("assertion failed: ") + condition,
                           block.here("asserts it", location)});
    }
    if (report_before_abort != nullptr) {
        report_before_abort();
    }
    using Function = void (*)(const char*, const char*, unsigned, const char*);
    const auto of_library = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "__assert_fail"));
    if (of_library != nullptr) {
        of_library(condition, file, line, function);
    }
    std::abort();
}
