// What can be wrong with a kernel or its launch. launch() throws it; programs print it and exit.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "common/error.hpp"
#include "common/simt/machine/call_chain.hpp"
#include "common/simt/machine/dim3.hpp"
#include "common/simt/machine/location_id.hpp"

namespace flash::simt {

enum class FaultKind {
    unordered_streams,    // works of two streams at one place, and nothing orders them
    host_misuse,          // a call or an access of the host that CUDA does not allow
    launch,               // a grid, block or amount of shared memory that no GPU of the kind takes
    out_of_bounds,        // memory that the block or the grid does not have
    misaligned,           // an address that is no multiple of the access's size
    race,                 // two threads, one place, at least one writes, nothing orders them
    uninitialised,        // shared memory read before any thread of the block wrote it
    async_copy_in_flight, // data of a cp.async or a TMA load used before its wait
    wgmma_in_flight,      // registers of a wgmma, of C or A, touched before its wait
    missing_fence,        // what a thread wrote, read by TMA or wgmma without a fence between
    divergent_barrier,    // threads of one block (or lanes of one mask) at different barriers
    deadlock,             // nobody can run
    missed_phase,         // a wait at an mbarrier that the end of the next phase may overtake
    invalid_access,       // the processor refused an access, and no detector was on to say why
    assertion,            // assert() failed
    trap,                 // __trap() was called
    timeout,              // nothing came to its end, or to a barrier, for too long
    volatile_conflict,    // a race that is none only because both accesses are volatile
    missing_acquire,      // ordered by a fence of the one who wrote, and by none of the reader
    same_value,           // threads write one value to one place, and nothing orders them
    early_exit,           // threads had left the kernel when the others met at a barrier
    unwritten_copy,       // the host copies from the device what nobody has written
    undefined_shuffle,    // a lane's value was asked for that takes no part in the shuffle
    read_before_cas,      // a plain read of what others update, whose value an atomicCAS checks
};

/// What a thread did, and where. Lines and calls are found out last, because that takes time.
struct ThreadAction {
    dim3 block, thread;
    std::string action; // "writes 4 bytes"
    LocationId origin;
    SourceLine line = {};
    std::vector<Call> calls = {}; // through which the thread came there from the kernel, last first
};

/// A fault's name is that of its kind, or says more: "race_with_engine", "tile_in_flight",
/// "left_too_early".
struct Fault : KernelFault {
    FaultKind kind;
    std::string summary; // what is wrong, in a line or a few
    std::string hint;    // what would help; may be empty
    std::string kernel;
    ThreadAction where;
    bool has_other = false; // the second thread of a race or a divergent barrier
    ThreadAction other;
    bool is_warning = false; // legal but doubtful
    LocationId since{};      // a barrier, after which both came; empty: there is none

    Fault(FaultKind what, std::string summary_text, ThreadAction place = {}, std::string help = "");
    Fault(FaultKind what, std::string summary_text, ThreadAction place, ThreadAction other_place,
          std::string help = "");

    Fault named(std::string better) && {
        name = std::move(better);
        return std::move(*this);
    }
};

/// Something that CUDA has and this backend has not. `what()` says what to use instead.
struct Unsupported : Error {
    using Error::Error;
};

/// The fault with its lines found out and its message (`what()`) complete.
Fault completed(Fault fault);

/// What the kernel at work does is legal but doubtful. It is told once for each pair of places, and
/// the run goes on; with --strict it is a fault, and this may not return.
void warn(Fault warning);

/// "(3,0,1)"
std::string to_string(dim3 index);

/// "1 thread", "2 threads"
std::string plural(unsigned long long count, const std::string& noun);

} // namespace flash::simt
