// A fiber: a function with a stack of its own that can stop in the middle and go on later.
// Every CUDA thread of a block is one, and all fibers of a block live on one OS thread.
#pragma once

#include <boost/context/detail/fcontext.hpp>

#include <cstddef>
#include <vector>

namespace flash::simt {

/// The stacks of a block's fibers. Pages are used as they are touched.
class Stacks {
  public:
    static constexpr size_t locals = 512 << 10; // bytes of a thread's variables, as in CUDA
    static constexpr size_t bytes = locals + (64 << 10); // of one: the runtime wants some, too

    ~Stacks();

    /// Makes sure that there are `count`. Throws std::bad_alloc when there is no memory for them.
    void reserve(unsigned count);

    void* top(unsigned number) const { return low(number) + size(number); }
    size_t size(unsigned number) const { return bytes - shift(number); }
    bool contains(unsigned number, const void* address) const {
        return distance(number, address) < bytes;
    }

    /// Below each stack lie addresses that fault when it overflows, as long as the system allows so
    /// many mappings: a thousand for each worker. Beyond that they are memory that nobody else
    /// uses.
    bool guards(unsigned number, const void* address) const {
        return distance(number, address) + guard < guard;
    }

  private:
    // wide, because a large array may reach far below the stack at once
    static constexpr size_t guard = 1 << 20;
    static constexpr size_t of_warp = 32 * (guard + bytes);

    /// Spreads the tops over the sets of the cache: all of a warp's are in use at once.
    static size_t shift(unsigned number) { return number % 32 * 256; }
    char* low(unsigned number) const {
        return warps_[number / 32] + number % 32 * (guard + bytes) + guard;
    }
    size_t distance(unsigned number, const void* address) const {
        return static_cast<size_t>(static_cast<const char*>(address) - low(number));
    }

    std::vector<char*> warps_;
};

/// Boost.Context's lowest layer: its fiber class unwinds the stack of a fiber that is given up, and
/// that needs exception tables which code that was stopped anywhere does not have. Here a fiber
/// that is not needed any more is forgotten.
class Fiber {
  public:
    /// Gives the fiber its stack and its function, which must not return.
    void start(void* stack_top, size_t stack_bytes, void (*function)(void*), void* argument);
    bool started() const { return context_ != nullptr; }
    void forget() { context_ = nullptr; }

    /// Called by this fiber: stops here and lets the other one go on. Returns when somebody
    /// switches back.
    /// Inlined, with all that leads to it: the processor predicts where a function returns to from
    /// the calls it has seen, and those were another fiber's. Each return then costs as much as the
    /// switch.
    [[gnu::always_inline]] void switch_to(Fiber& other) {
        Switch own{this, &other};
        const boost::context::detail::transfer_t back =
            boost::context::detail::jump_fcontext(other.context_, &own);
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
