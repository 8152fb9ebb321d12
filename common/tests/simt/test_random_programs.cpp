// The detector against the plain one of reference_detector.hpp, on little random programs. A
// program says what each thread does, step by step; a kernel carries it out, once for each of the
// two. They must agree whether something is wrong, where first, and with what.
#include <array>
#include <cstdio>
#include <random>

#include "common/cuda/ptx/cp_async.hpp"
#include "common/cuda/ptx/mbarrier.hpp"
#include "common/cuda/ptx/tma.hpp"
#include "common/cuda/ptx/warpgroup.hpp"
#include "common/simt/instructions/warp.hpp"
#include "common/simt/machine/observer_factory.hpp"
#include "common/simt/observers/detector.hpp"
#include "common/tests/simt/reference_detector.hpp"
#include "common/tests/simt/support.hpp"

using namespace simt_test;
using simt::Scope;

namespace {

/// What a thread does in a step.
struct Op {
    enum What : uint8_t {
        nothing,
        load,
        load_elsewhere, // at another line
        store,
        store_elsewhere,
        add, // atomically
        barrier,
        sync_warp,
        shuffle,
        named_sync,
        named_arrive,
        arrive,
        arrive_after_copies,
        wait, // at an mbarrier
        copy, // cp.async
        wait_for_copies,
        load_by_tma,
        store_by_tma,
        add_by_tma,
        wait_for_stores,
        fence_proxy,
        fence,
        set_flag, // by an exchange
        add_to_flag,
        await_flag, // by additions of 0
        set_volatile_flag,
        await_volatile_flag,
    } what = nothing;
    uint8_t bytes = 4;
    bool shared = false; // memory
    unsigned offset = 0; // in it
    unsigned from = 0;   // of a copy: in global memory; of TMA's stores: where they go
    unsigned value = 0;  // that is stored, or waited for; groups that may stay under way
    unsigned barrier_id = 0;
    uint32_t number = 0; // of threads that meet, the lanes, a parity
    Scope scope = Scope::device;
};

constexpr unsigned most_threads = 96, memory_bytes = 1024, mbarriers = 4;

constexpr int arrivals[mbarriers] = {1, 2, 3, 1}; // that end a phase

struct Program {
    unsigned blocks = 1, threads = 64;
    std::vector<Op> ops; // step by step, of each thread of the grid
};

// Of the program that runs.
const Op* first_op = nullptr;
size_t ops_of_all = 0;

/// Unobserved: the program is no memory of the device.
[[gnu::no_sanitize_thread, gnu::noinline]] bool read_op(size_t number, Op& op) {
    if (number >= ops_of_all) {
        return false;
    }
    op = first_op[number];
    return true;
}

// --- the kernel ----------------------------------------------------------------------------------

template <class T> __device__ void load_as(const char* place) {
    const T value = *reinterpret_cast<const T*>(place);
    asm volatile("" ::"m"(value));
}
template <class T> __device__ void store_as(char* place, T value) {
    *reinterpret_cast<T*>(place) = value;
}
__device__ void load_bytes(const char* place, unsigned bytes) {
    switch (bytes) {
    case 1:
        return load_as<uint8_t>(place);
    case 2:
        return load_as<uint16_t>(place);
    case 4:
        return load_as<uint32_t>(place);
    case 8:
        return load_as<uint64_t>(place);
    default:
        return load_as<uint4>(place);
    }
}
__device__ void store_bytes(char* place, unsigned bytes, unsigned value) {
    switch (bytes) {
    case 1:
        return store_as(place, static_cast<uint8_t>(value));
    case 2:
        return store_as(place, static_cast<uint16_t>(value));
    case 4:
        return store_as(place, value);
    case 8:
        return store_as(place, uint64_t{value} << 32 | value);
    default:
        return store_as(place, uint4{value, value, value, value});
    }
}
__device__ void fence_by(Scope scope) {
    if (scope == Scope::block) {
        __threadfence_block();
    } else if (scope == Scope::device) {
        __threadfence();
    } else if (scope == Scope::system) {
        __threadfence_system();
    }
}
__device__ unsigned add_by(Scope scope, unsigned* place, unsigned value) {
    return scope == Scope::block    ? atomicAdd_block(place, value)
           : scope == Scope::device ? atomicAdd(place, value)
                                    : atomicAdd_system(place, value);
}
__device__ void exchange_by(Scope scope, unsigned* place, unsigned value) {
    if (scope == Scope::block) {
        atomicExch_block(place, value);
    } else if (scope == Scope::device) {
        atomicExch(place, value);
    } else {
        atomicExch_system(place, value);
    }
}

__global__ void carry_out(char* global) {
    __shared__ uint64_t barriers[mbarriers];
    char* const shared = dynamic_shared<char>();
    for (unsigned at = 4 * threadIdx.x; at < memory_bytes; at += 4 * blockDim.x) {
        *reinterpret_cast<unsigned*>(shared + at) = 0;
    }
    for (unsigned i = 0; i < mbarriers && threadIdx.x == 0; ++i) {
        mbarrier_init(barriers + i, arrivals[i]);
    }
    fence_mbarrier_init();
    fence_proxy_async();
    __syncthreads();
    Op op;
    const unsigned threads = gridDim.x * blockDim.x;
    for (unsigned at = blockIdx.x * blockDim.x + threadIdx.x; read_op(at, op); at += threads) {
        char* const place = (op.shared ? shared : global) + op.offset;
        auto* const word = reinterpret_cast<unsigned*>(place);
        auto* const flag = static_cast<volatile unsigned*>(word);
        switch (op.what) {
        case Op::nothing:
            break;
        case Op::load:
            load_bytes(place, op.bytes);
            break;
        case Op::load_elsewhere:
            load_as<uint32_t>(place);
            break;
        case Op::store:
            store_bytes(place, op.bytes, op.value);
            break;
        case Op::store_elsewhere:
            store_as(place, op.value);
            break;
        case Op::add:
            add_by(op.scope, word, 1);
            break;
        case Op::barrier:
            __syncthreads();
            break;
        case Op::sync_warp:
            __syncwarp(op.number);
            break;
        case Op::shuffle:
            __shfl_sync(~0u, op.value, 0);
            break;
        case Op::named_sync:
            named_barrier_sync(static_cast<int>(op.barrier_id), static_cast<int>(op.number));
            break;
        case Op::named_arrive:
            named_barrier_arrive(static_cast<int>(op.barrier_id), static_cast<int>(op.number));
            break;
        case Op::arrive:
            mbarrier_arrive(barriers + op.barrier_id);
            break;
        case Op::arrive_after_copies:
            cp_async_mbarrier_arrive(barriers + op.barrier_id);
            break;
        case Op::wait:
            mbarrier_wait(barriers + op.barrier_id, static_cast<int>(op.number));
            break;
        case Op::copy:
            simt::copy_async(place, global + op.from, op.bytes, op.bytes);
            cp_async_commit();
            break;
        case Op::wait_for_copies:
            if (op.value == 0) {
                cp_async_wait<0>();
            } else {
                cp_async_wait<1>();
            }
            break;
        case Op::load_by_tma:
            mbarrier_expect_tx(barriers + op.barrier_id, op.bytes);
            bulk_load(place, global + op.from, op.bytes, barriers + op.barrier_id);
            break;
        case Op::store_by_tma:
            bulk_store(global + op.from, place, op.bytes);
            bulk_commit();
            break;
        case Op::add_by_tma:
            bulk_reduce_add(reinterpret_cast<float*>(global + op.from),
                            reinterpret_cast<const float*>(place), op.bytes);
            bulk_commit();
            break;
        case Op::wait_for_stores:
            if (op.value == 0) {
                bulk_wait_read<0>();
            } else {
                bulk_wait_read<1>();
            }
            break;
        case Op::fence_proxy:
            fence_proxy_async();
            break;
        case Op::fence:
            fence_by(op.scope);
            break;
        case Op::set_flag:
            exchange_by(op.scope, word, op.value);
            break;
        case Op::add_to_flag:
            add_by(op.scope, word, 1);
            break;
        case Op::await_flag:
            while (add_by(op.scope, word, 0) < op.value) {
            }
            break;
        case Op::set_volatile_flag:
            *flag = op.value;
            break;
        case Op::await_volatile_flag:
            while (*flag < op.value) {
            }
            break;
        }
    }
}

// --- random programs -----------------------------------------------------------------------------

class Generator {
  public:
    explicit Generator(unsigned seed) : random_(seed) {}

    Program program() {
        with_flags_ = chance(3);
        with_copies_ = !with_flags_ && chance(2);
        all_.blocks = with_flags_ ? 1 + below(3) : chance(4) ? 2 : 1;
        all_.threads = 32 * (1 + below(3));
        for (unsigned block = 0; block < all_.blocks; ++block) {
            const unsigned first = below(all_.threads);
            const unsigned near = first / 32 * 32 + below(32);
            actors_.push_back({first, near, below(all_.threads), below(all_.threads)});
        }
        used_.assign(all_.blocks, {});
        phases_.assign(all_.blocks, {});
        named_.assign(all_.blocks, 0);
        for (unsigned left = 6 + below(16); left > 0; --left) {
            some_step(below(all_.blocks));
        }
        all_threads({.what = Op::wait_for_copies});
        all_threads({.what = Op::wait_for_stores});
        return std::move(all_);
    }

  private:
    unsigned below(unsigned count) { return static_cast<unsigned>(random_() % count); }
    bool chance(unsigned of) { return below(of) == 0; }
    unsigned actor(unsigned block) { return actors_[block][below(4)]; }

    Op* new_step() { // of each thread of the grid
        const size_t threads = size_t{all_.blocks} * all_.threads;
        all_.ops.resize(all_.ops.size() + threads);
        return &all_.ops[all_.ops.size() - threads];
    }
    void add(unsigned block, unsigned thread, const Op& op) {
        new_step()[block * all_.threads + thread] = op;
    }
    void add_for_block(unsigned block, Op op) {
        Op* const step = new_step();
        for (unsigned thread = 0; thread < all_.threads; ++thread) {
            step[block * all_.threads + thread] = op;
        }
    }
    void all_threads(const Op& op) {
        std::fill_n(new_step(), size_t{all_.blocks} * all_.threads, op);
    }

    /// Once more what was done before, also by TMA: a line that is executed again.
    void repeat() {
        const size_t threads = size_t{all_.blocks} * all_.threads;
        const size_t before = accesses_[below(static_cast<unsigned>(accesses_.size()))];
        Op* const step = new_step();
        for (size_t thread = 0; thread < threads; ++thread) {
            step[thread] = all_.ops[before + thread];
            step[thread].value = ++values_;
        }
    }
    void note_access() {
        accesses_.push_back(all_.ops.size() - size_t{all_.blocks} * all_.threads);
    }

    void some_step(unsigned block) {
        if (!accesses_.empty() && chance(5)) {
            return repeat();
        }
        const unsigned choice = below(with_copies_ ? 30 : with_flags_ ? 24 : 20);
        if (choice < 4) {
            access(block, actor(block));
        } else if (choice < 8) {
            use_by_two(block);
        } else if (choice < 10) {
            access_by_warp(block);
        } else if (choice < 11) {
            access_by_block(block);
        } else if (choice < 13) {
            meet_all(block);
        } else if (choice < 16) {
            sync_warp(block);
        } else if (choice < 17) {
            meet_by_name(block);
        } else if (choice < 20) {
            meet_at_mbarrier(block);
        } else if (with_flags_) {
            hand_over(block, below(all_.blocks));
        } else {
            work_beside(block);
        }
    }

    /// A few places of 16 bytes, and how much of one.
    Op somewhere() {
        Op op{.shared = chance(2)};
        op.bytes = static_cast<uint8_t>(chance(3) ? 1u << below(5) : 4u);
        op.offset =
            16 * below(4) + (op.bytes < 16 && chance(3) ? op.bytes * below(16 / op.bytes) : 0);
        op.value = ++values_;
        return op;
    }

    void access(unsigned block, unsigned thread) {
        Op op = somewhere();
        const unsigned choice = below(with_flags_ ? 7 : 9);
        op.what = choice < 3   ? Op::load
                  : choice < 4 ? Op::load_elsewhere
                  : choice < 6 ? Op::store
                  : choice < 7 ? Op::store_elsewhere
                               : Op::add;
        if (op.what != Op::load && op.what != Op::store) {
            op.bytes = 4;
            op.offset &= ~3u;
        }
        op.scope = chance(3) ? Scope::block : chance(3) ? Scope::system : Scope::device;
        add(block, thread, op);
        note_access();
    }

    /// Two threads use the same two places, and now and then they meet.
    void use_by_two(unsigned block) {
        const std::array<unsigned, 2> threads{actor(block), actor(block)};
        std::array<Op, 2> places{somewhere(), somewhere()};
        places[1].shared = places[0].shared;
        if (chance(4)) {
            return use_one_after_the_other(block, threads, places[0].shared);
        }
        for (unsigned left = 3 + below(5); left > 0; --left) {
            const unsigned thread = threads[below(2)];
            Op op = places[below(2)];
            op.value = ++values_;
            op.what = chance(3) ? Op::store : Op::load;
            if (chance(3)) {
                meet(block);
            } else if (with_copies_ && op.shared && chance(3)) {
                op = {.what = Op::store_by_tma, .bytes = 16, .shared = true};
                op.offset = places[below(2)].offset & ~15u;
                op.from = 896 + 16 * (values_ % 8);
                fence_some(block, thread);
                add(block, thread, op);
                if (chance(2)) {
                    add(block, thread, {.what = Op::wait_for_stores});
                }
            } else {
                add(block, thread, op);
            }
        }
    }

    /// What is known of one place before threads meet, is not true of the other one behind that.
    void use_one_after_the_other(unsigned block, std::array<unsigned, 2> threads, bool shared) {
        Op op{.what = Op::load, .shared = shared, .offset = 128 + 16 * below(4)};
        for (unsigned n = 2 + below(2); n > 0; --n) {
            add(block, threads[0], op);
            sync_warp(block);
            op.offset += 4;
        }
        op.offset -= 4 * below(2);
        op.what = Op::store;
        op.value = ++values_;
        add(block, threads[1], op);
    }

    /// TMA reads one place for two threads, and not both may wait before somebody writes there.
    void read_for_two(unsigned block) {
        Op op{.what = Op::store_by_tma, .bytes = 16, .shared = true, .offset = 16 * below(4)};
        const std::array<unsigned, 2> threads{actor(block), actor(block)};
        add_for_block(block, {.what = Op::fence_proxy});
        meet_all(block);
        for (const unsigned thread : threads) {
            op.from = 896 + 16 * (++values_ % 8);
            add(block, thread, op);
        }
        for (const unsigned thread : threads) {
            if (!chance(3)) {
                add(block, thread, {.what = Op::wait_for_stores});
            }
        }
        meet_all(block);
        op.what = Op::store;
        op.value = ++values_;
        add(block, actor(block), op);
    }

    /// A row, or all lanes the same word.
    void access_by_warp(unsigned block) {
        const bool row = chance(2);
        Op op = row ? Op{.shared = chance(2), .offset = 256 + 128 * below(2)} : somewhere();
        op.what = chance(row ? 2 : 5) ? Op::store : Op::load;
        op.bytes = 4;
        op.offset &= ~3u;
        const unsigned warp = actor(block) / 32;
        Op* const step = new_step();
        for (unsigned lane = 0; lane < 32; ++lane) {
            op.value = ++values_;
            step[block * all_.threads + warp * 32 + lane] = op;
            op.offset += row ? 4 : 0;
        }
        note_access();
    }

    /// Each thread a word of its own, or the one of a neighbour.
    void access_by_block(unsigned block) {
        Op op{.what = chance(2) ? Op::load : Op::store, .shared = chance(2)};
        const unsigned shift = chance(2) ? 0 : 1;
        Op* const step = new_step();
        for (unsigned thread = 0; thread < all_.threads; ++thread) {
            op.value = ++values_;
            op.offset = 512 + 4 * ((thread + shift) % 64);
            step[block * all_.threads + thread] = op;
        }
        note_access();
    }

    void meet(unsigned block) {
        const unsigned choice = below(8);
        if (choice < 2) {
            meet_all(block);
        } else if (choice < 6) {
            sync_warp(block);
        } else if (choice < 7) {
            meet_by_name(block);
        } else {
            meet_at_mbarrier(block);
        }
    }
    void meet_all(unsigned block) {
        add_for_block(block, {.what = Op::barrier});
        used_[block] = {};
        named_[block] = 0;
    }

    void sync_warp(unsigned block) {
        const unsigned warp = actor(block) / 32;
        Op op{.what = chance(4) ? Op::shuffle : Op::sync_warp};
        op.number = ~0u;
        if (op.what == Op::sync_warp && chance(2)) {
            op.number = static_cast<uint32_t>(random_());
            for (const unsigned one : actors_[block]) { // as a rule these
                op.number |= chance(4) ? 0 : 1u << one % 32;
            }
        }
        Op* const step = new_step();
        for (unsigned lane = 0; lane < 32; ++lane) {
            if ((op.number >> lane & 1) != 0) {
                step[block * all_.threads + warp * 32 + lane] = op;
            }
        }
    }

    /// Some warps arrive at a named barrier, others wait there.
    void meet_by_name(unsigned block) {
        if (named_[block] == 15) {
            return;
        }
        Op op{.what = Op::named_sync, .barrier_id = ++named_[block]};
        const unsigned warps = all_.threads / 32;
        const unsigned left_out = chance(2) ? below(warps) : warps;
        op.number = 32 * (left_out < warps && warps > 1 ? warps - 1 : warps);
        const unsigned arriving = op.number > 32 && chance(2) ? below(warps) : warps;
        Op* const step = new_step();
        for (unsigned thread = 0; thread < all_.threads; ++thread) {
            if (thread / 32 != left_out || warps == 1) {
                Op& one = step[block * all_.threads + thread] = op;
                one.what = thread / 32 == arriving ? Op::named_arrive : Op::named_sync;
            }
        }
    }

    /// Threads that differ.
    std::vector<unsigned> actors(unsigned block, size_t count) {
        std::vector<unsigned> some(actors_[block].begin(), actors_[block].end());
        std::ranges::sort(some);
        const auto same = std::ranges::unique(some);
        some.erase(same.begin(), same.end());
        for (size_t i = some.size(); i > 1; --i) {
            std::swap(some[i - 1], some[below(static_cast<unsigned>(i))]);
        }
        some.resize(std::min(count, some.size()));
        return some;
    }

    /// One phase of an mbarrier; the next one comes behind a barrier of the block.
    void meet_at_mbarrier(unsigned block) {
        const unsigned barrier = below(3);
        const auto count = static_cast<size_t>(arrivals[barrier]);
        const std::vector<unsigned> arriving = actors(block, count);
        if (used_[block][barrier] || arriving.size() < count) {
            return;
        }
        for (const unsigned thread : arriving) {
            const bool after = with_copies_ && chance(3);
            add(block, thread,
                {.what = after ? Op::arrive_after_copies : Op::arrive, .barrier_id = barrier});
        }
        wait(block, barrier);
    }
    void wait(unsigned block, unsigned barrier) {
        used_[block][barrier] = true;
        for (unsigned between = below(3); between > 0; --between) {
            access(block, actor(block));
        }
        for (const unsigned thread : actors(block, 1 + below(3))) {
            add(block, thread,
                {.what = Op::wait, .barrier_id = barrier, .number = phases_[block][barrier] & 1});
        }
        ++phases_[block][barrier];
    }

    void work_beside(unsigned block) {
        const unsigned thread = actor(block);
        Op op{.bytes = 16, .shared = true, .offset = 16 * below(4), .from = 16 * below(4)};
        switch (below(8)) {
        case 7:
            read_for_two(block);
            return;
        case 0:
        case 1:
            op.what = Op::copy;
            op.bytes = static_cast<uint8_t>(4u << below(3));
            break;
        case 2:
            op.what = Op::wait_for_copies;
            op.value = below(2);
            break;
        case 3: {
            constexpr unsigned barrier = 3;
            if (used_[block][barrier]) {
                return;
            }
            op.what = Op::load_by_tma;
            op.barrier_id = barrier;
            if (chance(3)) {
                op.bytes = 128;
                op.offset = op.from = 256;
            }
            fence_some(block, thread);
            add(block, thread, op);
            wait(block, barrier);
            return;
        }
        case 4:
            op.what = chance(3) ? Op::add_by_tma : Op::store_by_tma;
            fence_some(block, thread);
            break;
        case 5:
            op.what = Op::wait_for_stores;
            op.value = below(2);
            break;
        default:
            add_for_block(block, {.what = Op::fence_proxy});
            return;
        }
        add(block, thread, op);
        if (op.what != Op::wait_for_copies && op.what != Op::wait_for_stores) {
            note_access();
        }
    }
    void fence_some(unsigned block, unsigned thread) {
        if (!chance(3)) {
            add(block, thread, {.what = Op::fence_proxy});
        }
    }

    /// A fence, a flag and a fence, of which some may be missing or of too small a scope.
    void hand_over(unsigned from, unsigned to) {
        const unsigned writer = actor(from), reader = actor(to);
        if (flags_ == 64 || (from == to && writer == reader)) {
            return;
        }
        const bool one_block = from == to;
        const auto scope = [&] {
            return chance(6)   ? Scope::block
                   : chance(3) ? Scope::system
                   : one_block ? (chance(2) ? Scope::block : Scope::device)
                               : Scope::device;
        };
        Op flag{.shared = one_block && chance(2), .offset = 768 + 4 * flags_++, .value = 1};
        // of lanes of a warp, volatile accesses without fences have rules of their own
        const bool is_volatile = chance(3) && (!one_block || writer / 32 != reader / 32);
        Op data = somewhere(); // that is handed over
        data.shared = data.shared && one_block;
        if (!chance(4)) {
            data.what = chance(4) ? Op::load : Op::store;
            add(from, writer, data);
        }
        if (!chance(8)) {
            add(from, writer, {.what = Op::fence, .scope = scope()});
        }
        if (chance(4)) {
            access(from, writer);
        }
        const unsigned other = one_block ? from : below(all_.blocks); // adds to it as well
        const bool by_two = !is_volatile && chance(3) && (!flag.shared || other == from);
        flag.scope = scope();
        flag.what = is_volatile ? Op::set_volatile_flag : by_two ? Op::add_to_flag : Op::set_flag;
        add(from, writer, flag);
        if (by_two) {
            const unsigned thread = actor(other);
            flag.scope = scope();
            if (chance(2)) {
                flag.what = Op::await_flag;
                add(other, thread, flag);
                add(other, thread, {.what = Op::fence, .scope = scope()});
            }
            flag.what = Op::add_to_flag;
            add(other, thread, flag);
            flag.value = 2;
        }
        flag.what = is_volatile ? Op::await_volatile_flag : Op::await_flag;
        flag.scope = scope();
        add(to, reader, flag);
        if (!chance(8)) {
            add(to, reader, {.what = Op::fence, .scope = scope()});
        }
        if (!chance(4)) {
            data.what = chance(4) ? Op::store : Op::load;
            data.value = ++values_;
            add(to, reader, data);
        }
    }

    std::mt19937 random_;
    Program all_;
    bool with_flags_ = false, with_copies_ = false;
    std::vector<std::array<unsigned, 4>> actors_;   // of each block: who does most of it
    std::vector<std::array<bool, mbarriers>> used_; // since the last barrier
    std::vector<std::array<unsigned, mbarriers>> phases_;
    std::vector<unsigned> named_;  // barriers that were used since the last one of the block
    std::vector<size_t> accesses_; // where the steps are that may be repeated
    unsigned values_ = 0, flags_ = 0;
};

// --- the two detectors ---------------------------------------------------------------------------

/// Lets a reference detector look on, in the place of the other one or before it.
class ReferenceOn final : public simt::ObserverFactory {
  public:
    ReferenceOn(ReferenceDetector& reference, bool alone)
        : reference_(reference), before_(std::exchange(simt::observer_factory, this)),
          alone_(alone) {}
    ~ReferenceOn() override { simt::observer_factory = before_; }
    ReferenceOn(const ReferenceOn&) = delete;
    ReferenceOn& operator=(const ReferenceOn&) = delete;

    void begin_launch() override { before_->begin_launch(); }
    simt::Observers observers(simt::Block& block) override {
        simt::Observers chosen = alone_ ? simt::Observers() : before_->observers(block);
        simt::sole_detector = nullptr;
        const std::lock_guard lock(mutex_);
        own_.push_back(reference_.observer(block));
        chosen.insert(chosen.begin(), own_.back().get()); // before the other one stops the block
        return chosen;
    }
    void end_launch(const simt::Launch&, const simt::Kernel&) override {}

  private:
    ReferenceDetector& reference_;
    simt::ObserverFactory* before_;
    bool alone_;
    std::mutex mutex_;
    std::vector<std::unique_ptr<simt::Observer>> own_; // of each worker
};

/// Where in its memory the fault is, by its message.
long byte_of(const Fault& fault) {
    const size_t at = fault.summary.find("at byte ");
    return at == std::string::npos ? -1 : std::stol(fault.summary.substr(at + 8));
}

/// Whether the detector's fault is this one. Of lanes that did the same, it names any.
bool is_same(const Fault& fault, const Incident& incident) {
    const auto is_other = [&](const ByteAccess& one) {
        return one.who.block == fault.other.block.x &&
               one.thread / 32 == fault.other.thread.x / 32 && one.origin == fault.other.origin;
    };
    return fault.where.block.x == incident.block && fault.where.thread.x == incident.thread &&
           fault.where.origin == incident.origin &&
           (incident.offset < 0 || byte_of(fault) == incident.offset) &&
           (fault.kind == FaultKind::missing_fence
                ? incident.lacks_fence
                : std::ranges::any_of(incident.races_with, is_other));
}

/// Whether it is the warning of a volatile flag that orders nothing.
bool is_of_flag(const std::optional<Fault>& fault) {
    return fault && fault->kind == FaultKind::volatile_conflict;
}

/// Whether it is the warning that the reader has no fence, at this access.
bool is_warning(const std::optional<Fault>& fault, const Incident& incident) {
    return fault && fault->kind == FaultKind::missing_acquire &&
           fault->where.block.x == incident.block && fault->where.thread.x == incident.thread &&
           fault->where.origin == incident.origin;
}

struct Count {
    unsigned programs = 0, clean = 0, faulty = 0, doubtful = 0;
};

std::string told(const std::optional<Fault>& fault) {
    return fault ? std::string(fault->what()) : "no fault";
}
std::string told(const std::vector<Incident>& incidents) {
    std::string text;
    for (const Incident& one : incidents) {
        text += "block " + std::to_string(one.block) + ", thread " + std::to_string(one.thread) +
                " at " + std::to_string(simt::resolve({one.origin}).front().line) + ", byte " +
                std::to_string(one.offset) + (one.lacks_fence ? " lacks a fence" : "") +
                (one.only_doubtful ? " doubtful" : "") + "; races with";
        for (const ByteAccess& other : one.races_with) {
            text += " " + std::to_string(other.who.block) + "/" + std::to_string(other.thread) +
                    " at " + std::to_string(simt::resolve({other.origin}).front().line);
        }
        text += "\n";
    }
    return text.empty() ? "nothing" : text;
}

/// What both say of a program.
struct Verdicts {
    std::optional<Fault> fault;
    std::vector<Incident> incidents;

    /// The plain one's first that can be told at once, or is a warning.
    std::vector<Incident>::const_iterator first() const {
        return std::ranges::find_if(
            incidents, [](const Incident& one) { return one.only_doubtful || !one.is_told_later; });
    }
    bool begin_doubtful() const { return first() != incidents.end() && first()->only_doubtful; }
    bool agree() const {
        if (incidents.empty()) {
            return !fault;
        }
        const auto end = first() == incidents.end() ? first() : first() + 1;
        return fault && std::any_of(incidents.begin(), end,
                                    [&](const Incident& one) { return is_same(*fault, one); });
    }
};

/// Blocks that wait for each other take turns, in one way now and in another one later: there both
/// detectors look on at the same run. Else each has a run to itself.
Verdicts run(const Program& own, const Buffer<char>& memory) {
    const auto run_once = [&]() -> std::optional<Fault> {
        std::fill_n(memory.data(), memory_bytes, char{0});
        try {
            launch(carry_out, own.blocks, own.threads, memory_bytes, memory.data());
        } catch (const Fault& fault) {
            return fault;
        }
        return std::nullopt;
    };
    first_op = own.ops.data();
    ops_of_all = own.ops.size();
    const bool together = own.blocks > 1;
    ReferenceDetector reference;
    Verdicts both;
    {
        const ReferenceOn looks_on(reference, !together);
        both.fault = run_once();
    }
    both.incidents = reference.incidents();
    if (!together) {
        REQUIRE(told(both.fault) == "no fault"); // nobody would have told
        both.fault = run_once();
    }
    return both;
}

/// Runs a program under both, which must agree.
void compare(unsigned seed, const Buffer<char>& memory, Count& count) {
    const Program own = Generator(seed).program();
    simt::Options chosen;
    chosen.detect = true;
    chosen.schedule = schedules()[seed % schedules().size()];
    chosen.schedule.number %= own.threads;
    chosen.cp_async = seed % 2 == 0 ? simt::CpAsync::late : simt::CpAsync::early;
    const With watched(chosen);
    Verdicts both = run(own, memory);
    bool agree = false;
    ++count.programs;
    if (both.begin_doubtful()) {
        ++count.doubtful;
        simt::options().strict = true; // then a warning ends it
        both = run(own, memory);
        agree = both.agree() || is_of_flag(both.fault) ||
                (both.begin_doubtful() && is_warning(both.fault, *both.first()));
    } else {
        ++(both.incidents.empty() ? count.clean : count.faulty);
        agree = both.agree();
    }
    if (!agree) {
        FAIL_CHECK("program " << seed << ", schedule " << simt::to_string(chosen.schedule)
                              << ": the detector says\n"
                              << told(both.fault) << "\nand the plain one\n"
                              << told(both.incidents));
    }
}

} // namespace

TEST_CASE("the detector agrees with a plain one on random programs", "[reference]") {
    const Buffer<char> memory(memory_bytes);
    const char* const wanted = std::getenv("FLASH_RANDOM_PROGRAMS");
    const unsigned programs = wanted == nullptr ? 2000 : static_cast<unsigned>(std::atoi(wanted));
    Count count;
    for (unsigned seed = 0; seed < programs; ++seed) {
        compare(seed, memory, count);
    }
    std::printf("%u random programs: %u clean, %u faulty, %u doubtful\n", count.programs,
                count.clean, count.faulty, count.doubtful);
    // else they would say little
    CHECK(count.clean > programs / 5);
    CHECK(count.faulty > programs / 5);
}
