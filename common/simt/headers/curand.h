// CUDA's header of this name, for the SIMT backend: arrays of random numbers, made on the host.
// The numbers are not those of a GPU (curand_kernel.h).
#pragma once

#include <algorithm>
#include <vector>

#include "curand_kernel.h"

#include "common/simt/language/pointer_check.hpp"
#include "common/simt/language/streams.hpp"

#define CURAND_VERSION 10400

enum curandStatus_t {
    CURAND_STATUS_SUCCESS = 0,
    CURAND_STATUS_VERSION_MISMATCH = 100,
    CURAND_STATUS_NOT_INITIALIZED = 101,
    CURAND_STATUS_ALLOCATION_FAILED = 102,
    CURAND_STATUS_TYPE_ERROR = 103,
    CURAND_STATUS_OUT_OF_RANGE = 104,
    CURAND_STATUS_LENGTH_NOT_MULTIPLE = 105,
    CURAND_STATUS_DOUBLE_PRECISION_REQUIRED = 106,
    CURAND_STATUS_LAUNCH_FAILURE = 201,
    CURAND_STATUS_PREEXISTING_FAILURE = 202,
    CURAND_STATUS_INITIALIZATION_FAILED = 203,
    CURAND_STATUS_ARCH_MISMATCH = 204,
    CURAND_STATUS_INTERNAL_ERROR = 999
};
enum curandRngType_t {
    CURAND_RNG_PSEUDO_DEFAULT = 100,
    CURAND_RNG_PSEUDO_XORWOW = 101,
    CURAND_RNG_PSEUDO_MRG32K3A = 121,
    CURAND_RNG_PSEUDO_MTGP32 = 141,
    CURAND_RNG_PSEUDO_MT19937 = 142,
    CURAND_RNG_PSEUDO_PHILOX4_32_10 = 161
};
enum curandOrdering_t {
    CURAND_ORDERING_PSEUDO_BEST = 100,
    CURAND_ORDERING_PSEUDO_DEFAULT = 101,
    CURAND_ORDERING_PSEUDO_SEEDED = 102
};

struct curandGenerator_st {
    flash::simt::RandomState state{0, 0};
    bool of_host = false;
    cudaStream_t stream = nullptr;
};
using curandGenerator_t = curandGenerator_st*;

inline curandStatus_t curandCreateGenerator(curandGenerator_t* generator, curandRngType_t) {
    *generator = new curandGenerator_st;
    return CURAND_STATUS_SUCCESS;
}
inline curandStatus_t curandCreateGeneratorHost(curandGenerator_t* generator, curandRngType_t) {
    *generator = new curandGenerator_st;
    (*generator)->of_host = true;
    return CURAND_STATUS_SUCCESS;
}
inline curandStatus_t curandDestroyGenerator(curandGenerator_t generator) {
    delete generator;
    return CURAND_STATUS_SUCCESS;
}
inline curandStatus_t curandSetPseudoRandomGeneratorSeed(curandGenerator_t generator,
                                                         unsigned long long seed) {
    curand_init(seed, 0, 0, &generator->state);
    return CURAND_STATUS_SUCCESS;
}
inline curandStatus_t curandSetGeneratorOffset(curandGenerator_t generator,
                                               unsigned long long offset) {
    generator->state.place = offset;
    return CURAND_STATUS_SUCCESS;
}
inline curandStatus_t curandSetStream(curandGenerator_t generator, cudaStream_t stream) {
    generator->stream = stream;
    return CURAND_STATUS_SUCCESS;
}
inline curandStatus_t curandSetGeneratorOrdering(curandGenerator_t, curandOrdering_t) {
    return CURAND_STATUS_SUCCESS;
}
inline curandStatus_t curandGenerateSeeds(curandGenerator_t) { return CURAND_STATUS_SUCCESS; }
inline curandStatus_t curandGetVersion(int* version) {
    *version = CURAND_VERSION;
    return CURAND_STATUS_SUCCESS;
}

namespace flash::simt {

/// `make()` for each number of an array, which lies where the generator's kind says.
template <class T, class Make>
curandStatus_t generate(const HostCall& call, curandGenerator_t generator, T* to, size_t count,
                        Make make) {
    if (generator == nullptr) {
        return CURAND_STATUS_NOT_INITIALIZED;
    }
    std::vector<T> made(count);
    std::generate(made.begin(), made.end(), make);
    on_stream(generator->stream, [=] {
        copy_memory(call, to, made.data(), count * sizeof(T),
                    generator->of_host ? cudaMemcpyHostToHost : cudaMemcpyHostToDevice);
        return cudaSuccess;
    });
    return CURAND_STATUS_SUCCESS;
}

/// The same by pairs, which a GPU's generators make: an odd number of them is an error.
template <class T, class Make>
curandStatus_t generate_pairs(const HostCall& call, curandGenerator_t generator, T* to,
                              size_t count, Make make) {
    if (count % 2 != 0) {
        return CURAND_STATUS_LENGTH_NOT_MULTIPLE;
    }
    return generate(call, generator, to, count, make);
}

} // namespace flash::simt

#define FLASH_SIMT_CURAND(name, T, how, expression, ...)                                           \
    inline curandStatus_t name(curandGenerator_t generator, T* to, size_t count __VA_ARGS__,       \
                               flash::simt::SourceLocation location =                              \
                                   flash::simt::SourceLocation::here()) {                          \
        return flash::simt::how({#name, flash::simt::LocationId::of(location)}, generator, to,     \
                                count, [=] { return expression; });                                \
    }
#define FLASH_SIMT_STATE generator->state
FLASH_SIMT_CURAND(curandGenerate, unsigned, generate, curand(&FLASH_SIMT_STATE))
FLASH_SIMT_CURAND(curandGenerateUniform, float, generate, FLASH_SIMT_STATE.uniform<float>())
FLASH_SIMT_CURAND(curandGenerateUniformDouble, double, generate, FLASH_SIMT_STATE.uniform<double>())
FLASH_SIMT_CURAND(curandGenerateNormal, float, generate_pairs,
                  mean + deviation * FLASH_SIMT_STATE.normal<float>(), , float mean,
                  float deviation)
FLASH_SIMT_CURAND(curandGenerateNormalDouble, double, generate_pairs,
                  mean + deviation * FLASH_SIMT_STATE.normal<double>(), , double mean,
                  double deviation)
FLASH_SIMT_CURAND(curandGenerateLogNormal, float, generate_pairs,
                  std::exp(mean + deviation * FLASH_SIMT_STATE.normal<float>()), , float mean,
                  float deviation)
FLASH_SIMT_CURAND(curandGeneratePoisson, unsigned, generate, FLASH_SIMT_STATE.poisson(mean), ,
                  double mean)
#undef FLASH_SIMT_CURAND
#undef FLASH_SIMT_STATE
