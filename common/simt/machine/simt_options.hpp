// How the SIMT backend runs kernels. Programs take it from the environment, tests set it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace flash::simt {

/// In which order the threads of a block, and the blocks of a grid, get their turn. A thread runs
/// until it has to wait for others. Every order is one that a GPU may take; each is the same in
/// every run.
struct Schedule {
    enum Kind {
        in_order,       // the lowest thread that can run
        reverse,        // the highest
        one_warp_ahead, // warp `number` first whenever it can run, then in order
        shuffle,        // any thread that can run, drawn from seed `number`
        starve,         // thread `number` when no other one can run, else in order
    };
    Kind kind = in_order;
    uint64_t number = 0;
};

/// When the data of a `cp.async` arrive: between issue and wait a GPU may choose any moment, so a
/// kernel must bear both.
enum class CpAsync {
    late, // at the wait: shows a missing wait
    early // at once: shows a missing barrier before the copy
};

/// The line of a source file, named as the user does: "matmul.cu:31" or "src/matmul.cu:31".
struct FileLine {
    std::string file;
    int line = 0;
};

struct Options {
    Schedule schedule = {};
    CpAsync cp_async = CpAsync::late;
    // races, bounds, initialisation; needs kernels compiled with -fsanitize=thread
    bool detect = false;
    bool count = false; // memory traffic line by line; the same need
    // OS threads that run blocks; 0: one per core. With `detect` one, where blocks meet
    int workers = 0;
    // shared memory that a block may have: 163 on sm_80, 99 on sm_86, 89 and 120, 227 on sm_90
    int shared_kib = 163;
    // that all buffers of the device may have; 0: a quarter of this computer's
    uint64_t memory_mib = 0;

    // What a run with `detect` says, and how it ends.
    bool keep_going = false; // a faulty access does nothing, each distinct fault is told once
    bool strict = false;     // warnings are faults
    // faults whose access stands on one of these lines are not reported
    std::vector<FileLine> ignore = {};
    unsigned launches = 0;   // of each kernel that the detector watches, the first ones; 0: all
    std::string kernel = {}; // the only one that the detector watches; empty: all
    unsigned sample = 0;     // blocks of each launch that run; 0: all
    unsigned timeout = 60;   // seconds without progress after which a launch ends; 0: never
    unsigned seconds = 0;    // after which a watched program ends; 0: when it likes
};

/// What the next launch uses. At first it is read from the environment:
///   FLASH_SIMT_SCHEDULE    in-order, reverse, ahead:WARP, shuffle:SEED or
///                          starve:THREAD
///   FLASH_SIMT_CP_ASYNC    late or early
///   FLASH_SIMT_DETECT      1: report races and wrong accesses
///   FLASH_SIMT_WORKERS     OS threads
///   FLASH_SIMT_SHARED_KIB  shared memory that a block may have
///   FLASH_SIMT_MEMORY_MIB  memory that all buffers of the device may have
///   FLASH_SIMT_KEEP_GOING  1: report each distinct fault once and go on
///   FLASH_SIMT_STRICT      1: warnings are faults
///   FLASH_SIMT_IGNORE      FILE:LINE,FILE:LINE...: faults there are not reported
///   FLASH_SIMT_LAUNCHES    how many launches of each kernel the detector watches; 0: all
///   FLASH_SIMT_KERNEL      the name of the only kernel that the detector watches
///   FLASH_SIMT_SAMPLE      how many blocks of each launch run; 0: all
///   FLASH_SIMT_TIMEOUT     seconds without progress after which a launch ends; 0: never
///   FLASH_SIMT_SECONDS     after which a watched program ends; 0: when it likes
/// Throws Error when a variable holds something else.
Options& options();

/// "shuffle:7", as in the environment.
std::string to_string(const Schedule& schedule);

} // namespace flash::simt
