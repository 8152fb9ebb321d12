// What threads tell each other by strong accesses, which are atomic operations and volatile ones,
// and by the fences around them (PTX ISA, "Memory Consistency Model").
//
// What a thread has done before a fence, it hands on by each strong write after that. Who reads
// what was written there knows of it after a fence of his own. Both fences must be of a scope in
// which the other one is, and so must both accesses. An atomic operation keeps what was handed on
// before it; another strong write replaces that.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/simt/machine/observer.hpp"

namespace flash::simt {

/// How far the threads of a block were: an entry for each, as in clocks.hpp. Never changes.
using Progress = std::shared_ptr<const std::vector<uint32_t>>;

/// How far blocks were. Copies are cheap.
class BlocksKnown {
  public:
    bool empty() const { return entries_ == nullptr; }

    /// Null when nothing is known of the block.
    const std::vector<uint32_t>* of(uint32_t block) const;

    /// Whether accesses that these lanes of a block's warp made at `clock` are known.
    bool covers(uint32_t block, unsigned warp, uint32_t lanes, uint32_t clock) const;

    void learn(const BlocksKnown& more);
    void learn(uint32_t block, const Progress& progress);

    friend bool operator==(const BlocksKnown&, const BlocksKnown&) = default; // one and the same

  private:
    using Entries = std::vector<std::pair<uint32_t, Progress>>; // in the order of their numbers
    std::shared_ptr<const Entries> entries_;
};

/// What a thread hands on: how far it and those that it knew of were at its last fence, and at the
/// last one that was for more than its block.
struct HandedOn {
    BlocksKnown in_block, in_device;
    bool empty() const { return in_block.empty(); }
    void learn(const HandedOn& more) {
        in_block.learn(more.in_block);
        in_device.learn(more.in_device);
    }
    friend bool operator==(const HandedOn&, const HandedOn&) = default;
};

/// What was handed on by a strong write, and by those before it that an atomic operation kept.
struct Signal {
    uint32_t block = 0; // whose thread wrote
    HandedOn handed_on;
    std::shared_ptr<const Signal> before;

    /// To threads of other blocks, and to those of this one.
    const BlocksKnown& to_all() const;
    BlocksKnown to_block(uint32_t receiver) const;

    ~Signal(); // not by recursion: there may be many

  private:
    mutable bool joined_ = false;
    mutable BlocksKnown to_all_;
};
using SignalList = std::shared_ptr<const Signal>;

/// What a thread has read, and no fence followed yet.
class PendingSignals {
  public:
    struct Pending {
        const void* address;
        SignalList signals;
    };
    bool empty() const { return list_ == nullptr; }
    void add(const void* address, const SignalList& signals);
    void learn(const PendingSignals& more);
    void clear() { list_ = nullptr; }
    const std::vector<Pending>& list() const;

  private:
    std::shared_ptr<const std::vector<Pending>> list_;
};

/// Whether accesses of these scopes by threads of these blocks may meet.
inline bool include_each_other(Scope a, uint32_t block_a, Scope b, uint32_t block_b) {
    return a != Scope::weak && b != Scope::weak &&
           (block_a == block_b || (a > Scope::block && b > Scope::block));
}

/// The places at which something was handed on.
class Signals {
  public:
    void clear() { places_.clear(); }

    /// What a strong read by a thread of this block finds.
    SignalList read(const void* address, Scope scope, uint32_t block) const;

    /// A strong write. `known`: what the thread knows already, of what it finds there.
    void write(const void* address, Scope scope, uint32_t block, bool replaces,
               const HandedOn& handed_on, const SignalList& known);

  private:
    struct Place {
        SignalList signals;
        uint32_t block; // whose thread wrote last
        Scope scope;
    };
    std::unordered_map<const void*, Place> places_;
};

} // namespace flash::simt
