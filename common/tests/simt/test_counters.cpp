// Counts of kernels whose traffic is known.
#include <algorithm>

#include "common/cuda/ptx/cp_async.hpp"
#include "common/cuda/ptx/ldmatrix.hpp"
#include "common/cuda/ptx/mma.hpp"
#include "common/cuda/ptx/reduction.hpp"
#include "common/cuda/ptx/stmatrix.hpp"
#include "common/tests/simt/support.hpp"

using namespace simt_test;
using simt::Counters;

namespace {

/// Each lane reads the element `stride` after its neighbour's, from `offset` on.
__global__ void strided(const float* in, float* out, int stride, int offset) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = in[i * stride + offset]; // strided
}

__global__ void vector_copy(const float4* in, float4* out) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const float4 v = in[i]; // vector load
    out[i] = v;             // vector store
}

__global__ void some_lanes(const float* in, float* out, int size) {
    for (int i = threadIdx.x; i < size; i += 32) {
        out[i] = in[i]; // ragged
    }
}

/// A lane takes part in round r when bit r of `rounds[lane]` is set.
__global__ void diverging(const float* in, float* out, const int* rounds) {
    const int mask = rounds[threadIdx.x];
    for (int r = 0; r < 4; ++r) {
        if ((mask >> r & 1) != 0) {
            out[32 * r + threadIdx.x] = in[32 * r + threadIdx.x]; // in some rounds
        }
        out[128 + 32 * r + threadIdx.x] = 0; // in every round
    }
}

/// Word read by each lane: lane * stride, in shared memory. `zero` is 0; a compiler that knew would
/// drop the write.
template <class T> __global__ void shared_stride(float* out, int stride, int zero) {
    float* smem = flash::dynamic_shared<float>();
    for (int i = threadIdx.x; i < 4096; i += 32) {
        smem[i] = 1;
    }
    __syncthreads();
    T* vectors = reinterpret_cast<T*>(smem);
    const T value = vectors[threadIdx.x * stride]; // shared read
    vectors[threadIdx.x * stride + zero] = value;  // shared write
    out[threadIdx.x] = *reinterpret_cast<const float*>(&value);
}

__device__ int drawn;

__global__ void meetings(float* out) {
    float x = 1;
    __syncthreads();                                  // barrier
    x += __shfl_xor_sync(0xffffffffu, x, 1);          // shuffle
    __syncwarp();                                     // warp barrier
    x += __any_sync(0xffffffffu, x > 0) != 0 ? 1 : 0; // vote
    atomicAdd(out, x);                                // atomic
    atomicAdd(out + 8 + threadIdx.x, x);              // side by side
    atomicAdd(&drawn, 1);                             // of a __device__ variable
    const float C[4] = {x, x, x, x};
    flash::add_to_sum(out + 104, C); // of four floats
}

__global__ void tensor_cores(const float* in, float* out) {
    float* smem = flash::dynamic_shared<float>();
    cp_async_16(smem + 4 * threadIdx.x, in + 4 * threadIdx.x, threadIdx.x < 24); // copies
    cp_async_commit();
    cp_async_wait<0>();
    __syncthreads();
    uint32_t a[4];
    ldmatrix_x4(a, smem + 4 * threadIdx.x); // rows in sequence
    float c[4] = {0, 0, 0, 0};
    const uint32_t b[2] = {a[0], a[1]};
    mma_m16n8k16<Half>(c, a, b); // mma
    __syncthreads();
    ldmatrix_x4(a, smem + 4 * (threadIdx.x % 8 * 8 % 32)); // conflicting rows
    out[threadIdx.x] = c[0] + c[1] + c[2] + c[3] + static_cast<float>(a[0]);
    __syncthreads();
    flash::stmatrix_x4_trans(smem + 4 * threadIdx.x, a); // columns go in
}

/// Counts of the line of this file that ends with the tag, from the last profile.
Counters at(const char* tag) {
    const int line = line_of(__FILE__, tag);
    Counters sum;
    for (const simt::KernelProfile& kernel : simt::profile()) {
        for (const auto& [place, counters] : kernel.lines) {
            if (place.line == line && place.file.ends_with("test_counters.cpp")) {
                sum += counters;
            }
        }
    }
    return sum;
}

template <class... Parameters, class... Arguments>
void counted(void (*kernel)(Parameters...), unsigned blocks, unsigned threads, size_t smem,
             Arguments... arguments) {
    const With counting({.count = true});
    simt::clear_profile();
    launch(kernel, blocks, threads, smem, arguments...);
}

struct Conflict {
    int stride;
    uint64_t wavefronts;
};

} // namespace

TEST_CASE("global loads: sectors by stride and offset") {
    const Buffer<float> in(64 * 33), out(64);
    const auto sectors = [&](int stride, int offset) {
        counted(strided, 1, 64, 0, in.data(), out.data(), stride, offset);
        const Counters line = at("strided");
        CHECK(line.global_load.requests == 2);
        CHECK(line.global_load.bytes == 256);
        CHECK(line.global_store.requests == 2);
        CHECK(line.global_store.sectors == 8);
        return line.global_load.sectors;
    };
    CHECK(sectors(1, 0) == 2 * 4);   // coalesced: 128 bytes are 4 sectors
    CHECK(sectors(1, 1) == 2 * 5);   // shifted by one element
    CHECK(sectors(2, 0) == 2 * 8);   // every second element
    CHECK(sectors(8, 0) == 2 * 32);  // one sector a lane
    CHECK(sectors(33, 0) == 2 * 32); // and not more
    CHECK(sectors(0, 0) == 2 * 1);   // one element for all
}

TEST_CASE("global memory: 16 bytes per lane are one request of 16 sectors") {
    const Buffer<float> in(4 * 64), out(4 * 64);
    counted(vector_copy, 1, 64, 0, reinterpret_cast<const float4*>(in.data()),
            reinterpret_cast<float4*>(out.data()));
    const Counters load = at("vector load");
    CHECK(load.global_load.requests == 2);
    CHECK(load.global_load.bytes == 1024);
    CHECK(load.global_load.sectors == 32);
    const Counters store = at("vector store");
    CHECK(store.global_store.requests == 2);
    CHECK(store.global_store.sectors == 32);
    const auto total = simt::profile().at(0).total;
    CHECK(total.global_load.requests == 2);
    CHECK(total.global_store.requests == 2);
    CHECK(total.shared_load.requests == 0);
}

TEST_CASE("requests of lanes that do not all take part") {
    const Buffer<float> in(512), out(512);
    counted(some_lanes, 1, 32, 0, in.data(), out.data(), 100);
    CHECK(at("ragged").global_load.requests == 4);
    CHECK(at("ragged").global_load.bytes == 400);
    CHECK(at("ragged").global_load.sectors == 13); // 3 x 4, and one for the last 4 elements

    std::vector<int> rounds(32);
    for (size_t lane = 0; lane < 32; ++lane) {
        rounds[lane] = lane < 8 ? 0b1111 : lane < 16 ? 0b0011 : lane < 24 ? 0 : 0b0111;
    }
    const Buffer<int> masks(rounds);
    counted(diverging, 1, 32, 0, in.data(), out.data(), masks.data());
    CHECK(at("in some rounds").global_load.requests == 4);
    CHECK(at("in some rounds").global_load.sectors == 3 + 3 + 2 + 1);
    CHECK(at("in some rounds").global_store.sectors == 3 + 3 + 2 + 1);
    CHECK(at("in every round").global_store.requests == 4);
    CHECK(at("in every round").global_store.sectors == 16);
}

TEST_CASE("shared memory: bank conflicts by stride") {
    const Buffer<float> out(32);
    const auto check = [&]<class T>(T, std::vector<Conflict> conflicts, uint64_t ideal) {
        for (const auto [stride, wavefronts] : conflicts) {
            CAPTURE(sizeof(T), stride);
            counted(shared_stride<T>, 1, 32, 4096 * sizeof(float), out.data(), stride, 0);
            const Counters read = at("shared read"), write = at("shared write");
            CHECK(read.shared_load.requests == 1);
            CHECK(read.shared_load.bytes == 32 * sizeof(T));
            CHECK(read.shared_load.ideal == ideal);
            CHECK(read.shared_load.wavefronts == wavefronts);
            CHECK(write.shared_store.wavefronts == wavefronts);
            CHECK(write.shared_store.ideal == ideal);
        }
    };
    check(float{}, {{0, 1}, {1, 1}, {2, 2}, {3, 1}, {4, 4}, {8, 8}, {16, 16}, {32, 32}, {33, 1}},
          1);
    check(float2{}, {{1, 2}, {2, 4}, {16, 32}}, 2);
    check(float4{}, {{1, 4}, {2, 8}, {3, 4}, {8, 32}}, 4);
}

TEST_CASE("barriers, collectives and atomics are counted") {
    const Buffer<float> out(104 + 128);
    counted(meetings, 3, 96, 0, out.data());
    CHECK(at("barrier").barriers == 3);
    CHECK(at("shuffle").collectives == 9);
    CHECK(at("warp barrier").collectives == 9);
    CHECK(at("vote").collectives == 9);
    CHECK(at("atomic").atomics == 9);
    CHECK(at("atomic").global_atomic.sectors == 9);
    CHECK(at("side by side").atomics == 9);
    CHECK(at("side by side").global_atomic.requests == 9);
    CHECK(at("side by side").global_atomic.bytes == 9 * 128);
    CHECK(at("side by side").global_atomic.sectors == 9 * 4);
    CHECK(at("of a __device__ variable").global_atomic.sectors == 9);
    CHECK(at("of four floats").global_atomic.requests == 9);
    CHECK(at("of four floats").global_atomic.sectors == 9 * 16);
    CHECK(simt::profile().at(0).total.collectives == 27);
}

TEST_CASE("mma, ldmatrix and cp.async are counted") {
    const Buffer<float> in(128), out(64);
    counted(tensor_cores, 2, 32, 512, in.data(), out.data());
    CHECK(at("mma").mma == 2);
    CHECK(at("rows in sequence").ldmatrix == 2);
    CHECK(at("rows in sequence").shared_load.wavefronts == 8);
    CHECK(at("rows in sequence").shared_load.ideal == 8);
    CHECK(at("conflicting rows").ldmatrix == 2);
    // rows in 4 different words of the same banks
    CHECK(at("conflicting rows").shared_load.wavefronts == 32);
    CHECK(at("conflicting rows").shared_load.ideal == 8);
    CHECK(at("columns go in").shared_store.requests == 2);
    CHECK(at("columns go in").shared_store.bytes == 2 * 512);
    CHECK(at("columns go in").shared_store.wavefronts == 8);
    const Counters copies = at("copies");
    CHECK(copies.cp_async == 2);
    CHECK(copies.global_load.requests == 2);
    CHECK(copies.global_load.sectors == 2 * 12); // 24 lanes copy, 8 fill with zeros
    CHECK(copies.async_store.wavefronts == 8);
    CHECK(copies.shared_store.requests == 0);
}

TEST_CASE("traffic by buffer") {
    const DeviceBuffer<float> in(64, "Q");
    const Buffer<float> out(64);
    counted(strided, 2, 32, 0, static_cast<const float*>(in.data()), out.data(), 1, 0);
    const simt::KernelProfile kernel = simt::profile().at(0);
    REQUIRE(kernel.buffers.size() == 2);
    CHECK(kernel.buffers[0].name == "Q");
    CHECK(kernel.buffers[0].load.bytes == 256);
    CHECK(kernel.buffers[0].store.bytes == 0);
    CHECK(kernel.buffers[1].name == "data");
    CHECK(kernel.buffers[1].store.bytes == 256);
    CHECK(kernel.buffers[1].store.sectors == 8);
}

TEST_CASE("what is read behind a buffer is no traffic of it, and the count ends") {
    simt::DeviceMemory memory(128 * sizeof(float));
    memory.declare(0, 64 * sizeof(float), "Q");
    const Buffer<float> out(32);
    const auto in = reinterpret_cast<const float*>(memory.data());
    counted(strided, 1, 32, 0, in, out.data(), 1, 48);
    const simt::KernelProfile kernel = simt::profile().at(0);
    CHECK(kernel.total.global_load.bytes == 128);
    CHECK(kernel.buffers.at(0).load.bytes == 64);
}

TEST_CASE("counts do not depend on the schedule or the number of workers") {
    const Buffer<float> in(512), out(512);
    std::vector<int> rounds(32);
    for (size_t lane = 0; lane < 32; ++lane) {
        rounds[lane] = static_cast<int>(lane * 7 % 16);
    }
    const Buffer<int> masks(rounds);
    std::vector<std::array<uint64_t, 4>> seen;
    for (const simt::Schedule& schedule : schedules()) {
        for (const int workers : {1, 2}) {
            const With counting({.schedule = schedule, .count = true, .workers = workers});
            simt::clear_profile();
            launch(diverging, 4, 32, 0, in.data(), out.data(), masks.data());
            const Counters total = simt::profile().at(0).total;
            seen.push_back({total.global_load.requests, total.global_load.bytes,
                            total.global_load.sectors, total.global_store.sectors});
        }
    }
    CHECK(std::ranges::all_of(seen, [&](const auto& counts) { return counts == seen[0]; }));
}
