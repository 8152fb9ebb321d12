#include "common/simt/fiber.hpp"

#include <sys/mman.h>

#include <new>
#include <utility>

namespace flash::simt {
namespace {

/// Boost asks for an allocator to free the stack when the function ends; ours never ends and the stack is not its own.
struct NoAllocator {
    void deallocate(boost::context::stack_context&) noexcept {}
};

} // namespace

Stack::Stack() {
    void* const memory =
        mmap(nullptr, guard + bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory, guard, PROT_NONE) != 0) {
        throw std::bad_alloc();
    }
    memory_ = static_cast<char*>(memory);
}

Stack::Stack(Stack&& other) noexcept : memory_(std::exchange(other.memory_, nullptr)) {}

Stack::~Stack() {
    if (memory_ != nullptr) {
        munmap(memory_, guard + bytes);
    }
}

void Fiber::start(const Stack& stack, std::function<void()> function) {
    boost::context::stack_context context;
    context.sp = stack.top();
    context.size = Stack::bytes;
    fiber_ = boost::context::fiber(std::allocator_arg, boost::context::preallocated(context.sp, context.size, context),
                                   NoAllocator(), [this, run = std::move(function)](boost::context::fiber&& caller) {
                                       caller_ = std::move(caller);
                                       run();
                                       return std::move(caller_); // not reached
                                   });
}

void Fiber::abandon() {
    // A new object in the place of the old one, whose destructor (the unwinding) does not run.
    ::new (static_cast<void*>(&fiber_)) boost::context::fiber();
    ::new (static_cast<void*>(&caller_)) boost::context::fiber();
}

} // namespace flash::simt
