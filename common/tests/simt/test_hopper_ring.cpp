// Hopper: a product of matrices whose operands come through a ring of two slots. One thread asks
// TMA for tiles, two warpgroups multiply them with wgmma, TMA takes the result. The same kernel
// with one step missing or wrong must be reported, in every schedule, with copies and products that
// are late and with such that are early.
#include <catch2/matchers/catch_matchers_string.hpp>

#include <algorithm>

#include "common/cuda/derived/swizzle.hpp"
#include "common/cuda/launch/tensor_map.hpp"
#include "common/cuda/ptx/mbarrier.hpp"
#include "common/cuda/ptx/mma.hpp"
#include "common/cuda/ptx/tma.hpp"
#include "common/cuda/ptx/warpgroup.hpp"
#include "common/cuda/ptx/wgmma.hpp"
#include "common/tests/simt/support.hpp"

using namespace simt_test;
using Catch::Matchers::ContainsSubstring;

namespace {

enum class Broken {
    nothing,
    phase_of_full,
    phase_of_free,
    expectation, // an arrival without it
    arrival,     // neither
    few_bytes,
    many_bytes,
    late_wait_for_A, // CUTracer's pattern 1
    wait_for_B,      // CUTracer's pattern 2
    wait_for_free,
    late_wgmma_wait, // slots are freed before
    one_warp_frees,  // for its warpgroup
    last_wgmma_wait, // as in ThunderKittens #33
    last_group,      // no wait, and nobody looks
    accumulators,    // touched in flight
    tile,            // likewise
    wgmma_fence,
    proxy_fence,
    barrier_of_warpgroup,
    wait_read,
    init_fence,
    init_barrier,
    registers,
    alignment,
};

constexpr int threads = 384, slots = 2, rows = 128, columns = 64, K_step = 64;
constexpr int A_bytes = rows * K_step * 2, B_bytes = K_step * columns * 2,
              C_bytes = rows * columns * 2;
constexpr int smem_bytes = slots * (A_bytes + B_bytes) + C_bytes;

/// C[.. x 64] = A[.. x K] B[K x 64]; a block has 128 rows.
template <Broken broken>
__global__ void product(const __grid_constant__ TensorMap A, const __grid_constant__ TensorMap B,
                        const __grid_constant__ TensorMap C, int steps) {
    char* A_smem = dynamic_shared<char>() + (broken == Broken::alignment ? 512 : 0);
    char* B_smem = A_smem + slots * A_bytes;
    char* C_smem = B_smem + slots * B_bytes;
    __shared__ uint64_t A_full[slots], B_full[slots], free[slots];
    constexpr int warps_per_arrival = broken == Broken::one_warp_frees ? 4 : 1;
    const int warpgroup = threadIdx.x / 128;
    const int row0 = blockIdx.x * rows;
    if (threadIdx.x == 0) {
        for (int s = 0; s < slots; ++s) {
            mbarrier_init(A_full + s, 1);                   // initialisation
            mbarrier_init(B_full + s, 1);                   // initialisation of the second
            mbarrier_init(free + s, 8 / warps_per_arrival); // initialisation of the third
        }
        if (broken != Broken::init_fence) {
            fence_mbarrier_init();
        }
    }
    if (broken != Broken::init_barrier) {
        __syncthreads(); // the mbarriers are there
    }

    if (warpgroup == 0) {
        if (broken != Broken::registers) {
            give_registers<24>();
        }
        for (int j = 0; threadIdx.x == 0 && j < steps; ++j) {
            const int s = j % slots;
            if (broken != Broken::wait_for_free) {
                // wait for free
                mbarrier_wait(free + s, j / slots % 2 ^ (broken == Broken::phase_of_free ? 0 : 1));
            }
            if (broken == Broken::expectation) {
                mbarrier_arrive(A_full + s);
            } else if (broken != Broken::arrival) {
                // bytes of A
                mbarrier_expect_tx(A_full + s, A_bytes + (broken == Broken::few_bytes    ? -128
                                                          : broken == Broken::many_bytes ? 128
                                                                                         : 0));
            }
            tma_load<2>(A_smem + s * A_bytes, A, {j * K_step, row0}, A_full + s); // load of A
            mbarrier_expect_tx(B_full + s, B_bytes);                              // bytes of B
            tma_load<2>(B_smem + s * B_bytes, B, {0, j * K_step}, B_full + s);    // load of B
        }
        return;
    }

    take_registers<240>(); // take
    float C_reg[columns / 8][4];
    for (int j = 0; j < steps; ++j) {
        const int s = j % slots;
        const int phase = j / slots % 2 ^ (broken == Broken::phase_of_full ? 1 : 0);
        if (broken != Broken::late_wait_for_A) {
            mbarrier_wait(A_full + s, phase); // wait for A
        }
        if (broken != Broken::wait_for_B) {
            mbarrier_wait(B_full + s, phase); // wait for B
        }
        const char* own_A = A_smem + s * A_bytes + (warpgroup - 1) * 64 * 128;
        const uint64_t A_desc = wgmma_descriptor(own_A, 0, 1024); // descriptor
        const uint64_t B_desc = wgmma_descriptor(B_smem + s * B_bytes, 0, 1024);
        if (broken != Broken::wgmma_fence) {
            wgmma_fence();
        }
        for (int k = 0; k < K_step / 16; ++k) {
            const uint64_t A_step = advance(A_desc, 32 * k), B_step = advance(B_desc, 2048 * k);
            wgmma_m64k16<Bfloat16, columns, true>(C_reg, A_step, B_step, j + k > 0); // wgmma
        }
        wgmma_commit();
        if (broken == Broken::late_wait_for_A) {
            mbarrier_wait(A_full + s, phase); // late wait for A
        }
        if (broken == Broken::accumulators && j == 1) {
            C_reg[0][0] += 1; // accumulator
        }
        if (broken == Broken::tile && j == 1 && threadIdx.x == 133) {
            A_smem[s * A_bytes + 4096] = 0; // tile
        }
        if (broken == Broken::late_wgmma_wait) {
            if (threadIdx.x % 32 == 0) {
                mbarrier_arrive(free + s);
            }
        } else {
            wgmma_wait<1>(C_reg); // the products of the step before are over
            if (j > 0 && threadIdx.x % (32 * warps_per_arrival) == 0) {
                mbarrier_arrive(free + (j - 1) % slots); // arrival at free
            }
        }
    }
    if (broken == Broken::last_group) {
        return;
    }
    if (broken != Broken::last_wgmma_wait) {
        wgmma_wait<0>(C_reg);
    }

    const int lane = threadIdx.x % 32;
    char* own_C = C_smem + (warpgroup - 1) * C_bytes / 2;
    for (int r = 0; r < 2; ++r) {
        const int row = threadIdx.x % 128 / 32 * 16 + lane / 4 + 8 * r;
        for (int n = 0; n < columns / 8; ++n) {
            char* const to = own_C + SwizzledTile<64, 64>::offset(row, n) + 4 * (lane % 4);
            const auto two = pack<Bfloat16>(C_reg[n][2 * r], C_reg[n][2 * r + 1]); // read of C
            *reinterpret_cast<uint32_t*>(to) = two;                                // write of C
        }
    }
    if (broken != Broken::proxy_fence) {
        fence_proxy_async();
    }
    if (broken != Broken::barrier_of_warpgroup) {
        named_barrier_sync(warpgroup, 128); // all of the warpgroup have written
    }
    if (threadIdx.x % 128 == 0) {
        tma_store<2>(C, {0, row0 + (warpgroup - 1) * 64}, own_C); // store
        bulk_commit();
        if (broken != Broken::wait_read) {
            bulk_wait_read<0>();
        }
    }
}

/// Small integers, so that fp32 and bf16 are exact.
float a(int row, int k) { return static_cast<float>((row * 5 + k * 3) % 5 - 2); }
float b(int k, int column) { return static_cast<float>((k * 7 + column) % 3 - 1); }

constexpr int M = 200, steps = 5, K = steps * K_step; // the second block's tile of C is clipped

template <Broken broken> void run(bool check = false) {
    std::vector<Bfloat16> A_values, B_values;
    for (int i = 0; i < M * K; ++i) {
        A_values.push_back(from_float<Bfloat16>(a(i / K, i % K)));
    }
    for (int i = 0; i < K * columns; ++i) {
        B_values.push_back(from_float<Bfloat16>(b(i / columns, i % columns)));
    }
    const Buffer<Bfloat16> A(A_values), B(B_values), C(static_cast<size_t>(M) * columns);
    launch(product<broken>, 2, threads, smem_bytes + (broken == Broken::alignment ? 1024 : 0),
           make_tensor_map<2>(A.data(), {K, M}, {K}, {K_step, rows}),
           make_tensor_map<2>(B.data(), {columns, K}, {columns}, {columns, K_step}),
           make_tensor_map<2>(C.data(), {columns, M}, {columns}, {columns, 64}), steps);
    for (int i = 0; check && i < M * columns; ++i) {
        float sum = 0;
        for (int k = 0; k < K; ++k) {
            sum += a(i / columns, k) * b(k, i % columns);
        }
        if (to_float(C.values()[static_cast<size_t>(i)]) != round_to(DType::bf16, sum)) {
            FAIL("C[" << i / columns << "][" << i % columns << "]");
        }
    }
}

std::string tagged(int line) {
    for (const char* const tag : {"initialisation",
                                  "initialisation of the second",
                                  "initialisation of the third",
                                  "wait for free",
                                  "load of A",
                                  "load of B",
                                  "take",
                                  "wait for A",
                                  "wait for B",
                                  "descriptor",
                                  "wgmma",
                                  "late wait for A",
                                  "accumulator",
                                  "tile",
                                  "write of C",
                                  "read of C",
                                  "store",
                                  "bytes of A",
                                  "bytes of B",
                                  "arrival at free"}) {
        if (line_of(__FILE__, tag) == line) {
            return tag;
        }
    }
    return "another line";
}

using Kinds = std::vector<FaultKind>;
using Lines = std::vector<std::string>;

/// The fault is one of these kinds, at one of these lines, with one of these lines as the other
/// (none: "").
template <Broken broken>
void must_be_reported(const Kinds& kinds, const Lines& where, const Lines& other,
                      const std::string& message) {
    in_every_way([&] {
        simt::options().shared_kib = 227;
        const Fault fault = fault_of([] { run<broken>(); });
        CAPTURE(fault.what());
        CHECK(std::ranges::count(kinds, fault.kind) == 1);
        CHECK(std::ranges::count(where, tagged(fault.where.line.line)) == 1);
        CHECK(std::ranges::count(other, fault.has_other ? tagged(fault.other.line.line) : "") == 1);
        CHECK_THAT(fault.what(), ContainsSubstring(message) && ContainsSubstring("product<") &&
                                     ContainsSubstring(" of block ("));
    });
}

const Kinds race{FaultKind::race}, deadlock{FaultKind::deadlock}, fence{FaultKind::missing_fence};
const Kinds in_flight{FaultKind::async_copy_in_flight}, of_wgmma{FaultKind::wgmma_in_flight};
const Kinds early{FaultKind::async_copy_in_flight, FaultKind::race, FaultKind::uninitialised};
const Kinds early_or_stuck{FaultKind::async_copy_in_flight, FaultKind::race,
                           FaultKind::uninitialised, FaultKind::deadlock};
const Kinds of_phase{FaultKind::missed_phase, FaultKind::async_copy_in_flight, FaultKind::race,
                     FaultKind::uninitialised, FaultKind::deadlock};
const Lines waits{"wait for free", "wait for A", "wait for B"}, none{""};

} // namespace

TEST_CASE("a ring of TMA and wgmma is right and without a fault, in every schedule", "[hopper]") {
    in_every_way([] {
        simt::options().shared_kib = 227;
        CHECK_NOTHROW(run<Broken::nothing>(true));
        simt::options().detect = false;
        CHECK_NOTHROW(run<Broken::nothing>(true));
    });
}

TEST_CASE("fault: the wrong phase of an mbarrier", "[hopper][faults]") {
    must_be_reported<Broken::phase_of_full>(
        of_phase, {"wgmma", "load of A", "load of B", "wait for free", "wait for A"},
        {"load of A", "load of B", "wgmma", "", "bytes of A", "bytes of B", "arrival at free"}, "");
    must_be_reported<Broken::phase_of_free>(deadlock, {"wait for free"}, none,
                                            "(0 of 8 have arrived)");
}

TEST_CASE("fault: no expect_tx, or one for other bytes", "[hopper][faults]") {
    must_be_reported<Broken::expectation>(early_or_stuck,
                                          {"wgmma", "load of A", "wait for free", "wait for A"},
                                          {"load of A", "wgmma", ""}, "");
    must_be_reported<Broken::arrival>(deadlock, waits, none,
                                      "(0 of 1 have arrived; 16384 bytes came, 0 are expected)");
    must_be_reported<Broken::few_bytes>(
        deadlock, waits, none, "(1 of 1 have arrived; 16384 bytes came, 16256 are expected)");
    must_be_reported<Broken::many_bytes>(
        deadlock, waits, none, "(1 of 1 have arrived; 16384 bytes came, 16512 are expected)");
}

TEST_CASE("fault: a tile used before it has landed", "[hopper][faults]") {
    must_be_reported<Broken::late_wait_for_A>(early, {"wgmma", "load of A"},
                                              {"load of A", "wgmma", ""}, "");
    must_be_reported<Broken::wait_for_B>(early, {"wgmma", "load of B"}, {"load of B", "wgmma", ""},
                                         "");
}

TEST_CASE("fault: a slot of a ring overwritten while it is read", "[hopper][faults]") {
    must_be_reported<Broken::wait_for_free>(race, {"load of A", "load of B"},
                                            {"load of A", "load of B", "wgmma"}, "race: ");
    must_be_reported<Broken::late_wgmma_wait>(race, {"load of A"}, {"wgmma"},
                                              "race: overwritten while a wgmma may still read it");
}

TEST_CASE("fault: a slot freed by one warp, while the others of the warpgroup may still read it",
          "[hopper][faults]") {
    must_be_reported<Broken::one_warp_frees>(race, {"load of A", "load of B"}, {"wgmma"},
                                             "race: overwritten while a wgmma may still read it");
}

TEST_CASE("fault: what a wgmma in flight uses is touched", "[hopper][faults]") {
    must_be_reported<Broken::accumulators>(of_wgmma, {"accumulator"}, {"wgmma"},
                                           "accumulators of a wgmma are touched before its wait");
    must_be_reported<Broken::tile>(race, {"tile"}, {"wgmma"},
                                   "race: overwritten while a wgmma may still read it");
    must_be_reported<Broken::last_wgmma_wait>(
        of_wgmma, {"read of C", "write of C"}, {"wgmma"},
        "accumulators of a wgmma are touched before its wait");
    must_be_reported<Broken::last_group>(of_wgmma, {"wgmma"}, none,
                                         "a thread leaves the kernel before its wgmma is over");
}

TEST_CASE("fault: a missing fence", "[hopper][faults]") {
    must_be_reported<Broken::proxy_fence>(
        fence, {"store"}, {"write of C"},
        "a fence is missing between what a thread writes and a tma_store");
    must_be_reported<Broken::init_fence>(fence, {"load of A"}, none,
                                         "for an mbarrier that TMA does not know about");
    must_be_reported<Broken::wgmma_fence>(fence, {"wgmma"}, none,
                                          "a wgmma without a wgmma_fence before it");
}

TEST_CASE("fault: a barrier of a warpgroup or of the block is missing", "[hopper][faults]") {
    must_be_reported<Broken::barrier_of_warpgroup>({FaultKind::race, FaultKind::uninitialised},
                                                   {"store", "write of C"},
                                                   {"write of C", "store", ""}, "");
    must_be_reported<Broken::init_barrier>(
        {FaultKind::race, FaultKind::uninitialised},
        {"initialisation", "initialisation of the second", "wait for A", "wait for B",
         "wait for free"},
        {"initialisation", "initialisation of the second", "wait for A", ""}, "");
}

TEST_CASE("fault: a block that leaves before its store has read", "[hopper][faults]") {
    must_be_reported<Broken::wait_read>(
        in_flight, {"store"}, none,
        "a thread leaves the kernel before its tma_store has read shared memory");
}

TEST_CASE("fault: registers that nobody gives", "[hopper][faults]") {
    must_be_reported<Broken::registers>(
        deadlock, {"take", "wait for free"}, none,
        "(from 168 registers a thread to 240 takes 9216, and 0 are free)");
}

TEST_CASE("fault: a tile under the swizzle that does not begin at a multiple of 1024",
          "[hopper][faults]") {
    must_be_reported<Broken::alignment>({FaultKind::misaligned}, {"load of A", "descriptor"}, none,
                                        "of the dynamic shared memory is no multiple of 1024");
}

TEST_CASE("TMA and wgmma are counted", "[hopper]") {
    simt::clear_profile();
    {
        const With options({.count = true, .shared_kib = 227});
        run<Broken::nothing>();
    }
    const simt::KernelProfile kernel = simt::profile().at(0);
    CHECK(kernel.total.tma_load.requests == 2 * 2 * steps);
    // with the zeros beyond the tensors
    CHECK(kernel.total.tma_load.bytes == 2 * steps * (A_bytes + B_bytes));
    CHECK(kernel.total.tma_store.requests == 4);
    CHECK(kernel.total.tma_store.bytes == M * columns * 2);
    // blocks, warpgroups, products, warps
    CHECK(kernel.total.wgmma[columns / 8] == 2 * 2 * steps * K_step / 16 * 4);
    CHECK(kernel.buffers.at(0).load.bytes == M * K * 2);
    CHECK_THAT(simt::to_json({kernel}), ContainsSubstring("\"m64n64k16\": 320"));
    simt::clear_profile();
}
