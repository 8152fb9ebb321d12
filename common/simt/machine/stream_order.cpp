#include "common/simt/machine/stream_order.hpp"

#include <algorithm>
#include <deque>
#include <iterator>
#include <map>
#include <mutex>
#include <utility>

#include "common/simt/machine/device_memory.hpp"
#include "common/simt/machine/fault.hpp"
#include "common/simt/machine/host_misuse.hpp"
#include "common/simt/machine/run_log.hpp"
#include "common/simt/machine/simt_options.hpp"

namespace flash::simt {
namespace {

struct Stream {
    bool waits_for_default;
    StreamClock knows; // of its next work
};

struct Work {
    size_t stream;
    uint64_t number; // in its stream, from 1
    StreamClock knows;
    std::string what;
    LocationId place;
};

struct Bytes {
    const char *begin, *end;
    Touch how;
    Work work;
};

constexpr size_t most_remembered = 512; // of one buffer, the latest

struct Streams {
    std::mutex mutex;
    std::deque<Stream> all{{true, {}}, {true, {}}}; // the default stream, and that of the thread
    std::map<const void*, size_t> numbers{{reinterpret_cast<const void*>(2), 1}};
    StreamClock host;
    std::map<const DeviceMemory*, std::deque<Bytes>> touched;
    bool has_memory_of_both = false;
};

Streams& streams() {
    static Streams& all = *new Streams; // programs may free memory at their very end
    return all;
}

thread_local const void* stream_at_hand = nullptr;
thread_local bool is_asynchronous = false;
thread_local Work work_at_hand{}; // several host threads may copy at once

uint64_t known(const StreamClock& clock, size_t stream) {
    return stream < clock.size() ? clock[stream] : 0;
}

void learn(StreamClock& clock, const StreamClock& more) {
    clock.resize(std::max(clock.size(), more.size()));
    for (size_t i = 0; i < more.size(); ++i) {
        clock[i] = std::max(clock[i], more[i]);
    }
}

size_t number_of(const void* stream) {
    const auto found = streams().numbers.find(stream);
    return found == streams().numbers.end() ? 0 : found->second;
}

bool is_known(const Work& work, const StreamClock& to) {
    return known(to, work.stream) >= work.number;
}

bool overlap(const Bytes& one, const char* begin, const char* end) {
    return one.begin < end && begin < one.end;
}

bool may_meet(Touch a, Touch b) { return a == b && a != Touch::writes; }

/// What the host has waited for is no matter any more.
void forget_awaited() {
    Streams& all = streams();
    for (auto one = all.touched.begin(); one != all.touched.end();) {
        std::erase_if(one->second,
                      [&](const Bytes& bytes) { return is_known(bytes.work, all.host); });
        one = one->second.empty() ? all.touched.erase(one) : std::next(one);
    }
    works_are_pending = !all.touched.empty();
}

std::string verb(Touch how) { return how == Touch::reads ? "read" : "writ"; }

std::string text_of(const Work& work) {
    const SourceLine line = resolve({work.place}).front();
    const bool is_launch = work.what.ends_with("launched");
    return work.what + " at " + line.file + ":" + std::to_string(line.line) +
           (is_launch ? "," : "");
}

Fault conflict(const Work& now, const Bytes& before, const std::string& buffer, Touch how) {
    Fault fault(FaultKind::unordered_streams,
                text_of(now) + (how == Touch::reads ? " reads" : " writes") + " bytes of " +
                    buffer + " while " + text_of(before.work) + " may still be " +
                    verb(before.how) +
                    "ing them in another stream\n  an event and cudaStreamWaitEvent, or a "
                    "synchronisation by the "
                    "host, between the two would order them");
    fault.where.origin = now.place;
    fault.where.line = resolve({now.place}).front();
    return fault;
}

} // namespace

constinit bool works_are_pending = false;

void add_stream(const void* stream, bool waits_for_default) {
    Streams& all = streams();
    const std::lock_guard lock(all.mutex);
    all.numbers[stream] = all.all.size();
    all.all.push_back({waits_for_default, {}});
}

void remove_stream(const void* stream) {
    Streams& all = streams();
    const std::lock_guard lock(all.mutex);
    all.numbers.erase(stream);
}

OnStream::OnStream(const void* stream)
    : before_(std::exchange(stream_at_hand, stream)),
      was_asynchronous_(std::exchange(is_asynchronous, true)) {}
OnStream::~OnStream() {
    stream_at_hand = before_;
    is_asynchronous = was_asynchronous_;
}

bool host_goes_on() { return is_asynchronous; }

void begin_stream_work(const std::string& what, LocationId place) {
    Streams& all = streams();
    const std::lock_guard lock(all.mutex);
    const size_t number = number_of(stream_at_hand);
    Stream& own = all.all[number];
    learn(own.knows, all.host);
    // the default stream and the others wait for each other
    for (size_t other = 0; other < all.all.size(); ++other) {
        if (other != number && (number == 0 ? all.all[other].waits_for_default
                                            : other == 0 && own.waits_for_default)) {
            learn(own.knows, all.all[other].knows);
        }
    }
    own.knows.resize(std::max(own.knows.size(), number + 1));
    const uint64_t count = ++own.knows[number];
    work_at_hand = {number, count, own.knows, what, place};
}

void touch_by_work(const char* begin, size_t bytes, Touch how) {
    const DeviceMemory* const memory =
        bytes > 0 && reserved.contains(begin) ? memory_around(begin) : nullptr;
    if (memory == nullptr || memory->kind() == DeviceMemory::Kind::harness) {
        return;
    }
    Streams& all = streams();
    const std::lock_guard lock(all.mutex);
    std::deque<Bytes>& touched = all.touched[memory];
    const char* const end = begin + bytes;
    for (const Bytes& one : touched) {
        if (overlap(one, begin, end) && !may_meet(one.how, how) &&
            !is_known(one.work, work_at_hand.knows)) {
            const Fault fault = conflict(work_at_hand, one, memory->name(), how);
            if (is_ignored(fault)) {
                continue;
            }
            run_log().add_last(fault);
            throw fault;
        }
    }
    // this one stands for those before it that it knows of
    std::erase_if(touched, [&](const Bytes& one) {
        return one.begin >= begin && one.end <= end && one.how <= how &&
               one.work.stream == work_at_hand.stream && one.work.number < work_at_hand.number;
    });
    if (touched.size() == most_remembered) {
        touched.pop_front();
    }
    touched.push_back({begin, end, how, work_at_hand});
    works_are_pending = true;
}

void end_stream_copy(bool of_pageable_memory) {
    if (!is_asynchronous || of_pageable_memory) {
        host_waits_for(stream_at_hand);
    }
}

bool kernels_touches_matter() { return streams().has_memory_of_both || streams().all.size() > 2; }

void note_memory_of_both() { streams().has_memory_of_both = true; }

void forget_touches(const char* begin, size_t bytes) {
    if (bytes > 0 && works_are_pending) {
        Streams& all = streams();
        const std::lock_guard lock(all.mutex);
        all.touched.erase(memory_around(begin));
    }
}

void touch_by_host(const char* begin, size_t bytes, bool writes, LocationId place) {
    Streams& all = streams();
    const std::lock_guard lock(all.mutex);
    const DeviceMemory* const memory = memory_around(begin);
    const auto found = all.touched.find(memory);
    if (found == all.touched.end()) {
        return;
    }
    for (const Bytes& one : found->second) {
        if (overlap(one, begin, begin + bytes) && (writes || one.how != Touch::reads) &&
            !is_known(one.work, all.host)) {
            end_program(host_misuse("the host",
                                    std::string("it ") + (writes ? "writes " : "reads ") +
                                        memory->name() + " while " + text_of(one.work) +
                                        " may still be " + verb(one.how) +
                                        "ing it; cudaDeviceSynchronize before would order the two",
                                    place));
        }
    }
}

void host_waits_for_all() {
    Streams& all = streams();
    const std::lock_guard lock(all.mutex);
    for (const Stream& stream : all.all) {
        learn(all.host, stream.knows);
    }
    forget_awaited();
}

void host_waits_for(const StreamClock& clock) {
    Streams& all = streams();
    const std::lock_guard lock(all.mutex);
    learn(all.host, clock);
    forget_awaited();
}

void host_waits_for(const void* stream) { host_waits_for(clock_of(stream)); }

StreamClock clock_of(const void* stream) {
    Streams& all = streams();
    const std::lock_guard lock(all.mutex);
    return all.all[number_of(stream)].knows;
}

void stream_waits_for(const void* stream, const StreamClock& clock) {
    Streams& all = streams();
    const std::lock_guard lock(all.mutex);
    learn(all.all[number_of(stream)].knows, clock);
}

HostOnStream::HostOnStream(const void* stream) : before_(streams().host) {
    learn(streams().host, clock_of(stream));
}
HostOnStream::~HostOnStream() { streams().host = before_; }

} // namespace flash::simt
