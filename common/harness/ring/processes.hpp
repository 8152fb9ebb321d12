// The processes that share a problem, started by mpirun.
#pragma once

#include <cstddef>
#include <string>

#include "common/ranks.hpp"

namespace flash {

class Processes {
  public:
    virtual ~Processes() = default;
    virtual int rank() const = 0; // of this process, from 0 on
    virtual int size() const = 0;

    /// Each call returns once `data` may be used again, or holds what was sent.
    virtual void send(int to, const void* data, size_t bytes) = 0;
    virtual void receive(int from, void* data, size_t bytes) = 0;

    /// What process 0 has in `data`, all have then. Every process calls it.
    virtual void share(void* data, size_t bytes) = 0;

    /// The largest of all processes' values. Every process calls it, and none returns before all
    /// have.
    virtual double largest(double value) = 0;

    /// How their kernels' K and V go round. Every process calls it, and the first call returns when
    /// all have.
    virtual Exchange& exchange() = 0;

    /// Ends every process, whatever it is doing or waiting for.
    [[noreturn]] virtual void end_all(int exit_code) = 0;

    /// The first process's text that is not empty, on process 0; nothing elsewhere. Every process
    /// calls it.
    std::string first_text(const std::string& text);
};

} // namespace flash
