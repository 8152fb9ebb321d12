#include "common/simt/instructions/mma.hpp"

#include <cstring>

#include "common/simt/machine/block.hpp"

namespace flash::simt {
namespace {

struct Fragments {
    float* c;
    const uint32_t* a;
    const uint32_t* b;
};

using Row [[gnu::vector_size(32)]] = float; // eight numbers, in a register where the CPU has such

/// Gathers A and B from the lanes' registers, multiplies, and hands each lane its part of C.
/// Products of two 16-bit values are exact in fp32; sums are rounded one by one (the hardware's
/// order is not published).
// pairs, as they lie in the registers: along A's rows, along B's columns
template <class T> void multiply(const Operands& lanes, uint32_t) {
    uint32_t A_bits[16][8], B_bits[8][8];
    for (size_t lane = 0; lane < 32; ++lane) {
        const auto& own = *static_cast<const Fragments*>(lanes[lane]);
        const size_t g = lane / 4;
        const size_t t = lane % 4;
        for (size_t i = 0; i < 4; ++i) {
            A_bits[g + 8 * (i % 2)][t + 4 * (i / 2)] = own.a[i];
        }
        for (size_t i = 0; i < 2; ++i) {
            B_bits[t + 4 * i][g] = own.b[i];
        }
    }
    const auto low = [](uint32_t pair) { return to_float(T{static_cast<uint16_t>(pair)}); };
    const auto high = [](uint32_t pair) { return to_float(T{static_cast<uint16_t>(pair >> 16)}); };
    // pairs taken apart; loops by themselves, so that the compiler uses vectors
    float A[16][2][8], B[8][2][8];
    for (size_t row = 0; row < 16; ++row) {
        for (size_t pair = 0; pair < 8; ++pair) {
            A[row][0][pair] = low(A_bits[row][pair]);
            A[row][1][pair] = high(A_bits[row][pair]);
        }
    }
    for (size_t pair = 0; pair < 8; ++pair) {
        for (size_t column = 0; column < 8; ++column) {
            B[pair][0][column] = low(B_bits[pair][column]);
            B[pair][1][column] = high(B_bits[pair][column]);
        }
    }
    float C[16][8];
    for (size_t row = 0; row < 16; ++row) {
        Row sums = {};
        for (size_t k = 0; k < 16; ++k) {
            Row B_row;
            std::memcpy(&B_row, B[k / 2][k % 2], sizeof B_row);
            sums += A[row][k % 2][k / 2] * B_row;
        }
        std::memcpy(C[row], &sums, sizeof sums);
    }
    for (size_t lane = 0; lane < 32; ++lane) {
        float* const c = static_cast<const Fragments*>(lanes[lane])->c;
        for (size_t i = 0; i < 4; ++i) {
            c[i] += C[lane / 4 + 8 * (i / 2)][2 * (lane % 4) + i % 2];
        }
    }
}

} // namespace

void mma_m16n8k16(DType type, float* c, const uint32_t* a, const uint32_t* b,
                  SourceLocation location) {
    Fragments own{c, a, b};
    const RuntimeCode runtime;
    current_block().collective(CollectiveKind::mma, "mma_m16n8k16", location, full_mask, &own,
                               type == DType::fp16 ? multiply<Half> : multiply<Bfloat16>);
}

} // namespace flash::simt
