#include "common/simt/machine/fiber.hpp"

#include <sys/mman.h>

#include <atomic>
#include <fstream>
#include <new>

namespace flash::simt {

namespace context = boost::context::detail;

namespace {

/// How many more mappings stacks may take: half of what the system allows a process.
std::atomic<long>& mappings_left() {
    static std::atomic<long> left = [] {
        long most = 65530; // Linux's default
        std::ifstream("/proc/sys/vm/max_map_count") >> most;
        return most / 2;
    }();
    return left;
}

} // namespace

void Stacks::reserve(unsigned count) {
    constexpr long each = 2 * 32; // every stack and every guard is a mapping
    while (warps_.size() * 32 < count) {
        warps_.reserve(warps_.size() + 1);
        void* const memory =
            mmap(nullptr, of_warp, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED) {
            throw std::bad_alloc();
        }
        auto* const begin = static_cast<char*>(memory);
        bool made = true;
        if (mappings_left().fetch_sub(each) >= each) {
            for (size_t lane = 0; lane < 32; ++lane) {
                char* const stack = begin + lane * (guard + bytes) + guard;
                made = made && mprotect(stack, bytes, PROT_READ | PROT_WRITE) == 0;
            }
        } else {
            mappings_left() += each;
            made = mprotect(begin + guard, of_warp - guard, PROT_READ | PROT_WRITE) == 0;
            madvise(begin, of_warp, MADV_NOHUGEPAGE); // a thread needs a page or two
        }
        if (!made) {
            munmap(begin, of_warp);
            throw std::bad_alloc();
        }
        warps_.push_back(begin);
    }
}

Stacks::~Stacks() {
    for (char* const begin : warps_) {
        munmap(begin, of_warp);
    }
}

void Fiber::start(void* stack_top, size_t stack_bytes, void (*function)(void*), void* argument) {
    function_ = function;
    argument_ = argument;
    context_ = context::make_fcontext(stack_top, stack_bytes, &Fiber::enter);
}

void Fiber::enter(context::transfer_t transfer) {
    const Switch taken = *static_cast<const Switch*>(transfer.data);
    taken.from->context_ = transfer.fctx;
    taken.to->function_(taken.to->argument_);
}

} // namespace flash::simt
