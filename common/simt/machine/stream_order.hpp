// What is ordered of the work that a program gives to its streams, and of what the host does. Here
// each work is over before the next one begins, whatever the program has asked for; so a missing
// synchronisation would show nowhere. Each stream therefore counts its works, and knows how many of
// each other stream must be over when its next one begins. The host knows as much. Two accesses to
// the same bytes, at least one a write, of which neither is known to the other, are a fault.
//
// Of a copy the bytes are known at once, of a kernel the detector says them when it has ended. Only
// the buffers of the device and memory of cudaMallocHost and cudaMallocManaged take part: a copy
// from or to other memory of the host is over when it returns, or has taken what it needs. While
// there is but the default stream, kernels matter only where the host reaches, too; so what they
// did elsewhere before the first other stream was made is not remembered.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/simt/machine/location_id.hpp"
#include "common/simt/machine/source_location.hpp"

namespace flash::simt {

/// Of each stream, by its number: how many of its works are over.
using StreamClock = std::vector<uint64_t>;

/// Number 0 is the default stream, and what is no stream counts as that.
void add_stream(const void* stream, bool waits_for_default);
void remove_stream(const void* stream);

/// Where calls of this OS thread belong while it lives. Outside they are the default stream's, and
/// the host waits for them.
class OnStream {
  public:
    explicit OnStream(const void* stream);
    ~OnStream();
    OnStream(const OnStream&) = delete;
    OnStream& operator=(const OnStream&) = delete;

  private:
    const void* before_;
    bool was_asynchronous_;
};

/// Who touches bytes: atomic operations of two works may meet.
enum class Touch : uint8_t { reads, updates, writes };

/// Whether the host goes on while the call at hand is at work.
bool host_goes_on();
/// A work begins in the stream at hand: "cudaMemcpyAsync", "add, launched".
void begin_stream_work(const std::string& what, LocationId place);
/// It touches these bytes, or these places of one memory, in the order of their addresses. Throws
/// Fault where another one may be at them.
void touch_by_work(const void* begin, size_t bytes, Touch how);
void touch_by_work(std::span<const std::span<const char>> places, Touch how);
/// It was a copy, and is over when its call returns.
void end_stream_copy(bool of_pageable_memory);

/// Whether it matters that a kernel touches a buffer: the host reaches it as well, or there are
/// other streams than the default one.
bool touches_matter(const char* begin);
/// A memory is gone.
void forget_touches(const char* begin, size_t bytes);

/// Whether works that the host has not waited for have touched memory.
extern constinit bool works_are_pending;
/// The host reads or writes. Ends the program where a work may be at these bytes.
void touch_by_host(const char* begin, size_t bytes, bool writes, LocationId place);

void host_waits_for_all();
void host_waits_for(const void* stream);
void host_waits_for(const StreamClock& clock);
StreamClock clock_of(const void* stream);
void stream_waits_for(const void* stream, const StreamClock& clock);

/// While it lives the host's code is a work of a stream: a function that cudaLaunchHostFunc calls.
class HostOnStream {
  public:
    explicit HostOnStream(const void* stream);
    ~HostOnStream();
    HostOnStream(const HostOnStream&) = delete;
    HostOnStream& operator=(const HostOnStream&) = delete;

  private:
    StreamClock before_;
};

} // namespace flash::simt
