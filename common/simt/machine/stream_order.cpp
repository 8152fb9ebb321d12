#include "common/simt/machine/stream_order.hpp"

#include <algorithm>
#include <deque>
#include <iterator>
#include <map>
#include <memory>
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
    StreamClock knows{}; // of its next work
    bool lives = true;
};

struct Work {
    size_t stream;
    uint64_t number; // in its stream, from 1
    std::string what;
    LocationId place;
};

struct TouchedBytes {
    const char *begin, *end;
    std::shared_ptr<const Work> by;
};

/// What a stream has done to a memory in one way, in the order of addresses. Of each byte that is
/// its last work there, which stands for all before it.
struct Touched {
    std::vector<TouchedBytes> all{};
    uint64_t latest = 0;  // of those works
    uint64_t awaited = 0; // those up to here are forgotten

    void add(std::span<const std::span<const char>> places, const std::shared_ptr<const Work>& by);
    /// The first bytes of these places that a work has touched of which `to` does not know.
    const TouchedBytes* unknown(std::span<const std::span<const char>> places, uint64_t to) const;
};

using StreamAndTouch = std::pair<size_t, Touch>;

struct Streams {
    std::mutex mutex;
    // the default stream, and that of the thread, which nobody makes
    std::deque<Stream> all{{.waits_for_default = true},
                           {.waits_for_default = true, .lives = false}};
    std::map<const void*, size_t> numbers{{reinterpret_cast<const void*>(2), 1}};
    StreamClock host;
    std::map<const DeviceMemory*, std::map<StreamAndTouch, Touched>> touched;
};

Streams& streams() {
    static Streams& all = *new Streams; // programs may free memory at their very end
    return all;
}

thread_local const void* stream_at_hand = nullptr;
thread_local bool is_asynchronous = false;
// several host threads may copy at once
thread_local std::shared_ptr<const Work> work_at_hand;
thread_local StreamClock known_to_work;

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

/// Those that may reach beyond an address, from the first one on.
auto from(const std::vector<TouchedBytes>& all, const char* address) {
    return std::ranges::partition_point(
        all, [&](const TouchedBytes& one) { return one.end <= address; });
}

void Touched::add(std::span<const std::span<const char>> places,
                  const std::shared_ptr<const Work>& by) {
    latest = by->number;
    const char* const end = std::to_address(places.back().end());
    const auto first = from(all, places.front().data());
    auto last = first;
    std::vector<TouchedBytes> anew;
    const char* covered = nullptr; // up to here, by places
    const auto add_next = [&] {
        covered = std::to_address(places.front().end());
        anew.push_back({places.front().data(), covered, by});
        places = places.subspan(1);
    };
    for (; last != all.end() && last->begin < end; ++last) {
        const auto keep = [&](const char* until) {
            const char* const rest = std::max(last->begin, covered);
            if (rest < until) {
                anew.push_back({rest, until, last->by});
            }
        };
        while (!places.empty() && places.front().data() < last->end) {
            keep(places.front().data());
            add_next();
        }
        keep(last->end);
    }
    while (!places.empty()) {
        add_next();
    }
    all.insert(all.erase(first, last), std::make_move_iterator(anew.begin()),
               std::make_move_iterator(anew.end()));
}

const TouchedBytes* Touched::unknown(std::span<const std::span<const char>> places,
                                     uint64_t to) const {
    if (latest <= to) {
        return nullptr;
    }
    for (const std::span<const char> place : places) {
        const char* const end = std::to_address(place.end());
        for (auto one = from(all, place.data()); one != all.end() && one->begin < end; ++one) {
            if (one->by->number > to) {
                return &*one;
            }
        }
    }
    return nullptr;
}

bool may_meet(Touch a, Touch b) { return a == b && a != Touch::writes; }

/// Whether a stream has works that the host has not waited for.
bool is_at_work(size_t number) {
    return known(streams().all[number].knows, number) > known(streams().host, number);
}

/// What the host has waited for is no matter any more.
void forget_awaited() {
    Streams& all = streams();
    for (auto& [memory, of_memory] : all.touched) {
        for (auto& [key, touched] : of_memory) {
            const uint64_t over = known(all.host, key.first);
            if (std::exchange(touched.awaited, over) != over && touched.latest > over) {
                std::erase_if(touched.all,
                              [&](const TouchedBytes& one) { return one.by->number <= over; });
            }
        }
        std::erase_if(of_memory,
                      [](const auto& one) { return one.second.latest <= one.second.awaited; });
    }
    std::erase_if(all.touched, [](const auto& of_memory) { return of_memory.second.empty(); });
    works_are_pending = !all.touched.empty();
}

std::string verb(Touch how) { return how == Touch::reads ? "read" : "writ"; }

std::string text_of(const Work& work) {
    const SourceLine line = resolve({work.place}).front();
    const bool is_launch = work.what.ends_with("launched");
    return work.what + " at " + line.file + ":" + std::to_string(line.line) +
           (is_launch ? "," : "");
}

Fault conflict(const Work& now, const Work& before, Touch how, Touch how_before,
               const std::string& buffer) {
    Fault fault(FaultKind::unordered_streams,
                text_of(now) + (how == Touch::reads ? " reads" : " writes") + " bytes of " +
                    buffer + " while " + text_of(before) + " may still be " + verb(how_before) +
                    "ing them in another stream\n  an event and cudaStreamWaitEvent, or a "
                    "synchronisation by the host, between the two would order them");
    fault.where.origin = now.place;
    fault.where.line = resolve({now.place}).front();
    return fault;
}

} // namespace

constinit bool works_are_pending = false;

void add_stream(const void* stream, bool waits_for_default) {
    Streams& all = streams();
    const std::lock_guard lock(all.mutex);
    // the number of one that is gone, and that the host has waited for
    size_t number = 2;
    while (number < all.all.size() && (all.all[number].lives || is_at_work(number))) {
        ++number;
    }
    all.numbers[stream] = number;
    StreamClock begun(number + 1);
    begun[number] = known(all.host, number);
    all.all.resize(std::max(all.all.size(), number + 1));
    all.all[number] = {waits_for_default, std::move(begun)};
}

void remove_stream(const void* stream) {
    Streams& all = streams();
    const std::lock_guard lock(all.mutex);
    all.all[number_of(stream)].lives = false;
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
    work_at_hand = std::make_shared<const Work>(Work{number, count, what, place});
    known_to_work = own.knows;
}

void touch_by_work(std::span<const std::span<const char>> places, Touch how) {
    const char* const begin = places.front().data();
    const DeviceMemory* const memory = reserved.contains(begin) ? memory_around(begin) : nullptr;
    if (memory == nullptr || memory->kind() == DeviceMemory::Kind::harness) {
        return;
    }
    Streams& all = streams();
    const std::lock_guard lock(all.mutex);
    auto& touched = all.touched[memory];
    for (const auto& [key, before] : touched) {
        const auto [stream, how_before] = key;
        const TouchedBytes* const one = may_meet(how_before, how)
                                            ? nullptr
                                            : before.unknown(places, known(known_to_work, stream));
        if (one == nullptr) {
            continue;
        }
        const Fault fault = conflict(*work_at_hand, *one->by, how, how_before, memory->name());
        if (!is_ignored(fault)) {
            run_log().add_last(fault);
            throw fault;
        }
    }
    touched[{work_at_hand->stream, how}].add(places, work_at_hand);
    works_are_pending = true;
}

void touch_by_work(const void* begin, size_t bytes, Touch how) {
    if (bytes > 0) {
        const std::span<const char> place(static_cast<const char*>(begin), bytes);
        touch_by_work({&place, 1}, how);
    }
}

void end_stream_copy(bool of_pageable_memory) {
    if (!is_asynchronous || of_pageable_memory) {
        host_waits_for(stream_at_hand);
    }
}

bool touches_matter(const char* begin) {
    if (!reserved.contains(begin)) {
        return false;
    }
    using Kind = DeviceMemory::Kind;
    const Kind kind = memory_around(begin)->kind();
    if (kind == Kind::managed || kind == Kind::pinned || kind == Kind::harness) {
        return kind != Kind::harness;
    }
    Streams& all = streams();
    const std::lock_guard lock(all.mutex);
    for (size_t number = 1; number < all.all.size(); ++number) {
        if (all.all[number].lives || is_at_work(number)) {
            return true;
        }
    }
    return false;
}

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
    const std::span<const char> bytes_at(begin, bytes);
    for (const auto& [key, before] : found->second) {
        const auto [stream, how_before] = key;
        const TouchedBytes* const one =
            writes || how_before != Touch::reads
                ? before.unknown({&bytes_at, 1}, known(all.host, stream))
                : nullptr;
        if (one != nullptr) {
            end_program(host_misuse("the host",
                                    std::string("it ") + (writes ? "writes " : "reads ") +
                                        memory->name() + " while " + text_of(*one->by) +
                                        " may still be " + verb(how_before) +
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
