// Accesses that a kernel makes although they are wrong, because the run goes on.
//
// Who is told of an access is told before it happens and cannot keep it from happening. So what is
// at the address is put aside: the thread finds zero there, or writes there, and when it comes to
// its next access elsewhere, or to a place where it gives way to other threads, the bytes are put
// back.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "common/simt/machine/fault.hpp"

namespace flash::simt {

/// Thrown from the check of an access, past whatever else the check would do.
struct FaultyAccess {};

/// Those of one thread that wait for their end.
class FaultyAccesses {
  public:
    /// A write that is a fault only if it changes what had been there.
    struct Suspicion {
        Fault fault;
        char* address;
        unsigned bytes;
        std::array<char, 16> before;
        bool has_changed() const;
        void undo() const;
    };

    bool is_under_way() const { return under_way_; }

    /// The place in the program of the last one.
    LocationId origin() const { return origin_; }

    /// The access will find zero and leave nothing behind. False when there can be no memory at
    /// its address.
    bool pass_over(char* address, unsigned bytes, LocationId origin);

    void suspect(Fault fault, char* address, unsigned bytes, LocationId origin);

    /// They are over. Returns what was suspected.
    std::vector<Suspicion> end();

  private:
    struct Passed {
        char* address;
        unsigned bytes;
        std::array<char, 16> before;
        bool opened; // there was no memory at this address
    };
    std::vector<Passed> passed_;
    std::vector<Suspicion> suspicions_;
    LocationId origin_;
    bool under_way_ = false; // asked at every switch of threads
};

} // namespace flash::simt
