// mma.sync, ldmatrix and cp.async against plain loops over the layouts that the PTX ISA gives.
#include <cstring>
#include <random>

#include "common/cuda/ptx/cp_async.hpp"
#include "common/cuda/ptx/ldmatrix.hpp"
#include "common/cuda/ptx/mma.hpp"
#include "common/cuda/ptx/stmatrix.hpp"
#include "common/tests/simt/support.hpp"

using namespace simt_test;

namespace {

template <class T> __global__ void multiply(const uint32_t* A, const uint32_t* B, float* C) {
    const int lane = threadIdx.x;
    uint32_t a[4], b[2];
    float c[4];
    for (int i = 0; i < 4; ++i) {
        a[i] = A[4 * lane + i];
        c[i] = C[4 * lane + i];
    }
    for (int i = 0; i < 2; ++i) {
        b[i] = B[2 * lane + i];
    }
    mma_m16n8k16<T>(c, a, b);
    for (int i = 0; i < 4; ++i) {
        C[4 * lane + i] = c[i];
    }
}

/// The element of a matrix that register i of a lane holds: PTX ISA, "Matrix Fragments for
/// mma.m16n8k16".
struct Element {
    int row, column;
};
Element of_a(int lane, int i) { // i from 0 to 7, two to a register
    return {lane / 4 + (i % 4 >= 2 ? 8 : 0), lane % 4 * 2 + (i & 1) + (i >= 4 ? 8 : 0)};
}
Element of_b(int lane, int i) { return {lane % 4 * 2 + (i & 1) + (i >= 2 ? 8 : 0), lane / 4}; }
Element of_c(int lane, int i) { return {lane / 4 + (i >= 2 ? 8 : 0), lane % 4 * 2 + (i & 1)}; }

template <class T> void check_multiply() {
    std::mt19937 generator(1);
    std::normal_distribution<float> normal;
    const auto draw = [&] { return to_float(from_float<T>(normal(generator))); };
    float A[16][16], B[16][8], C[16][8];
    for (auto& row : A) {
        std::generate(std::begin(row), std::end(row), draw);
    }
    for (auto& row : B) {
        std::generate(std::begin(row), std::end(row), draw);
    }
    for (auto& row : C) {
        std::generate(std::begin(row), std::end(row), draw);
    }
    std::vector<uint32_t> a(128), b(64);
    std::vector<float> c(128);
    for (int lane = 0; lane < 32; ++lane) {
        for (int i = 0; i < 8; ++i) {
            const Element e = of_a(lane, i);
            a[static_cast<size_t>(4 * lane + i / 2)] |=
                uint32_t{from_float<T>(A[e.row][e.column]).bits} << 16 * (i & 1);
        }
        for (int i = 0; i < 4; ++i) {
            const Element in_b = of_b(lane, i), in_c = of_c(lane, i);
            b[static_cast<size_t>(2 * lane + i / 2)] |=
                uint32_t{from_float<T>(B[in_b.row][in_b.column]).bits} << 16 * (i & 1);
            c[static_cast<size_t>(4 * lane + i)] = C[in_c.row][in_c.column];
        }
    }
    const Buffer<uint32_t> A_lanes(a), B_lanes(b);
    const Buffer<float> C_lanes(c);
    launch(multiply<T>, 1, 32, 0, A_lanes.data(), B_lanes.data(), C_lanes.data());
    for (int lane = 0; lane < 32; ++lane) {
        for (int i = 0; i < 4; ++i) {
            const Element e = of_c(lane, i);
            double sum = C[e.row][e.column];
            for (int k = 0; k < 16; ++k) {
                sum += double{A[e.row][k]} * B[k][e.column];
            }
            CHECK(std::abs(C_lanes.values()[static_cast<size_t>(4 * lane + i)] - sum) < 1e-5);
        }
    }
}

__global__ void fetch(const uint16_t* in, uint32_t* out) {
    uint16_t* smem = flash::dynamic_shared<uint16_t>(); // four 8 x 8 matrices one below the other
    for (int e = threadIdx.x; e < 256; e += 32) {
        smem[e] = in[e];
    }
    __syncthreads();
    const uint16_t* row = smem + 8 * threadIdx.x;
    const int lane = threadIdx.x;
    uint32_t r[4];
    ldmatrix_x4(r, row);
    for (int i = 0; i < 4; ++i) {
        out[32 * i + lane] = r[i];
    }
    ldmatrix_x4_trans(r, row);
    for (int i = 0; i < 4; ++i) {
        out[32 * (4 + i) + lane] = r[i];
    }
}

template <bool transposed> __global__ void put(const uint32_t* in, uint16_t* out) {
    uint16_t* smem = flash::dynamic_shared<uint16_t>(); // four 8 x 8 matrices one below the other
    const int lane = threadIdx.x;
    const uint32_t r[4] = {in[lane], in[32 + lane], in[64 + lane], in[96 + lane]};
    transposed ? flash::stmatrix_x4_trans(smem + 8 * lane, r)
               : flash::stmatrix_x4(smem + 8 * lane, r);
    __syncthreads();
    for (int e = lane; e < 256; e += 32) {
        out[e] = smem[e];
    }
}

__global__ void misaligned_row(uint32_t* out) {
    uint16_t* smem = flash::dynamic_shared<uint16_t>();
    for (int e = threadIdx.x; e < 512; e += 32) {
        smem[e] = 0;
    }
    __syncthreads();
    uint32_t r[4];
    ldmatrix_x4(r, smem + 8 * threadIdx.x + (threadIdx.x == 9 ? 4 : 0)); // misaligned row
    out[threadIdx.x] = r[0];
}

/// Three stages: group g of copies fills part g, every second lane with zeros.
__global__ void stages(const float* in, float* out) {
    float* smem = flash::dynamic_shared<float>();
    const int t = threadIdx.x;
    for (int g = 0; g < 3; ++g) {
        cp_async_16(smem + 128 * g + 4 * t, in + 128 * g + 4 * t, t % 2 == 0);
        cp_async_commit();
    }
    for (int g = 0; g < 3; ++g) {
        if (g == 0) {
            cp_async_wait<2>();
        } else if (g == 1) {
            cp_async_wait<1>();
        } else {
            cp_async_wait<0>();
        }
        for (int i = 0; i < 4; ++i) {
            out[128 * g + 4 * t + i] = smem[128 * g + 4 * t + i];
        }
        if (g == 0) { // groups 1 and 2 may still be under way
            out[384 + t] = smem[128 + 4 * t];
        }
    }
}

__global__ void pack_pairs(uint32_t* out) {
    out[0] = pack<Half>(1.0f, -2.0f);
    out[1] = pack<Bfloat16>(1.0f, -2.0f);
}

} // namespace

TEST_CASE("mma.sync m16n8k16 multiplies fragments, fp16 and bf16") {
    check_multiply<Half>();
    check_multiply<Bfloat16>();
}

TEST_CASE("ldmatrix hands out 8 x 8 matrices, also transposed") {
    std::vector<uint16_t> numbers(256);
    for (size_t i = 0; i < 256; ++i) {
        numbers[i] = static_cast<uint16_t>(i);
    }
    const Buffer<uint16_t> in(numbers);
    const Buffer<uint32_t> out(32 * 8);
    launch(fetch, 1, 32, 512, in.data(), out.data());
    const std::vector<uint32_t> got = out.values();
    const auto plain = [](size_t m, size_t lane) { // two neighbours of row lane / 4
        const auto low = static_cast<uint32_t>(64 * m + 8 * (lane / 4) + 2 * (lane % 4));
        return low | (low + 1) << 16;
    };
    const auto transposed = [](size_t m, size_t lane) { // two neighbours of column lane / 4
        const auto low = static_cast<uint32_t>(64 * m + 8 * (2 * (lane % 4)) + lane / 4);
        return low | (low + 8) << 16;
    };
    for (size_t lane = 0; lane < 32; ++lane) {
        for (size_t m = 0; m < 4; ++m) {
            CHECK(got[32 * m + lane] == plain(m, lane));
            CHECK(got[32 * (4 + m) + lane] == transposed(m, lane));
        }
    }
}

TEST_CASE("stmatrix puts back what ldmatrix hands out") {
    std::vector<uint16_t> numbers(256);
    for (size_t i = 0; i < 256; ++i) {
        numbers[i] = static_cast<uint16_t>(i);
    }
    const Buffer<uint16_t> in(numbers), back(256);
    const Buffer<uint32_t> registers(32 * 8);
    launch(fetch, 1, 32, 512, in.data(), registers.data());
    launch(put<false>, 1, 32, 512, registers.data(), back.data());
    CHECK(back.values() == numbers);
    launch(put<true>, 1, 32, 512, registers.data() + 128, back.data()); // what came transposed
    CHECK(back.values() == numbers);
    const With watched({.detect = true});
    launch(put<true>, 1, 32, 512, registers.data() + 128, back.data());
    CHECK(back.values() == numbers); // and the detector has seen every byte written
}

TEST_CASE("a row that ldmatrix cannot take is reported") {
    const With watched({.detect = true});
    const Buffer<uint32_t> out(32);
    const Fault fault = fault_at("misaligned row", FaultKind::misaligned,
                                 [&] { launch(misaligned_row, 1, 32, 1024, out.data()); });
    CHECK(fault.where.thread.x == 9);
}

TEST_CASE("cp.async lands group by group, late or early, and fills with zeros") {
    std::vector<float> numbers(384);
    for (size_t i = 0; i < 384; ++i) {
        numbers[i] = static_cast<float>(i + 1);
    }
    const Buffer<float> in(numbers);
    for (const simt::CpAsync policy : {simt::CpAsync::late, simt::CpAsync::early}) {
        const With landing({.cp_async = policy});
        const Buffer<float> out(384 + 32);
        launch(stages, 1, 32, 384 * sizeof(float), in.data(), out.data());
        const std::vector<float> got = out.values();
        for (size_t i = 0; i < 384; ++i) {
            CHECK(got[i] == (i / 4 % 2 == 0 ? numbers[i] : 0));
        }
        // What is not waited for is there under one policy and not under the other.
        CHECK(std::isnan(got[384]) == (policy == simt::CpAsync::late));
    }
}

TEST_CASE("pack rounds two floats into one register") {
    const Buffer<uint32_t> out(2);
    launch(pack_pairs, 1, 1, 0, out.data());
    CHECK(out.values() == std::vector<uint32_t>{0xc0003c00u, 0xc0003f80u});
}
