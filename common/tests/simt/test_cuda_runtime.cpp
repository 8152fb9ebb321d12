// What a small CUDA program's main calls: memory on the device, copies to it and back, errors.
#include <catch2/matchers/catch_matchers_string.hpp>

#include <vector>

#include "common/tests/simt/support.hpp"

using namespace simt_test;
using Catch::Matchers::ContainsSubstring;

namespace {

__global__ void twice(const float* in, float* out, int size) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < size) {
        out[i] = 2 * in[i];
    }
}

} // namespace

TEST_CASE("data go to the device and back") {
    const std::vector<float> in{1, 2, 3, 4, 5};
    std::vector<float> out(in.size());
    const size_t bytes = in.size() * sizeof(float);
    float *in_gpu = nullptr, *out_gpu = nullptr;
    REQUIRE(cudaMalloc(&in_gpu, bytes) == cudaSuccess);
    // as programs that are older than templates write it
    REQUIRE(cudaMalloc((void**)&out_gpu, bytes) == cudaSuccess);
    REQUIRE(cudaMemcpy(in_gpu, in.data(), bytes, cudaMemcpyHostToDevice) == cudaSuccess);
    REQUIRE(cudaMemset(out_gpu, 0, bytes) == cudaSuccess);
    launch(twice, 1, 32, 0, in_gpu, out_gpu, 4);
    REQUIRE(cudaMemcpy(out.data(), out_gpu, bytes, cudaMemcpyDeviceToHost) == cudaSuccess);
    CHECK(out == std::vector<float>{2, 4, 6, 8, 0});

    const With watched({.detect = true});
    const Fault fault = fault_of([&] { launch(twice, 1, 32, 0, in_gpu, out_gpu, 6); });
    CHECK_THAT(fault.what(), ContainsSubstring("just past the end of in_gpu (20 bytes)"));
    CHECK(cudaFree(in_gpu) == cudaSuccess);
    CHECK(cudaFree(out_gpu) == cudaSuccess);
    CHECK(cudaFree(nullptr) == cudaSuccess);
}

TEST_CASE("more memory than there is makes an error, not an end") {
    float* pointer = nullptr;
    const cudaError_t status = cudaMalloc(&pointer, size_t{1} << 50);
    CHECK(status == cudaErrorMemoryAllocation);
    CHECK(pointer == nullptr);
    CHECK_THAT(cudaGetErrorString(status), ContainsSubstring("memory"));
}
