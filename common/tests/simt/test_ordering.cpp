// What orders two accesses, exactly: pairs of kernels that differ in one step. The right one must
// pass in every schedule with copies landing early and late; the wrong one must be reported in
// every one of them.
#include <catch2/matchers/catch_matchers_string.hpp>

#include "common/cuda/ptx/cp_async.hpp"
#include "common/cuda/ptx/mbarrier.hpp"
#include "common/tests/simt/support.hpp"

using namespace simt_test;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr unsigned threads = 96; // three warps

int line(const char* tag) { return line_of(__FILE__, tag); }

using OneBuffer = void (*)(const float* in, float* out);

/// `blocks` of 96 threads, each with an element of `in` and of `out`.
void run(OneBuffer kernel, int blocks = 3) {
    const Buffer<float> in(static_cast<size_t>(blocks) * 4 * threads),
        out(static_cast<size_t>(blocks) * threads);
    launch(kernel, blocks, threads, 16 * threads, static_cast<const float*>(in.data()), out.data());
}

void must_pass(OneBuffer kernel) {
    in_every_way([&] { CHECK_NOTHROW(run(kernel)); });
}

/// A race of two tagged lines, either of which may come first. Where the first starts a copy, the
/// second may also meet it in flight.
void must_race(OneBuffer kernel, const char* one, const char* other) {
    in_every_way([&] {
        const Fault fault = fault_of([&] { run(kernel); });
        CAPTURE(fault.what());
        CHECK((fault.kind == FaultKind::race || fault.kind == FaultKind::async_copy_in_flight));
        CHECK(fault.where.line.line + fault.other.line.line == line(one) + line(other));
    });
}

void must_be_in_flight(OneBuffer kernel, const char* use) {
    in_every_way([&] {
        const Fault fault = fault_of([&] { run(kernel); });
        CAPTURE(fault.what());
        CHECK(fault.kind == FaultKind::async_copy_in_flight);
        CHECK(fault.where.line.line == line(use));
    });
}

/// The block's part of the output; its shared memory, one float4 per thread.
__device__ float& own(float* out) { return out[blockIdx.x * threads + threadIdx.x]; }
__device__ unsigned neighbour_warp() { return (threadIdx.x + 32) % threads; }
__device__ void copy_own(const float* in) {
    float* smem = flash::dynamic_shared<float>();
    cp_async_16(smem + 4 * threadIdx.x, in + 4 * (blockIdx.x * threads + threadIdx.x)); // own copy
}

__device__ void make(uint64_t* mbarrier, int arrivals) {
    if (threadIdx.x == 0) {
        mbarrier_init(mbarrier, arrivals);
    }
    __syncthreads(); // the mbarrier is initialised
}

// --- epochs --------------------------------------------------------------------------------------

/// Each thread reads what another one wrote and then overwrites it, round after round.
template <bool both> __global__ void rounds(const float* in, float* out) {
    __shared__ float tile[threads];
    float sum = 0;
    for (int round = 0; round < 4; ++round) {
        tile[threadIdx.x] = in[threadIdx.x]; // write of a round
        __syncthreads();                     // the tile is complete
        sum += tile[neighbour_warp()];       // read of a round
        if (both || round != 2) {
            __syncthreads(); // all have read it
        }
    }
    own(out) = sum;
}

/// Warps skip work in some epochs, so that their clocks and histories differ.
__global__ void uneven_epochs(const float* in, float* out) {
    __shared__ float tile[threads];
    const unsigned warp = threadIdx.x / 32;
    tile[threadIdx.x] = in[threadIdx.x];
    for (unsigned epoch = 0; epoch < 6; ++epoch) {
        if (warp == epoch % 3) {
            __syncwarp(); // nothing: the clocks of this warp run ahead
        }
        __syncthreads(); // the tile belongs to warp epoch % 3
        if (warp == epoch % 3) {
            const float other = tile[threadIdx.x ^ 1u];
            __syncwarp(); // all lanes have read
            tile[threadIdx.x] = other;
            tile[neighbour_warp()] += 1; // of a warp that leaves the tile alone in this epoch
        }
        __syncthreads(); // the tile belongs to all, for reading
        own(out) = tile[(threadIdx.x + 32 * epoch) % threads];
        __syncthreads(); // all have read
    }
}

/// __syncthreads_or orders as __syncthreads does.
__global__ void variants(const float* in, float* out) {
    __shared__ float tile[threads];
    tile[threadIdx.x] = in[threadIdx.x];
    int holds = __syncthreads_or(threadIdx.x % 2 == 0);
    const float first = tile[neighbour_warp()];
    holds += __syncthreads_or(holds > 0);
    tile[threadIdx.x] = first;
    holds += __syncthreads_or(holds > 0);
    own(out) = tile[neighbour_warp()] + static_cast<float>(holds);
}

// --- bytes ---------------------------------------------------------------------------------------

template <bool apart> __global__ void flags(const float*, float* out) {
    __shared__ unsigned char flag[threads];
    const auto raised = static_cast<unsigned char>(threadIdx.x);
    flag[apart ? threadIdx.x : threadIdx.x / 2] = raised; // flag of a thread
    __syncthreads();                                      // all flags are set
    own(out) = flag[apart ? neighbour_warp() : 0];
}

/// A word, its halves and its bytes in turn.
__global__ void parts(const float*, float* out) {
    __shared__ unsigned word[threads];
    word[threadIdx.x] = 1;
    __syncthreads(); // words before halves
    auto* const half = reinterpret_cast<unsigned short*>(word);
    half[2 * threadIdx.x + 1] = half[2 * neighbour_warp()];
    __syncthreads(); // halves before bytes
    auto* const byte = reinterpret_cast<unsigned char*>(word);
    for (unsigned i = 0; i < 4; ++i) {
        byte[i * threads + threadIdx.x] = 1; // four threads share a word
    }
    __syncthreads(); // bytes before words
    own(out) = static_cast<float>(word[neighbour_warp()]);
    __syncthreads(); // words read before they are written
    word[neighbour_warp()] = 2;
}

/// A byte of a word that another thread writes as a whole.
__global__ void byte_of_word(const float*, float* out) {
    __shared__ unsigned word[threads];
    word[threadIdx.x] = 1; // whole word
    // its last byte
    own(out) = reinterpret_cast<const unsigned char*>(word)[4 * (threadIdx.x ^ 1u) + 3];
}

// --- where shared memory is declared -------------------------------------------------------------

__device__ float sum_of_block(float value) {
    __shared__ float partial[3];
    if (threadIdx.x % 32 == 0) {
        partial[threadIdx.x / 32] = value;
    }
    __syncthreads(); // all warps' values are there
    return partial[0] + partial[1] + partial[2];
}

__global__ void sum_in_function(const float* in, float* out) {
    own(out) = sum_of_block(in[threadIdx.x]);
    __syncthreads(); // partial is read before it is written again
    own(out) += sum_of_block(in[threadIdx.x]);
    const auto in_lambda = [&] {
        __shared__ float tile[threads];
        tile[threadIdx.x] = in[threadIdx.x];
        __syncthreads(); // the tile is complete
        return tile[neighbour_warp()];
    };
    own(out) += in_lambda();
}

// --- atomics -------------------------------------------------------------------------------------

template <bool barrier> __global__ void histogram(const float*, float* out) {
    __shared__ int count[4];
    for (int round = 0; round < 2; ++round) {
        if (threadIdx.x < 4) {
            count[threadIdx.x] = 0; // reset
        }
        __syncthreads(); // all counts are zero
        atomicAdd(&count[threadIdx.x % 4], 1);
        __syncthreads();                                        // all have counted
        own(out) = static_cast<float>(count[threadIdx.x / 32]); // counts read
        if (barrier) {
            __syncthreads(); // all have read
        }
    }
}

// --- global memory -------------------------------------------------------------------------------

/// Threads of a block hand results on through global memory, each block in its own part.
__global__ void hand_on(const float* in, float* out) {
    own(out) = in[threadIdx.x];
    __syncthreads(); // the block's part is written
    const float other = out[blockIdx.x * threads + neighbour_warp()];
    __syncthreads(); // and read
    own(out) = other;
}

__global__ void hand_on_in_any_block(const float*, float* out) {
    const unsigned begin = blockIdx.x * blockDim.x, last = blockDim.x - 1;
    const float other = out[begin + last - threadIdx.x]; // of the launch before
    __syncthreads();                                     // all have read
    out[begin + threadIdx.x] = other;
}

// --- copies --------------------------------------------------------------------------------------

/// Started in one epoch, waited for in another, read by others in a third.
template <bool barrier> __global__ void copy_over_epochs(const float* in, float* out) {
    const float* smem = flash::dynamic_shared<float>();
    copy_own(in);
    flash::cp_async_commit();
    __syncthreads(); // nothing is ordered by it: the copy is in flight
    flash::cp_async_wait<0>();
    if (barrier) {
        __syncthreads(); // all copies have landed
    }
    own(out) = smem[4 * neighbour_warp()]; // read by another warp
}

/// The copy is announced to an mbarrier, and its own thread waits for it as well.
template <bool wait_at_mbarrier> __global__ void waited_for_twice(const float* in, float* out) {
    const float* smem = flash::dynamic_shared<float>();
    __shared__ uint64_t full[1];
    make(full, threads);
    copy_own(in);
    cp_async_mbarrier_arrive(full);
    flash::cp_async_commit();
    __syncwarp(); // nothing: the clocks go on
    __syncwarp(); // and on
    flash::cp_async_wait<0>();
    if (wait_at_mbarrier) {
        mbarrier_wait(full, 0); // all copies have landed
    }
    own(out) = smem[4 * neighbour_warp()]; // use by another warp
}

/// A thread must wait for its own copy as others must. That others have waited, it does not know by
/// a shuffle, and a __syncthreads does not wait for copies.
enum class Between { nothing, shuffle, barrier };

template <Between between, bool wait>
__global__ void handed_to_mbarrier(const float* in, float* out) {
    const float* smem = flash::dynamic_shared<float>();
    __shared__ uint64_t full[1];
    make(full, threads);
    copy_own(in);
    cp_async_mbarrier_arrive(full);
    if (between == Between::barrier) {
        __syncthreads(); // in another epoch than the copy
    }
    if (wait || (between == Between::shuffle && threadIdx.x != 70)) {
        mbarrier_wait(full, 0); // all copies have landed
    }
    if (between == Between::shuffle) {
        __shfl_sync(0xffffffffu, 0, 0);
    }
    // read of a copy
    own(out) = smem[4 * (between == Between::barrier ? neighbour_warp() : threadIdx.x)];
}

/// One thread waits for all copies, and a barrier lets the others know.
__global__ void one_waits_for_all(const float* in, float* out) {
    const float* smem = flash::dynamic_shared<float>();
    __shared__ uint64_t full[1];
    make(full, threads);
    copy_own(in);
    cp_async_mbarrier_arrive(full);
    if (threadIdx.x == 40) {
        mbarrier_wait(full, 0); // all copies have landed
    }
    __syncthreads(); // and now all threads know
    own(out) = smem[4 * neighbour_warp()];
}

// --- mbarriers -----------------------------------------------------------------------------------

/// Warp 0 writes, warp 1 passes the word on, warp 2 reads what warp 0 wrote.
template <bool in_order> __global__ void chain(const float* in, float* out) {
    __shared__ float tile[32];
    __shared__ uint64_t link[2];
    const unsigned warp = threadIdx.x / 32;
    make(link, 32);
    make(link + 1, 32);
    if (warp == 0) {
        if (in_order) {
            tile[threadIdx.x] = in[threadIdx.x];
        }
        mbarrier_arrive(link); // warp 0 has written
        if (!in_order) {
            tile[threadIdx.x] = in[threadIdx.x]; // write after the arrival
        }
    } else if (warp == 1) {
        mbarrier_wait(link, 0);
        mbarrier_arrive(link + 1); // warp 1 knows it
    } else {
        mbarrier_wait(link + 1, 0);
        own(out) = tile[threadIdx.x - 64]; // read at the end of the chain
    }
}

/// One lane waits for the warp.
template <bool sync> __global__ void one_lane_waits(const float* in, float* out) {
    __shared__ float tile[32];
    __shared__ uint64_t full[1];
    make(full, 32);
    if (threadIdx.x < 32) {
        tile[threadIdx.x] = in[threadIdx.x]; // write by warp 0
        mbarrier_arrive(full);               // the tile is complete
    } else if (threadIdx.x < 64) {
        if (threadIdx.x == 32) {
            mbarrier_wait(full, 0);
        }
        if (sync) {
            __syncwarp(); // lane 0 tells the others
        }
        own(out) = tile[threadIdx.x ^ 33u]; // read by warp 1
    }
}

/// Arrivals in one epoch, the wait in another: what warp 0 writes in between is not handed on with
/// its copies, whenever those land.
template <bool ordered> __global__ void after_the_copy(const float* in, float* out) {
    __shared__ float tile[32];
    __shared__ uint64_t full[1];
    make(full, threads);
    copy_own(in);
    cp_async_mbarrier_arrive(full);
    __syncthreads(); // a new epoch, with the copies in flight
    if (threadIdx.x < 32) {
        tile[threadIdx.x] = in[threadIdx.x]; // write after the copy
    }
    if (ordered) {
        __syncthreads(); // the tile is written
    }
    if (threadIdx.x >= 64) {
        mbarrier_wait(full, 0);            // all copies have landed
        own(out) = tile[threadIdx.x - 64]; // read after the wait
    }
}

/// A second phase in a later epoch than the first: who waits for it knows by the barrier that the
/// first is over.
template <bool barrier> __global__ void phases(const float* in, float* out) {
    __shared__ float tile[32];
    __shared__ uint64_t full[1];
    make(full, 32);
    if (threadIdx.x < 32) {
        mbarrier_arrive(full); // phase 0
    }
    if (barrier) {
        __syncthreads(); // phase 0 is over
    }
    if (threadIdx.x < 32) {
        tile[threadIdx.x] = in[threadIdx.x];
        mbarrier_arrive(full); // phase 1
    } else if (threadIdx.x < 64) {
        mbarrier_wait(full, 1); // the tile is complete
        own(out) = tile[threadIdx.x - 32];
    }
}

} // namespace

TEST_CASE("ordering: __syncthreads begins a new epoch") {
    must_pass(rounds<true>);
    must_pass(uneven_epochs);
    must_pass(variants);
    must_race(rounds<false>, "read of a round", "write of a round");
}

TEST_CASE("ordering: the bytes of a word are different places") {
    must_pass(flags<true>);
    must_pass(parts);
    must_race(flags<false>, "flag of a thread", "flag of a thread");
    must_race(byte_of_word, "whole word", "its last byte");
}

TEST_CASE("ordering: __shared__ arrays of functions and lambdas") { must_pass(sum_in_function); }

TEST_CASE("ordering: atomic operations between barriers") {
    must_pass(histogram<true>);
    must_race(histogram<false>, "reset", "counts read");
}

TEST_CASE("ordering: blocks reuse threads and shared memory, launches reuse global memory") {
    must_pass(hand_on);
    const Buffer<float> data(3 * threads);
    in_every_way([&] { // each launch reads what others of the one before wrote; sizes change
        for (const unsigned size : {threads, 32u, 1u, 64u, threads}) {
            CHECK_NOTHROW(launch(hand_on_in_any_block, 3, size, 0,
                                 static_cast<const float*>(data.data()), data.data()));
        }
    });
}

TEST_CASE("ordering: copies waited for by their own threads") {
    must_pass(copy_over_epochs<true>);
    must_race(copy_over_epochs<false>, "own copy", "read by another warp");
    must_pass(waited_for_twice<true>);
    must_race(waited_for_twice<false>, "own copy", "use by another warp");
}

TEST_CASE("ordering: copies handed to an mbarrier") {
    must_pass(handed_to_mbarrier<Between::nothing, true>);
    must_be_in_flight(handed_to_mbarrier<Between::nothing, false>, "read of a copy");
    must_pass(handed_to_mbarrier<Between::shuffle, true>);
    must_be_in_flight(handed_to_mbarrier<Between::shuffle, false>, "read of a copy");
    must_pass(handed_to_mbarrier<Between::barrier, true>);
    must_be_in_flight(handed_to_mbarrier<Between::barrier, false>, "read of a copy");
    must_pass(one_waits_for_all);
    must_pass(after_the_copy<true>);
    must_race(after_the_copy<false>, "write after the copy", "read after the wait");
}

TEST_CASE("ordering: mbarriers hand on what their arrivals know") {
    must_pass(chain<true>);
    must_race(chain<false>, "write after the arrival", "read at the end of the chain");
    must_pass(one_lane_waits<true>);
    must_race(one_lane_waits<false>, "write by warp 0", "read by warp 1");
    must_pass(phases<true>);
    in_every_way([] { // the wait is too late for a phase, or too early
        const FaultKind kind = fault_of([] { run(phases<false>); }).kind;
        CHECK((kind == FaultKind::missed_phase || kind == FaultKind::race));
    });
}
