// The processes of a ring: mpirun starts them, MPI is how they find each other, and K and V travel
// from one kernel's memory to another's. This folder is the only one that knows MPI and NCCL.
#pragma once

#include <memory>

#include "common/harness/ring/processes.hpp"

namespace flash {

/// The processes that mpirun has started; null: this one alone, and MPI stays out of it. On a GPU
/// each process of a computer takes the next of its GPUs.
std::unique_ptr<Processes> start_processes();

/// How rank `rank` of `size` passes K and V on. On a GPU by NCCL, on a stream of its own, so that
/// kernels go on meanwhile; on the SIMT backend, whose device memory is the host's, by MPI. All
/// ranks call it at the same time.
std::unique_ptr<Exchange> make_exchange(int rank, int size);

/// Chooses the GPU of the process that is number `number` on its computer.
void choose_device(int number);

} // namespace flash
