// MPI, without the C++ classes that it once had.
#pragma once

#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <algorithm>
#include <cstddef>

namespace flash {

/// Calls work(pointer, elements) for pieces that MPI's int can count.
template <class Work> void in_pieces(size_t bytes, const Work& work) {
    constexpr size_t most = size_t{1} << 30;
    for (size_t done = 0; done < bytes; done += most) {
        work(done, static_cast<int>(std::min(most, bytes - done)));
    }
}

} // namespace flash
