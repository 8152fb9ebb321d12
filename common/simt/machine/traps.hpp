// Accesses that the processor itself refuses, such as those to the guard pages around every buffer. They become faults
// of the kernel too, so that a wrong kernel ends in a report even when it was not compiled to be watched.
#pragma once

#include <csignal>
#include <cstddef>
#include <memory>

namespace flash::simt {

/// While it lives, a refused access of a kernel stops its block with a Fault. One at a time.
class TrapHandlers {
  public:
    TrapHandlers();
    ~TrapHandlers();
    TrapHandlers(const TrapHandlers&) = delete;
    TrapHandlers& operator=(const TrapHandlers&) = delete;

  private:
    struct sigaction segv_before_, bus_before_;
};

/// A stack for the handler, because a fiber's own may be what overflowed. For the OS thread that makes it.
class TrapStack {
  public:
    TrapStack();
    ~TrapStack();
    TrapStack(const TrapStack&) = delete;
    TrapStack& operator=(const TrapStack&) = delete;

  private:
    static constexpr size_t bytes = 128 << 10;
    std::unique_ptr<char[]> memory_;
    stack_t before_{};
};

} // namespace flash::simt
