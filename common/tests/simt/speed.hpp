// A FlashAttention-2 kernel in fp32, one thread per row of Q, and how long the emulation takes for
// it: N = 512, d = 64, one head. Included twice: by a source that is compiled to be watched, and by
// one that is not.
#pragma once

#include <algorithm>
#include <ctime>
#include <random>

#include "common/tests/simt/support.hpp"

namespace simt_test {
namespace {

constexpr int N = 512, d = 64, Br = 64, Bc = 64;

__global__ void flash_attention_rows(const float* Q, const float* K, const float* V, float* O,
                                     float scale) {
    float* K_smem = flash::dynamic_shared<float>();
    float* V_smem = K_smem + Bc * d;
    const int i = blockIdx.x * Br + threadIdx.x;
    float q_reg[d], o_reg[d], s_reg[Bc];
    for (int x = 0; x < d; ++x) {
        q_reg[x] = Q[i * d + x] * scale;
        o_reg[x] = 0;
    }
    float m = -INFINITY, l = 0;
    for (int j0 = 0; j0 < N; j0 += Bc) {
        __syncthreads(); // the tile before is read no more
        for (int e = threadIdx.x; e < Bc * d; e += Br) {
            K_smem[e] = K[j0 * d + e];
            V_smem[e] = V[j0 * d + e];
        }
        __syncthreads(); // the tile is complete
        float m_new = m;
        for (int c = 0; c < Bc; ++c) {
            float s = 0;
            for (int x = 0; x < d; ++x) {
                s += q_reg[x] * K_smem[c * d + x];
            }
            s_reg[c] = s;
            m_new = fmaxf(m_new, s);
        }
        const float keep = __expf(m - m_new);
        m = m_new;
        l *= keep;
        for (int x = 0; x < d; ++x) {
            o_reg[x] *= keep;
        }
        for (int c = 0; c < Bc; ++c) {
            const float p = __expf(s_reg[c] - m);
            l += p;
            for (int x = 0; x < d; ++x) {
                o_reg[x] += p * V_smem[c * d + x];
            }
        }
    }
    for (int x = 0; x < d; ++x) {
        O[i * d + x] = o_reg[x] / l;
    }
}

/// The time of a processor that one launch takes.
inline double seconds(const simt::Options& options) {
    const With chosen(options);
    std::mt19937 generator(1);
    std::normal_distribution<float> normal;
    std::vector<float> numbers(N * d);
    std::generate(numbers.begin(), numbers.end(), [&] { return normal(generator); });
    const Buffer<float> Q(numbers), K(numbers), V(numbers), O(numbers.size());
    const std::clock_t start = std::clock();
    launch(flash_attention_rows, N / Br, Br, 2 * Bc * d * sizeof(float), Q.data(), K.data(),
           V.data(), O.data(), 0.125f);
    const std::clock_t end = std::clock();
    CHECK(std::isfinite(O.values()[17]));
    return static_cast<double>(end - start) / CLOCKS_PER_SEC;
}

} // namespace

} // namespace simt_test
