// A fiber: a function with a stack of its own that can stop in the middle and go on later.
// Every CUDA thread of a block is one, and all fibers of a block live on one OS thread.
#pragma once

#include <boost/context/detail/fcontext.hpp>

#include <cstddef>

namespace flash::simt {

/// Memory for one fiber, with addresses below it that fault when the stack overflows. Pages are used as they are
/// touched.
class Stack {
  public:
    static constexpr size_t bytes = 128 << 10;

    /// `number` spreads the stacks' tops over the sets of the cache: all of a warp's are in use at once.
    explicit Stack(size_t number);
    ~Stack();
    Stack(Stack&& other) noexcept;
    Stack(const Stack&) = delete;
    Stack& operator=(const Stack&) = delete;

    size_t size() const { return bytes - shift_; }
    void* top() const { return memory_ + guard + size(); }
    bool contains(const void* address) const { return distance(address) - guard < bytes; }
    bool guards(const void* address) const { return distance(address) < guard; }

  private:
    static constexpr size_t guard = 1 << 20; // wide, because a large array may reach far below the stack at once
    size_t distance(const void* address) const {
        return static_cast<size_t>(static_cast<const char*>(address) - memory_);
    }
    char* memory_;
    size_t shift_;
};

/// Boost.Context's lowest layer: its fiber class unwinds the stack of a fiber that is given up, and that needs
/// exception tables which code that was stopped anywhere does not have. Here a fiber that is not needed any more is
/// forgotten.
class Fiber {
  public:
    /// Gives the fiber its stack and its function, which must not return.
    void start(const Stack& stack, void (*function)(void*), void* argument);
    bool started() const { return context_ != nullptr; }
    void forget() { context_ = nullptr; }

    /// Called by this fiber: stops here and lets the other one go on. Returns when somebody switches back.
    /// Inlined, with all that leads to it: the processor predicts where a function returns to from the calls it has
    /// seen, and those were another fiber's. Each return then costs as much as the switch.
    [[gnu::always_inline]] void switch_to(Fiber& other) {
        Switch own{this, &other};
        const boost::context::detail::transfer_t back = boost::context::detail::jump_fcontext(other.context_, &own);
        // Whoever switched here says who it was, so that its own place is known from now on.
        static_cast<const Switch*>(back.data)->from->context_ = back.fctx;
    }

  private:
    struct Switch {
        Fiber* from;
        Fiber* to;
    };
    static void enter(boost::context::detail::transfer_t transfer);

    boost::context::detail::fcontext_t context_ = nullptr; // where it stopped
    void (*function_)(void*) = nullptr;
    void* argument_ = nullptr;
};

} // namespace flash::simt
