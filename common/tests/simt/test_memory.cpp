// Memory that CUDA programs use beside cudaMalloc's: __shared__ variables of any type and place,
// variables of the device, memory that both sides reach.
#include <catch2/matchers/catch_matchers_string.hpp>

#include "common/tests/simt/support.hpp"

using namespace simt_test;
using Catch::Matchers::ContainsSubstring;

namespace {

// ---- __shared__ variables

struct Pair {
    float first, second;
    Pair() {} // so that g++ notes whether the array has been constructed
    Pair(float a, float b) : first(a), second(b) {}
};

__global__ void shared_objects(float* out) {
    __shared__ Pair pairs[32];
    __shared__ float2 vectors[32];
    pairs[threadIdx.x] = Pair(static_cast<float>(threadIdx.x), 1);
    vectors[threadIdx.x] = make_float2(2, static_cast<float>(threadIdx.x));
    __syncthreads();
    out[blockIdx.x * 32 + threadIdx.x] =
        pairs[31 - threadIdx.x].first + vectors[31 - threadIdx.x].y;
}

__global__ void shared_objects_unordered(float* out) {
    __shared__ Pair pairs[32];
    pairs[threadIdx.x].first = static_cast<float>(threadIdx.x); // object written
    out[threadIdx.x] = pairs[31 - threadIdx.x].first;           // object read
}

// Sizes that leave gaps: an overrun into the next variable is none.
__shared__ int of_file[59];
static __shared__ int of_file_too[59];
__shared__ Pair object_of_file[4];

__global__ void use_file(int* out, int offset) {
    of_file[threadIdx.x] = static_cast<int>(threadIdx.x);
    of_file_too[threadIdx.x + offset] = 1; // write of a file's
    object_of_file[0 * offset].first = 1;
    __syncthreads();
    out[blockIdx.x * 59 + threadIdx.x] = of_file[58 - threadIdx.x] + of_file_too[threadIdx.x];
}

__global__ void use_file_unordered(int* out) {
    of_file[threadIdx.x] = static_cast<int>(threadIdx.x); // file's written
    out[threadIdx.x] = of_file[58 - threadIdx.x];         // file's read
}

__global__ void use_file_unwritten(int* out) {
    if (blockIdx.x == 0) {
        of_file[threadIdx.x] = 1;
    }
    __syncthreads();
    out[blockIdx.x * 59 + threadIdx.x] = of_file[threadIdx.x]; // file's of another block
}

__global__ void static_shared(float* out) {
    static __shared__ float tile[32];
    tile[threadIdx.x] = 1;                 // static written
    out[threadIdx.x] = tile[31 - threadIdx.x]; // static read
}

template <class T> __device__ T exchange(T value, int offset) {
    __shared__ T mailbox[30];
    mailbox[threadIdx.x + offset] = value; // to the mailbox
    __syncthreads();
    return mailbox[29 - threadIdx.x];
}

__global__ void use_mailbox(float* out, int offset) {
    __shared__ float own[30];
    own[threadIdx.x] = exchange(static_cast<float>(threadIdx.x), offset);
    out[threadIdx.x] = own[threadIdx.x];
}

} // namespace

/// Of no namespace: g++ leaves tags out of the names of such templates.
template <class T> __global__ void template_of_file(T* out, int offset) {
    __shared__ T tile[30];
    tile[threadIdx.x + offset] = 1; // to the template's
    __syncthreads();
    out[threadIdx.x] = tile[29 - threadIdx.x];
}

TEST_CASE("__shared__ variables whose type has a constructor are shared memory, no more and no less") {
    const Buffer<float> out(64);
    in_every_way([&] {
        launch(shared_objects, 2, 32, 0, out.data());
        CHECK(out.values()[0] == 62);
        const Fault fault =
            fault_of([&] { launch(shared_objects_unordered, 1, 32, 0, out.data()); });
        CHECK(fault.kind == FaultKind::race);
        check_lines(fault, "object written", "object read");
    });
}

TEST_CASE("a __shared__ variable of a file belongs to each block") {
    const Buffer<int> out(256);
    in_every_way([&] { launch(use_file, 4, 59, 0, out.data(), 0); });
    CHECK(out.values()[177] == 59);
    const With watched({.detect = true});
    const Fault outside = fault_at("write of a file's", FaultKind::out_of_bounds,
                                   [&] { launch(use_file, 1, 59, 0, out.data(), 1); });
    CHECK_THAT(outside.what(), ContainsSubstring("past the end of of_file_too (236 bytes)"));
    const Fault race = fault_of([&] { launch(use_file_unordered, 1, 59, 0, out.data()); });
    CHECK(race.kind == FaultKind::race);
    check_lines(race, "file's written", "file's read");
    fault_at("file's of another block", FaultKind::uninitialised,
             [&] { launch(use_file_unwritten, 2, 59, 0, out.data()); });
}

TEST_CASE("static __shared__ is __shared__") {
    const Buffer<float> out(32);
    const With watched({.detect = true});
    const Fault fault = fault_of([&] { launch(static_shared, 1, 32, 0, out.data()); });
    CHECK(fault.kind == FaultKind::race);
    CHECK_THAT(fault.what(), ContainsSubstring(" of tile"));
}

TEST_CASE("__shared__ variables of templates and device functions have their names and sizes") {
    const Buffer<float> out(32);
    simt::clear_profile();
    {
        const With counted({.detect = true, .count = true});
        launch(use_mailbox, 1, 30, 0, out.data(), 0);
        launch(template_of_file<float>, 1, 30, 0, out.data(), 0);
    }
    const std::vector<simt::KernelProfile> profile = simt::profile();
    REQUIRE(profile.size() == 2);
    CHECK(profile[0].shared_bytes == 240);
    CHECK(profile[1].shared_bytes == 120);
    const With watched({.detect = true});
    const Fault of_function = fault_at("to the mailbox", FaultKind::out_of_bounds,
                                       [&] { launch(use_mailbox, 1, 30, 0, out.data(), 1); });
    CHECK_THAT(of_function.what(), ContainsSubstring("past the end of mailbox (120 bytes)"));
    const Fault of_template = fault_at("to the template's", FaultKind::out_of_bounds, [&] {
        launch(template_of_file<float>, 1, 30, 0, out.data(), 1);
    });
    CHECK_THAT(of_template.what(), ContainsSubstring("past the end of tile (120 bytes)"));
}
