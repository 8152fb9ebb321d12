#include "common/simt/fiber.hpp"

#include <sys/mman.h>

#include <new>
#include <utility>

namespace flash::simt {

namespace context = boost::context::detail;

Stack::Stack(size_t number) : shift_(number % 32 * 256) {
    void* const memory =
        mmap(nullptr, guard + bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory, guard, PROT_NONE) != 0) {
        throw std::bad_alloc();
    }
    memory_ = static_cast<char*>(memory);
}

Stack::Stack(Stack&& other) noexcept : memory_(std::exchange(other.memory_, nullptr)), shift_(other.shift_) {}

Stack::~Stack() {
    if (memory_ != nullptr) {
        munmap(memory_, guard + bytes);
    }
}

void Fiber::start(const Stack& stack, void (*function)(void*), void* argument) {
    function_ = function;
    argument_ = argument;
    context_ = context::make_fcontext(stack.top(), stack.size(), &Fiber::enter);
}

void Fiber::enter(context::transfer_t transfer) {
    const Switch taken = *static_cast<const Switch*>(transfer.data);
    taken.from->context_ = transfer.fctx;
    taken.to->function_(taken.to->argument_);
}

} // namespace flash::simt
