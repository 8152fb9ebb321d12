#include "common/simt/vocabulary/mma.hpp"

#include "common/simt/machine/meetings.hpp"

namespace flash::simt {
namespace {

struct Fragments {
    float* c;
    const uint32_t* a;
    const uint32_t* b;
};

/// Gathers A and B from the lanes' registers, multiplies, and hands each lane its part of C.
/// Products of two 16-bit values are exact in fp32; sums are rounded one by one (the hardware's order is not
/// published).
template <class T> void multiply(const Operands& lanes, uint32_t) {
    uint16_t bits[16][24]; // of A, and of B beside it
    for (size_t lane = 0; lane < 32; ++lane) {
        const auto& own = *static_cast<const Fragments*>(lanes[lane]);
        const size_t g = lane / 4;
        const size_t t = 2 * (lane % 4);
        for (size_t i = 0; i < 4; ++i) {
            uint16_t* const pair = &bits[g + 8 * (i % 2)][t + 8 * (i / 2)];
            pair[0] = static_cast<uint16_t>(own.a[i]);
            pair[1] = static_cast<uint16_t>(own.a[i] >> 16);
        }
        for (size_t i = 0; i < 2; ++i) {
            bits[t + 8 * i][16 + g] = static_cast<uint16_t>(own.b[i]);
            bits[t + 8 * i + 1][16 + g] = static_cast<uint16_t>(own.b[i] >> 16);
        }
    }
    float AB[16][24];
    for (size_t row = 0; row < 16; ++row) { // apart from the gathering, so that the compiler uses vectors
        for (size_t column = 0; column < 24; ++column) {
            AB[row][column] = to_float(T{bits[row][column]});
        }
    }
    float C[16][8] = {};
    for (size_t row = 0; row < 16; ++row) {
        for (size_t k = 0; k < 16; ++k) {
            for (size_t column = 0; column < 8; ++column) {
                C[row][column] += AB[row][k] * AB[k][16 + column];
            }
        }
    }
    for (size_t lane = 0; lane < 32; ++lane) {
        float* const c = static_cast<const Fragments*>(lanes[lane])->c;
        for (size_t i = 0; i < 4; ++i) {
            c[i] += C[lane / 4 + 8 * (i / 2)][2 * (lane % 4) + i % 2];
        }
    }
}

} // namespace

void mma_m16n8k16(DType type, float* c, const uint32_t* a, const uint32_t* b, Site site) {
    Fragments own{c, a, b};
    warp_collective(Meeting::mma, "mma_m16n8k16", full_mask, &own,
                    type == DType::fp16 ? multiply<Half> : multiply<Bfloat16>, site);
}

} // namespace flash::simt
