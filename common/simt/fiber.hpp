// A fiber: a function with a stack of its own that can stop in the middle and be resumed later.
// Every CUDA thread of a block is one, and all fibers of a block live on one OS thread.
#pragma once

#include <boost/context/fiber.hpp>

#include <cstddef>
#include <functional>

namespace flash::simt {

/// Memory for one fiber, with addresses below it that fault when the stack overflows. Pages are used as they are
/// touched.
class Stack {
  public:
    static constexpr size_t bytes = 128 << 10;

    Stack();
    ~Stack();
    Stack(Stack&& other) noexcept;
    Stack(const Stack&) = delete;
    Stack& operator=(const Stack&) = delete;

    void* top() const { return memory_ + guard + bytes; }
    bool contains(const void* address) const {
        return static_cast<size_t>(static_cast<const char*>(address) - memory_ - guard) < bytes;
    }
    bool guards(const void* address) const {
        return static_cast<size_t>(static_cast<const char*>(address) - memory_) < guard;
    }

  private:
    static constexpr size_t guard = 1 << 20; // wide, because a large array may reach far below the stack at once
    char* memory_;
};

class Fiber {
  public:
    Fiber() = default;
    Fiber(Fiber&&) = default;
    ~Fiber() { abandon(); }

    bool started() const { return static_cast<bool>(fiber_); }

    /// Gives the fiber its stack and its function. The function must not return: it suspends for the last time.
    void start(const Stack& stack, std::function<void()> function);

    /// Runs the fiber until it suspends. Called from outside.
    void resume() { fiber_ = std::move(fiber_).resume(); }

    /// Back to the caller of resume(). Called by the fiber itself.
    void suspend() { caller_ = std::move(caller_).resume(); }

    /// Forgets the fiber where it stands. Destructors on its stack do not run: kernels have none that matter, and
    /// unwinding (what Boost's destructor does) would need exception tables for code that was stopped anywhere.
    void abandon();

  private:
    boost::context::fiber fiber_;
    boost::context::fiber caller_;
};

} // namespace flash::simt
