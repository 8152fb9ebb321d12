// How the SIMT backend runs kernels. Programs take it from the environment, tests set it.
#pragma once

#include <cstdint>
#include <string>

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

struct Options {
    Schedule schedule = {};
    CpAsync cp_async = CpAsync::late;
    // races, bounds, initialisation; needs kernels compiled with -fsanitize=thread
    bool detect = false;
    bool count = false; // memory traffic line by line; the same need
    int workers = 0;    // OS threads that run blocks; 0: one per core. With `detect` always one
    // shared memory that a block may have: 163 on sm_80, 99 on sm_86, 89 and 120, 227 on sm_90
    int shared_kib = 163;
    bool strict = false; // warnings are faults
};

/// What the next launch uses. At first it is read from the environment:
///   FLASH_SIMT_SCHEDULE    in-order, reverse, ahead:WARP or shuffle:SEED
///   FLASH_SIMT_CP_ASYNC    late or early
///   FLASH_SIMT_DETECT      1: report races and wrong accesses
///   FLASH_SIMT_WORKERS     OS threads
///   FLASH_SIMT_SHARED_KIB  shared memory that a block may have
///   FLASH_SIMT_STRICT      1: warnings are faults
/// Throws Error when a variable holds something else.
Options& options();

/// "shuffle:7", as in the environment.
std::string to_string(const Schedule& schedule);

} // namespace flash::simt
