// What orders TMA, wgmma and threads, exactly: pairs of kernels that differ in one step, as in
// test_ordering.cpp.
#include <catch2/matchers/catch_matchers_string.hpp>

#include <algorithm>

#include "common/cuda/launch/tensor_map.hpp"
#include "common/cuda/ptx/mbarrier.hpp"
#include "common/cuda/ptx/tma.hpp"
#include "common/cuda/ptx/warpgroup.hpp"
#include "common/cuda/ptx/wgmma.hpp"
#include "common/tests/simt/support.hpp"

using namespace simt_test;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr int threads = 256, tile_bytes = 64 * 128;

/// `in` and `out` are 64 x 64 bf16.
using Kernel = void (*)(TensorMap in, TensorMap out);

void run(Kernel kernel) {
    const Buffer<Bfloat16> in(std::vector<Bfloat16>(64 * 64, Bfloat16{0x3f80})), out(64 * 64);
    launch(kernel, 2, threads, 3 * tile_bytes,
           make_tensor_map<2>(in.data(), {64, 64}, {64}, {64, 64}),
           make_tensor_map<2>(in.data(), {64, 64}, {64}, {64, 64}));
}

void must_pass(Kernel kernel) {
    in_every_way([&] { CHECK_NOTHROW(run(kernel)); });
}

void must_fail(Kernel kernel, const std::vector<FaultKind>& kinds,
               const std::vector<const char*>& where, const std::string& message = "") {
    in_every_way([&] {
        const Fault fault = fault_of([&] { run(kernel); });
        CAPTURE(fault.what());
        CHECK(std::ranges::count(kinds, fault.kind) == 1);
        CHECK(std::ranges::any_of(where, [&](const char* tag) {
            return line_of(__FILE__, tag) == fault.where.line.line;
        }));
        CHECK_THAT(fault.what(), ContainsSubstring(message));
    });
}

__device__ char* tile(int number) { return dynamic_shared<char>() + number * tile_bytes; }
__device__ uint32_t& word(int number, int i) {
    return reinterpret_cast<uint32_t*>(tile(number))[i];
}
__device__ void begin_load(const TensorMap& in, int number, uint64_t* barrier) {
    mbarrier_expect_tx(barrier, tile_bytes);
    tma_load<2>(tile(number), in, {0, 0}, barrier); // load
}
__device__ void make(uint64_t* barriers, int count) {
    for (int i = 0; i < count && threadIdx.x == 0; ++i) {
        mbarrier_init(barriers + i, 1);
    }
    if (threadIdx.x == 0) {
        fence_mbarrier_init();
    }
    __syncthreads(); // the mbarriers are there
}

// --- who knows that a load has landed ------------------------------------------------------------

enum class Told { nobody, by_syncthreads, by_named_barrier, by_mbarrier };

template <Told told> __global__ void landed(TensorMap in, TensorMap) {
    __shared__ uint64_t barriers[2];
    make(barriers, 2);
    if (threadIdx.x == 0) {
        begin_load(in, 0, barriers);
        mbarrier_wait(barriers, 0);
        if (told == Told::by_mbarrier) {
            mbarrier_arrive(barriers + 1);
        }
    }
    if (told == Told::by_syncthreads) {
        __syncthreads(); // thread 0 has waited
    }
    if (told == Told::by_named_barrier) {
        named_barrier_sync(3, threads); // thread 0 has waited
    }
    if (told == Told::by_mbarrier) {
        mbarrier_wait(barriers + 1, 0); // thread 0 has waited
    }
    word(1, threadIdx.x) = word(0, threadIdx.x); // use of what has landed
}

/// Two loads on two mbarriers: waiting for one says nothing of the other.
template <bool both> __global__ void two_loads(TensorMap in, TensorMap) {
    __shared__ uint64_t barriers[2];
    make(barriers, 2);
    if (threadIdx.x == 0) {
        begin_load(in, 0, barriers);
        begin_load(in, 1, barriers + 1);
    }
    mbarrier_wait(barriers + 1, 0);
    if (both) {
        mbarrier_wait(barriers, 0);
    }
    word(2, threadIdx.x) = word(0, threadIdx.x); // use of the first
    mbarrier_wait(barriers, 0);
}

__global__ void left_behind(TensorMap in, TensorMap) {
    __shared__ uint64_t barriers[1];
    make(barriers, 1);
    if (threadIdx.x == 0) {
        begin_load(in, 0, barriers);
    }
}

// --- what a load may overwrite -------------------------------------------------------------------

template <bool barrier> __global__ void load_over_reads(TensorMap in, TensorMap) {
    __shared__ uint64_t barriers[2];
    make(barriers, 2);
    if (threadIdx.x == 0) {
        begin_load(in, 0, barriers);
    }
    mbarrier_wait(barriers, 0);
    word(1, threadIdx.x) = word(0, threadIdx.x); // read before the next load
    if (barrier) {
        __syncthreads(); // all have read
    }
    if (threadIdx.x == 0) {
        begin_load(in, 0, barriers + 1);
    }
    mbarrier_wait(barriers + 1, 0);
}

template <bool fence> __global__ void load_over_writes(TensorMap in, TensorMap) {
    __shared__ uint64_t barriers[1];
    make(barriers, 1);
    word(0, threadIdx.x) = 0;
    if (fence) {
        fence_proxy_async();
    }
    __syncthreads(); // all have written
    if (threadIdx.x == 0) {
        begin_load(in, 0, barriers);
    }
    mbarrier_wait(barriers, 0);
}

// --- stores --------------------------------------------------------------------------------------

enum class Fence { none, of_writers, of_reader, too_early };

__device__ void fill(int number) {
    for (int i = threadIdx.x; i < tile_bytes / 4; i += threads) {
        word(number, i) = 0; // write
    }
}

template <Fence fence> __global__ void store_after_writes(TensorMap, TensorMap out) {
    if (fence == Fence::too_early) {
        fence_proxy_async();
    }
    fill(0);
    if (fence == Fence::of_writers) {
        fence_proxy_async();
    }
    __syncthreads(); // all have written
    if (threadIdx.x == 0 && blockIdx.x == 0) {
        if (fence == Fence::of_reader) {
            fence_proxy_async();
        }
        tma_store<2>(out, {0, 0}, tile(0)); // store
        bulk_commit();
        bulk_wait_read<0>();
    }
}

__global__ void only_a_fence() { fence_proxy_async(); }

template <bool wait> __global__ void write_over_store(TensorMap, TensorMap out) {
    fill(0);
    fence_proxy_async();
    __syncthreads(); // all have written
    if (threadIdx.x == 0 && blockIdx.x == 0) {
        tma_store<2>(out, {0, 0}, tile(0));
        bulk_commit();
        if (wait) {
            bulk_wait_read<0>();
        }
    }
    __syncthreads();          // the tile is free
    word(0, threadIdx.x) = 1; // write over the store
    bulk_wait_read<0>();
}

// --- wgmma ---------------------------------------------------------------------------------------

/// Operands that threads have written: A, of which each warp reads its own rows, and B, of which
/// each warp reads all.
enum class Operand { unfenced, own_rows, all_rows };

template <Operand A, bool barrier> __global__ void written_operands(TensorMap, TensorMap) {
    if (threadIdx.x >= 128) {
        fill(1); // by the other warpgroup's half, too
        fence_proxy_async();
        named_barrier_arrive(1, 256);
        return;
    }
    fill(1);
    for (int i = 0; i < 16; ++i) {
        word(0, threadIdx.x / 32 * 512 + i * 32 + threadIdx.x % 32) = 0; // write of own rows
    }
    if (A != Operand::unfenced) {
        fence_proxy_async();
    }
    __syncwarp(); // the warp's rows of A are complete
    if (barrier) {
        named_barrier_sync(1, 256); // B is complete
    }
    const uint64_t first = wgmma_descriptor(tile(A == Operand::all_rows ? 1 : 0), 0, 1024);
    const uint64_t second = wgmma_descriptor(tile(1), 0, 1024);
    float C[8][4];
    wgmma_fence();
    wgmma_m64k16<Bfloat16, 64>(C, first, second, false); // product
    wgmma_commit();
    wgmma_wait<0>(C);
}

/// All know of a write. Of the fence behind it thread 0 hears alone, or each thread of the product.
template <bool all> __global__ void told_of_fence(TensorMap, TensorMap) {
    __shared__ uint64_t fenced[1];
    make(fenced, 1);
    fill(0);
    fence_proxy_async();
    __syncthreads(); // the operand is complete
    if (threadIdx.x == 200) {
        word(0, 0) = 1;
    }
    __syncthreads(); // all know of that write
    if (threadIdx.x == 200) {
        fence_proxy_async();
        mbarrier_arrive(fenced);
    }
    if (threadIdx.x >= 128) {
        return;
    }
    if (all || threadIdx.x == 0) {
        mbarrier_wait(fenced, 0);
    }
    const uint64_t one = wgmma_descriptor(tile(0), 0, 1024);
    float C[8][4];
    wgmma_fence();
    wgmma_m64k16<Bfloat16, 64>(C, one, one, false); // product behind a fence
    wgmma_commit();
    wgmma_wait<0>(C);
}

/// Registers of a product that other instructions touched.
template <bool fence, bool of_A> __global__ void touched_registers(TensorMap, TensorMap) {
    fill(0);
    fence_proxy_async();
    __syncthreads(); // the operand is complete
    const uint64_t B = wgmma_descriptor(tile(0), 0, 1024);
    float C[8][4];
    uint32_t A[4] = {};
    wgmma_fence();
    wgmma_m64k16<Bfloat16, 64>(C, A, B, false);
    wgmma_commit();
    wgmma_wait<0>(C);
    if (of_A) {
        A[threadIdx.x % 4] = 1;
    } else {
        C[threadIdx.x % 8][0] *= 2;
    }
    if (fence) {
        wgmma_fence();
    }
    wgmma_m64k16<Bfloat16, 64>(C, A, B); // second product
    wgmma_commit();
    wgmma_wait<0>(C);
}

/// Registers of a product that the thread reads or writes, before it has waited or after.
enum class Register { read_A, write_A, read_C, write_C, copy_of_A };

template <Register touched, bool wait> __global__ void touched_under_way(TensorMap, TensorMap) {
    fill(0);
    fence_proxy_async();
    __syncthreads(); // the operand is complete
    const uint64_t B = wgmma_descriptor(tile(0), 0, 1024);
    float C[8][4];
    uint32_t A[2][4] = {}, copy[2][4];
    copy_A(copy, A);
    wgmma_fence();
    wgmma_m64k16<Bfloat16, 64>(C, A[0], B, false);
    wgmma_m64k16<Bfloat16, 64>(C, A[1], B); // product of A
    wgmma_commit();
    if (wait) {
        wgmma_wait<0>(C);
    }
    const unsigned i = threadIdx.x % 4;
    if (touched == Register::read_A) {
        word(1, threadIdx.x) = A[1][i]; // read of A
    } else if (touched == Register::write_A) {
        A[1][i] = 1; // write of A
    } else if (touched == Register::read_C) {
        word(1, threadIdx.x) = static_cast<uint32_t>(C[7][i]); // read of C
    } else if (touched == Register::write_C) {
        C[7][i] = 1; // write of C
    } else {
        word(1, threadIdx.x) = copy[1][i];
    }
    wgmma_wait<0>(C);
}

/// Each warp waits for its own part of a product, and may read all of A and of B.
enum class Over { own_rows, other_rows, B };

template <Over place, bool barrier> __global__ void write_over_operand(TensorMap, TensorMap) {
    fill(0);
    fill(1);
    fence_proxy_async();
    __syncthreads(); // the operands are complete
    if (threadIdx.x >= 128) {
        return;
    }
    const uint64_t A = wgmma_descriptor(tile(0), 0, 1024), B = wgmma_descriptor(tile(1), 0, 1024);
    float C[8][4];
    wgmma_fence();
    wgmma_m64k16<Bfloat16, 64>(C, A, B, false); // product of the warps
    wgmma_commit();
    wgmma_wait<0>(C);
    if (barrier) {
        named_barrier_sync(1, 128); // all warps have waited
    }
    if (threadIdx.x == 0) {
        // write over the operand
        word(place == Over::B ? 1 : 0, place == Over::other_rows ? 512 : 0) = 1;
    }
}

/// Some of a warpgroup go another way.
template <int warps> __global__ void part_of_warpgroup(TensorMap, TensorMap) {
    fill(0);
    fence_proxy_async();
    __syncthreads(); // the operand is complete
    const uint64_t one = wgmma_descriptor(tile(0), 0, 1024);
    float C[8][4];
    if (static_cast<int>(threadIdx.x / 32) < warps) {
        wgmma_fence();
        wgmma_m64k16<Bfloat16, 64>(C, one, one, false); // by some warps
        wgmma_commit();
        wgmma_wait<0>(C);
    }
}

// --- named barriers, registers -------------------------------------------------------------------

enum class Barrier { right, no_wait, other_id, other_count, zero, late_warp };

template <Barrier form> __global__ void hand_over(TensorMap, TensorMap) {
    if (threadIdx.x >= 128) {
        word(0, threadIdx.x) = 1; // write before the hand-over
        // arrival
        named_barrier_arrive(form == Barrier::zero ? 0 : 2,
                             form == Barrier::other_count ? 224 : 256);
        return;
    }
    if (form == Barrier::late_warp && threadIdx.x < 32) {
        return;
    }
    if (form != Barrier::no_wait) {
        named_barrier_sync(form == Barrier::other_id ? 4 : 2, 256); // meeting
    }
    word(1, threadIdx.x) = word(0, threadIdx.x + 128); // read after the hand-over
}

/// Turns: two warpgroups, one barrier for each.
__global__ void turns(TensorMap, TensorMap) {
    const int own = threadIdx.x / 128;
    if (own == 0) {
        named_barrier_arrive(1, 256); // the first turn is the other's: barrier 1 + own
    }
    for (int round = 0; round < 5; ++round) {
        named_barrier_sync(own == 1 ? 1 : 2, 256); // my turn
        word(0, threadIdx.x % 128) = static_cast<uint32_t>(round);
        named_barrier_arrive(own == 1 ? 2 : 1, 256); // yours
    }
    if (own == 1) {
        named_barrier_sync(1, 256); // the last one of the other's
    }
}

template <int given, int taken> __global__ void registers(TensorMap, TensorMap) {
    if (threadIdx.x >= 128) {
        give_registers<given>(); // give
    } else {
        take_registers<taken>(); // take
    }
}

__global__ void reduction(float* sums, int count) {
    float* terms = dynamic_shared<float>();
    for (int i = threadIdx.x; i < count; i += blockDim.x) {
        terms[i] = static_cast<float>(i);
    }
    fence_proxy_async();
    __syncthreads(); // the terms are complete
    if (threadIdx.x == 0) {
        bulk_reduce_add(sums, terms, count * 4);
        bulk_commit();
        bulk_wait_read<0>();
    }
}

/// Copies `count` floats by way of shared memory.
template <bool waits> __global__ void copy_a_run(const float* in, float* out, int count) {
    __shared__ uint64_t barrier;
    make(&barrier, 1);
    float* terms = dynamic_shared<float>();
    if (threadIdx.x == 0) {
        mbarrier_expect_tx(&barrier, count * 4);
        bulk_load(terms, in, count * 4, &barrier); // bulk load
    }
    if (waits) {
        mbarrier_wait(&barrier, 0);
    }
    for (int i = threadIdx.x; i < count; i += blockDim.x) {
        out[i] = terms[i]; // use of the run
    }
}

const std::vector<FaultKind> race{FaultKind::race}, fence{FaultKind::missing_fence},
    stuck{FaultKind::deadlock};
const std::vector<FaultKind> in_flight{FaultKind::async_copy_in_flight},
    divergent{FaultKind::divergent_barrier};
const std::vector<FaultKind> early{FaultKind::async_copy_in_flight, FaultKind::uninitialised,
                                   FaultKind::race};

} // namespace

TEST_CASE("who has waited for a TMA load, and who was told, may use it", "[hopper]") {
    must_pass(landed<Told::by_syncthreads>);
    must_pass(landed<Told::by_named_barrier>);
    must_pass(landed<Told::by_mbarrier>);
    must_fail(landed<Told::nobody>, early, {"use of what has landed", "load"});
    must_pass(two_loads<true>);
    must_fail(two_loads<false>, in_flight, {"use of the first"});
    must_fail(left_behind, in_flight, {"load"}, "a block ends before a tma_load of it has landed");
}

TEST_CASE("a TMA load may overwrite what is read and written no more", "[hopper]") {
    must_pass(load_over_reads<true>);
    must_fail(load_over_reads<false>, early, {"load", "read before the next load"});
    must_pass(load_over_writes<true>);
    must_fail(load_over_writes<false>, fence, {"load"});
}

TEST_CASE("a TMA store reads what was written, fenced and told", "[hopper]") {
    must_pass(store_after_writes<Fence::of_writers>);
    must_pass(store_after_writes<Fence::of_reader>); // the fence is on the way, which is enough
    must_fail(store_after_writes<Fence::none>, fence, {"store"});
    must_fail(store_after_writes<Fence::too_early>, fence, {"store"});
    must_pass(write_over_store<true>);
    must_fail(write_over_store<false>, race, {"write over the store"},
              "while a tma_store may still read it");
}

TEST_CASE("a fence of one launch is forgotten in the next, which has more threads", "[hopper]") {
    const With options({.detect = true});
    CHECK_NOTHROW(launch(only_a_fence, 1, 32, 0));
    CHECK_NOTHROW(launch(only_a_fence, 1, 1024, 0));
}

TEST_CASE("a wgmma reads what was written, fenced and told", "[hopper]") {
    must_pass(written_operands<Operand::own_rows, true>);
    must_fail(written_operands<Operand::unfenced, true>, fence, {"product"});
    must_pass(told_of_fence<true>);
    must_fail(told_of_fence<false>, fence, {"product behind a fence"});
    must_fail(written_operands<Operand::own_rows, false>, early, {"product", "write"});
    must_fail(written_operands<Operand::all_rows, false>, early, {"product", "write"});
}

TEST_CASE("a wgmma_fence stands between registers and a wgmma", "[hopper]") {
    must_pass(touched_registers<true, false>);
    must_pass(touched_registers<true, true>);
    must_fail(touched_registers<false, false>, fence, {"second product"},
              "touched since the last wgmma_fence");
    must_fail(touched_registers<false, true>, fence, {"second product"},
              "touched since the last wgmma_fence");
}

TEST_CASE("registers of a wgmma are neither read nor written before its wait", "[hopper]") {
    const std::vector<FaultKind> under_way{FaultKind::wgmma_in_flight};
    const std::string of_A = "registers of A of a wgmma are touched before its wait";
    const std::string of_C = "accumulators of a wgmma are touched before its wait";
    must_pass(touched_under_way<Register::read_A, true>);
    must_pass(touched_under_way<Register::write_A, true>);
    must_pass(touched_under_way<Register::read_C, true>);
    must_pass(touched_under_way<Register::write_C, true>);
    must_pass(touched_under_way<Register::copy_of_A, false>);
    must_fail(touched_under_way<Register::read_A, false>, under_way, {"read of A"}, of_A);
    must_fail(touched_under_way<Register::write_A, false>, under_way, {"write of A"}, of_A);
    must_fail(touched_under_way<Register::read_C, false>, under_way, {"read of C"}, of_C);
    must_fail(touched_under_way<Register::write_C, false>, under_way, {"write of C"}, of_C);
}

TEST_CASE("a wgmma is over for a warp when this warp has waited", "[hopper]") {
    must_pass(write_over_operand<Over::own_rows, true>);
    must_pass(write_over_operand<Over::other_rows, true>);
    must_pass(write_over_operand<Over::B, true>);
    must_fail(write_over_operand<Over::own_rows, false>, race, {"write over the operand"},
              "thread (32,0,0) of block"); // PTX does not say that its product needs others
    must_fail(write_over_operand<Over::other_rows, false>, race, {"write over the operand"},
              "thread (32,0,0) of block");
    must_fail(write_over_operand<Over::B, false>, race, {"write over the operand"},
              "race: overwritten while a wgmma may still read it");
}

TEST_CASE("a wgmma is for a whole warpgroup", "[hopper]") {
    must_pass(part_of_warpgroup<4>);
    must_pass(part_of_warpgroup<8>);
    must_fail(part_of_warpgroup<3>, stuck, {"by some warps"}, "(96 of 128 have come)");
}

TEST_CASE("named barriers order who arrives before who waits", "[hopper]") {
    must_pass(hand_over<Barrier::right>);
    must_pass(turns);
    must_fail(hand_over<Barrier::no_wait>, {FaultKind::race, FaultKind::uninitialised},
              {"read after the hand-over", "write before the hand-over"});
    must_fail(hand_over<Barrier::other_id>, stuck, {"meeting"},
              "(barrier 4: 128 of 256 have come)");
    must_fail(hand_over<Barrier::late_warp>, stuck, {"meeting"},
              "(barrier 2: 224 of 256 have come)");
    must_fail(hand_over<Barrier::other_count>, divergent, {"meeting", "arrival"},
              "threads and for ");
    must_fail(hand_over<Barrier::zero>, divergent, {"arrival"}, "named barriers are 1 to 15");
}

TEST_CASE("registers that are taken were given before", "[hopper]") {
    must_pass(registers<232, 256>); // of 256 each, with 256 threads
    must_fail(registers<256, 232>, {FaultKind::invalid_access}, {"take"}, "232 registers a thread");
}

TEST_CASE("additions by TMA from several blocks do not race", "[hopper]") {
    in_every_way([] {
        const Buffer<float> sums(std::vector<float>(320, 1));
        CHECK_NOTHROW(launch(reduction, 3, threads, 4096, sums.data(), 320));
        for (size_t i = 0; i < 320; ++i) {
            REQUIRE(sums.values()[i] == 1 + 3 * static_cast<float>(i));
        }
    });
}

TEST_CASE("a bulk load needs no tensor map, and is waited for like one that does", "[hopper]") {
    std::vector<float> values(320);
    std::ranges::generate(values, [i = 0.0f]() mutable { return i++; });
    const Buffer<float> in(values), out(320);
    const auto copy = [&](void (*kernel)(const float*, float*, int), int first, int count) {
        launch(kernel, 1, threads, 4096, static_cast<const float*>(in.data() + first), out.data(),
               count);
    };
    in_every_way([&] {
        CHECK_NOTHROW(copy(copy_a_run<true>, 0, 320));
        CHECK(out.values() == values);
        const Fault fault = fault_of([&] { copy(copy_a_run<false>, 0, 320); });
        CHECK(std::ranges::count(early, fault.kind) == 1);
        // of a thread that read before it
        CHECK((fault.where.line.line == line_of(__FILE__, "use of the run") ||
               fault.where.line.line == line_of(__FILE__, "bulk load")));
    });
    CHECK(fault_of([&] { copy(copy_a_run<true>, 1, 300); }).kind == FaultKind::misaligned);
    CHECK(fault_of([&] { copy(copy_a_run<true>, 0, 318); }).kind == FaultKind::misaligned);
    const Fault beyond = fault_of([&] { copy(copy_a_run<true>, 4, 320); });
    CHECK(beyond.kind == FaultKind::out_of_bounds);
    CHECK_THAT(beyond.what(), ContainsSubstring("16 bytes past the end of data"));
}

TEST_CASE("a tensor map that TMA cannot use is refused", "[hopper]") {
    const auto refusal = [](int64_t offset, int64_t size, int64_t stride, int width, int height) {
        const Buffer<Half> tensor(4096);
        try {
            make_tensor_map<2>(tensor.data() + offset, {size, 8}, {stride}, {width, height});
        } catch (const Error& error) {
            return std::string(error.what());
        }
        return std::string("none");
    };
    CHECK(refusal(0, 64, 64, 64, 8) == "none");
    CHECK_THAT(refusal(1, 64, 64, 64, 8), ContainsSubstring("the tensor's address"));
    CHECK_THAT(refusal(0, 0, 64, 64, 8), ContainsSubstring("the size of dimension 0 is 0"));
    CHECK_THAT(refusal(0, 64, 63, 64, 8), ContainsSubstring("the stride of dimension 1 is 63"));
    CHECK_THAT(refusal(0, 64, 64, 72, 8), ContainsSubstring("the width of the box is 144"));
    CHECK_THAT(refusal(0, 64, 64, 24, 8), ContainsSubstring("the width of the box is 48"));
    CHECK(refusal(0, 64, 64, 32, 8) == "none"); // rows of 64 bytes have a swizzle of their own
    CHECK_THAT(refusal(0, 64, 64, 64, 257),
               ContainsSubstring("the side of the box in dimension 1 is 257"));
}

// --- where a box may begin -----------------------------------------------------------------------

template <int column, int row = 0> __global__ void begins_at(TensorMap in, TensorMap) {
    __shared__ uint64_t barrier;
    make(&barrier, 1);
    if (threadIdx.x == 0) {
        mbarrier_expect_tx(&barrier, tile_bytes);
        tma_load<2>(tile(0), in, {column, row}, &barrier); // box
    }
    mbarrier_wait(&barrier, 0);
}

template <int column, int row> __global__ void ends_at(TensorMap, TensorMap out) {
    if (threadIdx.x == 0 && blockIdx.x == 0) {
        for (int i = 0; i < tile_bytes / 4; ++i) {
            reinterpret_cast<int*>(tile(0))[i] = i;
        }
        fence_proxy_async();
        tma_store<2>(out, {column, row}, tile(0)); // store of a box
        bulk_commit();
        bulk_wait_read<0>();
    }
}

TEST_CASE(
    "a store does not begin before its tensor, as on a GPU, where it is an illegal instruction",
    "[hopper]") {
    must_pass(ends_at<8, 3>);
    must_fail(ends_at<0, -3>, {FaultKind::out_of_bounds}, {"store of a box"},
              "its coordinate 1 is -3");
    must_fail(ends_at<-8, 0>, {FaultKind::out_of_bounds}, {"store of a box"},
              "its coordinate 0 is -8");
    must_fail(ends_at<4, 0>, {FaultKind::misaligned}, {"store of a box"}, "coordinate 4");
}

TEST_CASE("a store writes the last 16 bytes of a row whole, so rows are a multiple of that",
          "[hopper]") {
    const Buffer<Bfloat16> in(64 * 104), out(64 * 104);
    const auto store_to_rows_of = [&](int64_t columns) {
        launch(ends_at<8, 3>, 1, threads, 3 * tile_bytes,
               make_tensor_map<2>(in.data(), {64, 64}, {64}, {64, 64}),
               make_tensor_map<2>(out.data(), {columns, 64}, {104}, {64, 64}));
    };
    CHECK_NOTHROW(store_to_rows_of(96));
    CHECK_THAT(fault_of([&] { store_to_rows_of(100); }).what(),
               ContainsSubstring("beyond the tensor's columns"));
}

TEST_CASE("a box begins at a multiple of 16 bytes, as on a GPU, where all else is an illegal "
          "instruction") {
    must_pass(begins_at<8>);
    must_pass(begins_at<-8>);
    must_fail(begins_at<3>, {FaultKind::misaligned}, {"box"},
              "coordinate 3 of the innermost dimension");
    must_fail(begins_at<-5>, {FaultKind::misaligned}, {"box"}, "coordinate -5");
}

TEST_CASE(
    "a load faults where its map begins, although no box leads there, as on a GPU; a store does "
    "not",
    "[hopper]") {
    const Buffer<Bfloat16> tensor(64 * 64);
    const auto outside = [&](Kernel kernel, int64_t first) {
        const TensorMap map = make_tensor_map<2>(tensor.data() + first, {64, 64}, {64}, {64, 64});
        launch(kernel, 1, threads, 3 * tile_bytes, map, map);
    };
    CHECK_NOTHROW(outside(begins_at<0, 200>, 0));
    CHECK_NOTHROW(outside(ends_at<0, 200>, 64 * 64));
    const Fault fault = fault_of([&] { outside(begins_at<0, 200>, 64 * 64); });
    CHECK(fault.kind == FaultKind::out_of_bounds);
    CHECK(fault.where.line.line == line_of(__FILE__, "box"));
    CHECK_THAT(fault.what(), ContainsSubstring("the tensor map begins just past the end of data"));
    const Fault nowhere = fault_of([&] { outside(begins_at<0, 200>, int64_t{1} << 30); });
    CHECK_THAT(nowhere.what(), ContainsSubstring("the tensor map begins in no buffer"));
}
