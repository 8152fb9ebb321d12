// What warpgroups (four warps) do together and apart: meetings, named barriers, and passing
// registers on.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "common/simt/machine/meetings.hpp"

namespace flash::simt {

struct NamedBarrier {
    unsigned expected = 0; // threads; 0: nobody has come
    unsigned arrived = 0;
    unsigned first = 0; // thread that came first
    Site site;          // where
    const char* operation = "";
    std::vector<WaitingThread> waiting;
};

/// The registers of an SM, all of which the one block on it may have.
struct Registers {
    static constexpr unsigned in_all = 65536;
    unsigned free = 0;
    std::array<unsigned, 8> of_thread{}; // in each warpgroup
    struct Wanted {
        unsigned warpgroup;
        unsigned registers; // a thread
        std::vector<WaitingThread> waiting;
    };
    std::vector<Wanted> wanted;
    void reset(unsigned threads);
};

// The current thread.
void named_barrier_sync(int id, int threads, Site site = Site::here());
void named_barrier_arrive(int id, int threads, Site site = Site::here());
void set_registers(bool gives, unsigned registers, Site site);

} // namespace flash::simt
