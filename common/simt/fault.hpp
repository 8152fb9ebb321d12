// What can be wrong with a kernel or its launch. launch() throws it; programs print it and exit.
#pragma once

#include <string>

#include "common/attention.hpp"
#include "common/simt/dim3.hpp"

namespace flash::simt {

enum class FaultKind {
    launch,               // a grid, block or amount of shared memory that no GPU of the kind takes
    out_of_bounds,        // memory that the block or the grid does not have
    misaligned,           // an address that is no multiple of the access's size
    race,                 // two threads, one place, at least one writes, nothing orders them
    uninitialised,        // shared memory read before any thread of the block wrote it
    async_copy_in_flight, // data of a cp.async used before its wait
    divergent_barrier,    // threads of one block (or lanes of one mask) at different barriers
    missing_barrier,      // threads wait at a barrier that others left the kernel without reaching
    deadlock,             // nobody can run
    stack_overflow,       // local variables beyond the stack of a fiber
};

/// A place that a thread has reached: the thread and the line.
struct Place {
    dim3 thread;
    std::string file; // empty when the kernel was compiled without -g
    int line = 0;
};

struct Fault : Error {
    FaultKind kind;
    std::string kernel;
    dim3 block;
    Place where;
    Place other; // the second thread of a race or a divergent barrier

    Fault(FaultKind what, const std::string& message) : Error(message), kind(what) {}
};

/// "(3,0,1)"
std::string to_string(dim3 index);

} // namespace flash::simt
