// Accesses that the processor itself refuses, such as those to the guard pages around every buffer.
// They become faults of the kernel too, so that a wrong kernel ends in a report even when it was
// not compiled to be watched.
#pragma once

#include <csignal>

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

/// Where a signal hit the program: of the context that its handler was given.
const void* program_counter(const void* context);

/// Gives this OS thread a stack for the handler, for good, because a fiber's own may be what
/// overflowed.
void make_trap_stack();

} // namespace flash::simt
