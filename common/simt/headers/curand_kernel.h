// CUDA's header of this name, for the SIMT backend: random numbers in kernels. They are of another
// generator than cuRAND's, so that the numbers differ from a GPU's; how often which of them comes
// does not. Each state is a key and a place in its sequence.
#pragma once

#include <cstdint>

#include "cuda_runtime.h"

namespace flash::simt {

/// Scrambles a number, so that neighbours have nothing in common.
inline uint64_t scrambled(uint64_t x) {
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

struct RandomState {
    uint64_t key, place;

    uint64_t next() { return scrambled(key + ++place * 0x9e3779b97f4a7c15u); }
    /// Above 0, and at most 1.
    template <class T> T uniform() {
        constexpr int bits = sizeof(T) == 4 ? 24 : 53;
        return static_cast<T>((next() >> (64 - bits)) + 1) / static_cast<T>(uint64_t{1} << bits);
    }
    /// Two numbers that know nothing of each other, with the mean 0 and the deviation 1.
    template <class T> void normal(T& one, T& other) {
        const T length = std::sqrt(T{-2} * std::log(uniform<T>()));
        const T angle = T(6.283185307179586) * uniform<T>();
        one = length * std::cos(angle);
        other = length * std::sin(angle);
    }
    template <class T> T normal() {
        T one, other;
        normal(one, other);
        return one;
    }
    unsigned poisson(double mean) {
        if (mean > 64) { // close to a normal distribution
            return static_cast<unsigned>(
                std::max(0.0, std::round(mean + std::sqrt(mean) * normal<double>())));
        }
        unsigned count = 0;
        for (double rest = uniform<double>(); rest > std::exp(-mean); rest *= uniform<double>()) {
            ++count;
        }
        return count;
    }
};

} // namespace flash::simt

struct curandStateXORWOW : flash::simt::RandomState {};
struct curandStateMRG32k3a : flash::simt::RandomState {};
struct curandStatePhilox4_32_10 : flash::simt::RandomState {};
using curandState = curandStateXORWOW;
using curandState_t = curandStateXORWOW;
using curandStateXORWOW_t = curandStateXORWOW;
using curandStateMRG32k3a_t = curandStateMRG32k3a;
using curandStatePhilox4_32_10_t = curandStatePhilox4_32_10;

template <class State>
__device__ inline void curand_init(unsigned long long seed, unsigned long long subsequence,
                                   unsigned long long offset, State* state) {
    State made;
    made.key = flash::simt::scrambled(seed + flash::simt::scrambled(subsequence + 1));
    made.place = offset;
    *state = made;
}
__device__ inline void skipahead(unsigned long long count, flash::simt::RandomState* state) {
    state->place += count;
}
__device__ inline unsigned curand(flash::simt::RandomState* state) {
    return static_cast<unsigned>(state->next() >> 32);
}
__device__ inline float curand_uniform(flash::simt::RandomState* state) {
    return state->uniform<float>();
}
__device__ inline double curand_uniform_double(flash::simt::RandomState* state) {
    return state->uniform<double>();
}
__device__ inline float curand_normal(flash::simt::RandomState* state) {
    return state->normal<float>();
}
__device__ inline double curand_normal_double(flash::simt::RandomState* state) {
    return state->normal<double>();
}
__device__ inline float2 curand_normal2(flash::simt::RandomState* state) {
    float2 both;
    state->normal(both.x, both.y);
    return both;
}
__device__ inline double2 curand_normal2_double(flash::simt::RandomState* state) {
    double2 both;
    state->normal(both.x, both.y);
    return both;
}
__device__ inline float curand_log_normal(flash::simt::RandomState* state, float mean,
                                          float deviation) {
    return std::exp(mean + deviation * state->normal<float>());
}
__device__ inline double curand_log_normal_double(flash::simt::RandomState* state, double mean,
                                                  double deviation) {
    return std::exp(mean + deviation * state->normal<double>());
}
__device__ inline unsigned curand_poisson(flash::simt::RandomState* state, double mean) {
    return state->poisson(mean);
}
__device__ inline uint4 curand4(curandStatePhilox4_32_10* state) {
    const unsigned x = curand(state), y = curand(state), z = curand(state), w = curand(state);
    return {x, y, z, w};
}
__device__ inline float4 curand_uniform4(curandStatePhilox4_32_10* state) {
    const float x = curand_uniform(state), y = curand_uniform(state);
    const float z = curand_uniform(state), w = curand_uniform(state);
    return {x, y, z, w};
}
__device__ inline float4 curand_normal4(curandStatePhilox4_32_10* state) {
    const float2 one = curand_normal2(state), other = curand_normal2(state);
    return {one.x, one.y, other.x, other.y};
}
