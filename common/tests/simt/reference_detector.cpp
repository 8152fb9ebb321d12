#include "common/tests/simt/reference_detector.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace simt_test {

using namespace simt;

namespace {

constexpr uint64_t not_yet = std::numeric_limits<uint64_t>::max();

void learn(Known& known, const Known& more) {
    for (const auto& [actor, number] : more) {
        known[actor] = std::max(known[actor], number);
    }
}

bool contains(const Known& known, const ByteAccess& access) {
    const auto found = known.find(access.who);
    return found != known.end() && found->second >= *access.number;
}

bool is_atomic(AccessKind kind) { return kind == AccessKind::atomic; }

/// Strong accesses, each within the other's scope.
bool may_meet(const ByteAccess& a, const ByteAccess& b) {
    const bool one_block = a.who.block == b.who.block;
    return a.scope != Scope::weak && b.scope != Scope::weak &&
           (one_block || (a.scope != Scope::block && b.scope != Scope::block));
}

} // namespace

void Knowledge::learn(const Knowledge& more) {
    simt_test::learn(done, more.done);
    simt_test::learn(fenced, more.fenced);
    simt_test::learn(to_block, more.to_block);
    simt_test::learn(to_device, more.to_device);
    simt_test::learn(found_of_block, more.found_of_block);
    simt_test::learn(found_of_device, more.found_of_device);
}

/// The events of one block, which are those that the other detector hears of.
class ReferenceObserver final : public Observer {
  public:
    ReferenceObserver(ReferenceDetector& all, Block& block) : all_(all), block_(block) {}

    // Accesses of threads.

    void access(unsigned thread, const AccessEvent& access) override {
        if (block_.space_of(access.address) != Space::elsewhere) {
            check(thread, access);
            remember(thread, access);
        }
    }
    void touch(unsigned thread, const AccessEvent& word) override { access(thread, word); }

    // Threads that meet know all that any of them knows.

    void barrier(SourceLocation) override {
        std::vector<unsigned> threads;
        for (unsigned thread = 0; thread < block_.thread_count(); ++thread) {
            threads.push_back(thread);
        }
        meet(threads);
    }
    void meet(CollectiveKind kind, unsigned warp, uint32_t lanes, SourceLocation) override {
        std::vector<unsigned> threads;
        for (unsigned lane = 0; lane < 32; ++lane) {
            if ((lanes >> lane & 1) != 0) {
                threads.push_back(warp * 32 + lane);
            }
        }
        if (kind == CollectiveKind::sync) { // a shuffle promises no order
            meet(threads);
        }
    }

    // At mbarriers and named barriers: who waits for a phase knows what those knew who arrived.

    void make_mbarrier(unsigned, const void* barrier) override { at(barrier) = {}; }
    void release(unsigned thread, const void* barrier, SourceLocation) override {
        at(barrier).gathered.learn(knowledge(thread));
    }
    void hand_on_copies(unsigned thread, uint32_t count, const void* barrier) override {
        learn(at(barrier).gathered.done, {{actor(Actor::copies, thread), count}});
    }
    void end_phase(const void* barrier) override {
        ReferenceDetector::Barrier& one = at(barrier);
        learn(one.gathered.done, {{phases_of(barrier), ++one.phases}});
        one.handed_on = one.gathered;
    }
    void acquire(unsigned thread, const void* barrier) override {
        knowledge(thread).learn(at(barrier).handed_on);
    }

    // cp.async: written by what goes on beside the thread, until the thread has waited for it.

    void start_copy(const AsyncCopy& copy) override {
        const unsigned thread = copy.work.thread;
        const LocationId origin = LocationId::of(copy.work.location);
        if (copy.given != 0) {
            access(thread, {copy.global, copy.given, AccessKind::load, origin});
        }
        const AccessEvent write{copy.shared, copy.bytes, AccessKind::store, origin};
        check(thread, write);
        remember(thread, write, actor(Actor::copies, thread), number(copy.place + 1));
    }
    void wait_for_copies(unsigned thread, uint32_t count) override {
        learn(knowledge(thread).done, {{actor(Actor::copies, thread), count}});
    }

    // TMA: what it does to global memory counts as the thread's; shared memory it writes until the
    // end of a phase of an mbarrier, and reads until the thread has waited for the group.

    void start_load(const BulkLoad& load) override {
        const unsigned thread = load.work.thread;
        const LocationId origin = LocationId::of(load.work.location);
        for (const Chunk& chunk : load.inside) {
            access_by_words(thread, {chunk.global, chunk.bytes, AccessKind::load, origin});
        }
        const auto end = number(not_yet);
        all_.landings_[{index(), load.work.number}] = end;
        for (unsigned offset = 0; offset < load.bytes; offset += 16) {
            const AccessEvent write{load.shared + offset, 16, AccessKind::store, origin};
            check(thread, write, true);
            remember(thread, write, phases_of(load.mbarrier), end);
        }
    }
    void land(const BulkLoad& load) override {
        *all_.landings_.at({index(), load.work.number}) = at(load.mbarrier).phases + 1;
    }
    void start_store(const BulkStore& store) override {
        const unsigned thread = store.work.thread;
        const LocationId origin = LocationId::of(store.work.location);
        for (const Chunk& chunk : store.chunks) {
            access_by_words(thread, {chunk.global, chunk.bytes,
                                     store.adds ? AccessKind::atomic : AccessKind::store, origin});
            for (unsigned offset = 0; offset < chunk.bytes; offset += 4) {
                const AccessEvent read{chunk.shared + offset, 4, AccessKind::load, origin};
                check(thread, read, true);
                remember(thread, read, actor(Actor::stores, thread), number(store.group + 1));
            }
        }
    }
    void wait_for_stores(unsigned thread, uint32_t groups) override {
        learn(knowledge(thread).done, {{actor(Actor::stores, thread), groups}});
    }
    void fence_proxy(unsigned thread) override {
        learn(knowledge(thread).fenced, knowledge(thread).done);
    }

    // Fences and strong accesses.

    void fence(unsigned thread, Scope scope) override {
        Knowledge& own = knowledge(thread);
        if (!own.found_of_block.empty() || !own.found_of_device.empty()) {
            all_.have_acquired_.insert(actor(Actor::thread, thread));
        }
        learn(own.done, own.found_of_block);
        if (scope != Scope::block) {
            learn(own.done, own.found_of_device);
            own.found_of_block.clear();
            own.found_of_device.clear();
            own.to_device = own.done;
        }
        own.to_block = own.done;
    }
    void strong_read(unsigned thread, const void* address, Scope scope) override {
        if (const ReferenceDetector::Signal* const signal = found(address, scope)) {
            learn(knowledge(thread).found_of_device, signal->to_all);
            const auto within = signal->to_block.find(index());
            if (within != signal->to_block.end()) {
                learn(knowledge(thread).found_of_block, within->second);
            }
        }
    }
    void strong_write(unsigned thread, const void* address, Scope scope, bool replaces) override {
        const ReferenceDetector::Signal* const before = replaces ? nullptr : found(address, scope);
        ReferenceDetector::Signal after = before == nullptr ? ReferenceDetector::Signal() : *before;
        after.block = index();
        after.scope = scope;
        learn(after.to_all, knowledge(thread).to_device);
        learn(after.to_block[index()], knowledge(thread).to_block);
        all_.signals_[place(static_cast<const char*>(address))] = after;
    }

  private:
    unsigned index() const { return block_.index().x; }
    Actor actor(Actor::Kind kind, unsigned thread) const { return {index(), kind, thread}; }
    Actor phases_of(const void* barrier) const {
        return {index(), Actor::phases, reinterpret_cast<uint64_t>(barrier)};
    }
    Knowledge& knowledge(unsigned thread) { return all_.threads_[actor(Actor::thread, thread)]; }
    ReferenceDetector::Barrier& at(const void* barrier) {
        return all_.barriers_[{index(), barrier}];
    }
    ReferenceDetector::Place place(const char* address) const {
        return {block_.space_of(address) == Space::shared ? index() : ReferenceDetector::all,
                address};
    }
    static std::shared_ptr<uint64_t> number(uint64_t value) {
        return std::make_shared<uint64_t>(value);
    }
    static Scope scope_of(const AccessEvent& access) {
        return is_atomic(access.kind) && access.scope == Scope::weak ? Scope::device : access.scope;
    }

    void meet(const std::vector<unsigned>& threads) {
        Knowledge joint;
        for (const unsigned thread : threads) {
            joint.learn(knowledge(thread));
        }
        for (const unsigned thread : threads) {
            knowledge(thread).learn(joint);
        }
    }

    /// What a strong access finds: nothing where it and the last write are not in each other's
    /// scope.
    const ReferenceDetector::Signal* found(const void* address, Scope scope) const {
        const auto signal = all_.signals_.find(place(static_cast<const char*>(address)));
        const auto includes_all = [](Scope one) { return one != Scope::block; };
        return signal != all_.signals_.end() &&
                       (signal->second.block == index() ||
                        (includes_all(scope) && includes_all(signal->second.scope)))
                   ? &signal->second
                   : nullptr;
    }

    /// What TMA does to global memory.
    void access_by_words(unsigned thread, AccessEvent access) {
        const unsigned bytes = std::exchange(access.bytes, 4);
        for (unsigned offset = 0; offset < bytes; offset += 4) {
            this->access(thread, access);
            access.address += 4;
        }
    }

    /// Where an address is in its memory.
    long offset_of(const char* address) const {
        const Space space = block_.space_of(address);
        return space == Space::global                ? address - buffer_around(address)->begin
               : block_.shared().is_dynamic(address) ? address - block_.shared().dynamic()
                                                     : -1;
    }

    /// Whether a thread has updated a place after an update by another one, as the last of all, and
    /// has found something that was handed on, there or elsewhere. Then it may use the place: a
    /// counter is set to 0 again by who comes last.
    bool has_come_after(const ByteAccess& now, const ByteAccess& one, const ByteAccess& last) {
        const Knowledge& own = all_.threads_[now.who];
        const bool has_found = !own.found_of_block.empty() || !own.found_of_device.empty() ||
                               all_.have_acquired_.contains(now.who);
        return has_found && last.who == now.who && is_atomic(last.kind) && is_atomic(one.kind) &&
               may_meet(one, last);
    }

    /// Whether an access that a thread makes, or has TMA make, goes wrong.
    void check(unsigned thread, const AccessEvent& access, bool by_tma = false) {
        const Knowledge& own = knowledge(thread);
        const ByteAccess now{actor(Actor::thread, thread),
                             nullptr,
                             access.kind,
                             scope_of(access),
                             thread,
                             access.origin};
        Incident incident{.block = index(),
                          .thread = thread,
                          .origin = access.origin,
                          .offset = offset_of(access.address)};
        bool follow_writes = true; // all races: the last access of each byte is a write
        for (const char* byte = access.address; byte < access.address + access.bytes; ++byte) {
            const std::vector<ByteAccess>& before = all_.bytes_[place(byte)];
            const size_t races = incident.races_with.size();
            for (const ByteAccess& one : before) {
                const bool reads = one.kind == AccessKind::load && now.kind == AccessKind::load;
                if (reads || may_meet(one, now) || contains(own.done, one) ||
                    has_come_after(now, one, before.back())) {
                    continue;
                }
                const bool is_found =
                    one.who.kind == Actor::thread && !by_tma &&
                    (contains(own.found_of_device, one) || contains(own.found_of_block, one));
                incident.only_doubtful |= is_found;
                if (!is_found) {
                    incident.races_with.push_back(one);
                }
            }
            if (incident.races_with.size() > races) {
                follow_writes &= incident.races_with.back().kind == AccessKind::store;
            }
            const auto write = std::ranges::find(before.rbegin(), before.rend(), AccessKind::store,
                                                 &ByteAccess::kind);
            incident.lacks_fence |= by_tma && write != before.rend() &&
                                    write->who.kind != Actor::phases &&
                                    !contains(own.fenced, *write);
        }
        const bool is_wrong = !incident.races_with.empty() || incident.lacks_fence;
        if (is_wrong || incident.only_doubtful) {
            incident.only_doubtful = !is_wrong;
            const bool all_are_atomic =
                std::ranges::count(incident.races_with, AccessKind::atomic, &ByteAccess::kind) ==
                std::ssize(incident.races_with);
            incident.is_told_later =
                is_wrong && !by_tma &&
                ((now.kind == AccessKind::load && now.scope == Scope::weak && all_are_atomic) ||
                 (now.kind == AccessKind::store && follow_writes));
            all_.incidents_.push_back(incident);
        }
    }

    /// An access of a thread.
    void remember(unsigned thread, const AccessEvent& access) {
        const Actor own = actor(Actor::thread, thread);
        const uint64_t count = ++all_.accesses_[own];
        learn(knowledge(thread).done, {{own, count}});
        remember(thread, access, own, number(count));
    }
    /// The same, by what goes on beside it.
    void remember(unsigned thread, const AccessEvent& access, Actor who,
                  const std::shared_ptr<const uint64_t>& number) {
        for (const char* byte = access.address; byte < access.address + access.bytes; ++byte) {
            all_.bytes_[place(byte)].push_back(
                {who, number, access.kind, scope_of(access), thread, access.origin});
        }
    }

    ReferenceDetector& all_;
    Block& block_;
};

std::unique_ptr<Observer> ReferenceDetector::observer(Block& block) {
    return std::make_unique<ReferenceObserver>(*this, block);
}

} // namespace simt_test
