// CUDA's headers by name: a reader's file finds their types, functions and calls, which mean what
// CUDA's documentation says.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <helper_cuda.h>
#include <helper_functions.h>
#include <math_constants.h>
#include <mma.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <thread>

#include "common/tests/simt/support.hpp"

using namespace simt_test;
namespace cg = cooperative_groups;
namespace wmma = nvcuda::wmma;

namespace {

struct Packed { // as kernels take 16 bytes apart
    union {
        float4 whole;
        float parts[4];
    };
};

#ifndef __clang__ // for which a copy takes a constructor
static_assert(std::is_aggregate_v<float4> && std::is_trivially_copyable_v<Packed>);
#endif
static_assert(sizeof(float3) == 12 && alignof(float3) == 4 && alignof(double4) == 16);
static_assert(sizeof(uchar4) == 4 && alignof(uchar4) == 4 && sizeof(longlong2) == 16);
static_assert(sizeof(__half2) == 4 && alignof(__half2) == 4 && sizeof(__nv_bfloat16) == 2);
static_assert(std::is_trivially_copyable_v<__half> && std::is_trivially_copyable_v<__half2>);

} // namespace

// g++ watches no __shared__ variable of a kernel that has internal linkage
namespace cuda_headers {

__global__ void copies_of_vectors(const float4* in, float4* out, double2* pairs, uchar4* bytes,
                                  __half2* halves) {
    __shared__ float2 tile[32];
    const int t = static_cast<int>(threadIdx.x);
    float4 v = in[t];
    v.x *= 2;
    v.w += 1;
    out[t] = v;
    tile[t] = make_float2(v.x, v.y);
    double2 pair = pairs[t];
    pair.y = tile[t].x;
    pairs[t] = pair;
    uchar4 four = bytes[t];
    four.z = 7;
    bytes[t] = four;
    halves[t] = __hadd2(halves[t], __float2half2_rn(1.0f));
}

} // namespace cuda_headers

TEST_CASE("vectors of every type are copied at once") {
    const With counted({.detect = true, .count = true});
    const Buffer<float4> in(std::vector<float4>(32, make_float4(1, 2, 3, 4)));
    const Buffer<float4> out(32);
    const Buffer<double2> pairs(std::vector<double2>(32, make_double2(5, 6)));
    const Buffer<uchar4> bytes(std::vector<uchar4>(32, make_uchar4(1, 2, 3, 4)));
    const Buffer<__half2> halves(std::vector<__half2>(32, make_half2(1, 2)));
    simt::clear_profile();
    launch(cuda_headers::copies_of_vectors, 1, 32, 0, in.data(), out.data(), pairs.data(),
           bytes.data(), halves.data());
    CHECK(out.values()[5].x == 2);
    CHECK(out.values()[5].w == 5);
    CHECK(pairs.values()[5].y == 2);
    CHECK(bytes.values()[5].z == 7);
    CHECK(halves.values()[5] == make_half2(2, 3));
    const auto counters = simt::profile().front().total;
    CHECK(counters.global_load.requests == 4); // instructions of a warp
    CHECK(counters.global_store.requests == 4);
    CHECK(counters.shared_store.requests == 1);
}

TEST_CASE("fast functions and conversions") {
    CHECK(__sinf(0.5f) == sinf(0.5f));
    CHECK(__cosf(0.5f) == cosf(0.5f));
    CHECK(__powf(2.0f, 10.0f) == 1024);
    CHECK(__exp10f(2.0f) == exp10f(2.0f));
    CHECK(rsqrt(4.0) == 0.5);
    CHECK(__frcp_rn(8.0f) == 0.125f);
    CHECK(__fsqrt_rn(9.0f) == 3);
    CHECK(norm3df(2, 3, 6) == 7);
    CHECK(std::abs(sinpif(0.5f) - 1) < 1e-6f);
    CHECK(std::abs(normcdff(0) - 0.5f) < 1e-6f);
    CHECK(__float2int_rn(2.5f) == 2);
    CHECK(__float2int_rz(-2.7f) == -2);
    CHECK(__float2int_ru(2.1f) == 3);
    CHECK(__float2int_rd(-2.1f) == -3);
    CHECK(__float2int_rn(1e20f) == std::numeric_limits<int>::max());
    CHECK(__float2int_rz(-1e20f) == std::numeric_limits<int>::min());
    CHECK(__float2uint_rz(-1.0f) == 0);
    CHECK(__float2ull_rn(1e30f) == std::numeric_limits<unsigned long long>::max());
    CHECK(__float2int_rz(NAN) == 0);
    CHECK(__hiloint2double(__double2hiint(-1.25), __double2loint(-1.25)) == -1.25);
    CHECK(CUDART_INF_F > 1e38f);
}

TEST_CASE("functions of bits") {
    CHECK(__popcll(0xff00ff00ff00ff00ull) == 32);
    CHECK(__clzll(1) == 63);
    CHECK(__ffsll(1ll << 40) == 41);
    CHECK(__ffsll(0) == 0);
    CHECK(__brev(1) == 0x80000000u);
    CHECK(__brevll(2) == 0x4000000000000000ull);
    CHECK(__byte_perm(0x33221100, 0x77665544, 0x7531) == 0x77553311);
    CHECK(__byte_perm(0x00008000, 0, 0x4449) == 0x000000ff);
    CHECK(__funnelshift_l(0x80000000u, 1, 1) == 3);
    CHECK(__funnelshift_r(0x80000000u, 1, 31) == 3);
    CHECK(__funnelshift_lc(5, 6, 40) == 5);
    CHECK(__mul24(-3, 5) == -15);
    CHECK(__umul24(0xff000002, 3) == 6);
    CHECK(__umulhi(0x80000000u, 6) == 3);
    CHECK(__mulhi(-1, 1) == -1);
    CHECK(__umul64hi(1ull << 63, 6) == 3);
    CHECK(__usad(3, 5, 1) == 3);
    CHECK(__hadd(-3, 4) == 0);
    CHECK(__dp4a(0x01020304, 0x01010101, 5) == 15);
    CHECK(__dp4a(-1, 0x01010101, 0) == -4); // each byte is -1
    CHECK(__dp4a(0xffffffffu, 0x01010101u, 0u) == 1020);
    CHECK(__dp4a(make_char4(1, -2, 3, 4), make_char4(1, 1, 1, 1), 0) == 6);
}

TEST_CASE("fp16 and bf16: each operation rounds once") {
    const __half a = __float2half(1.0f);
    const __half tiny = __float2half(0x1p-11f); // half a unit in the last place of 1
    CHECK(float{a + tiny} == 1);
    CHECK(float{a + tiny * __half(1.5f)} == 1 + 0x1p-10f);
    CHECK(float{__hfma(a, a, tiny)} == 1);
    // the product's last bits decide
    const __half b = __float2half(1 + 0x1p-10f);
    CHECK(float{__hfma(b, b, __float2half(0x1p-11f))} == 1 + 3 * 0x1p-10f);
    CHECK(float{__hadd_sat(a, a)} == 1);
    CHECK(float{__hmax(a, __float2half(NAN))} == 1);
    CHECK(__hisnan(__hmax_nan(a, __float2half(NAN))));
    CHECK(__hlt(tiny, a));
    CHECK(float{__float2half_rz(1 + 0x1.8p-10f)} == 1 + 0x1p-10f);
    CHECK(float{__float2half_ru(1 + 0x1p-20f)} == 1 + 0x1p-10f);
    CHECK(float{__float2half_rd(-1 - 0x1p-20f)} == -1 - 0x1p-10f);
    CHECK(float{__float2half_rd(0x1p-30f)} == 0);
    CHECK(float{__float2half_ru(0x1p-30f)} == 0x1p-24f);
    // to fp32 and then to fp16 would give 1
    CHECK(float{__double2half(1 + 0x1p-11 + 0x1p-40)} == 1 + 0x1p-10f);
    CHECK(__half2int_rn(__float2half(2.5f)) == 2);
    CHECK(__half2int_rz(__float2half(-2.5f)) == -2);
    CHECK(__half_as_ushort(a) == 0x3c00);
    CHECK(float{hsqrt(__float2half(4))} == 2);
    __half sum = a;
    sum += __half(2);
    CHECK(static_cast<float>(sum) == 3);
    CHECK(sum * 2.0f == 6.0f);

    const __half2 pair = __floats2half2_rn(1, 2);
    CHECK(__half22float2(__hfma2(pair, pair, pair)).y == 6);
    CHECK(__low2float(__lowhigh2highlow(pair)) == 2);
    CHECK(__hbeq2(pair, __halves2half2(__low2half(pair), __high2half(pair))));
    CHECK(__high2float(__hgt2(pair, __half2half2(a))) == 1);

    const __nv_bfloat16 c = __float2bfloat16(1.0f);
    CHECK(float{c + __float2bfloat16(0x1p-8f)} == 1);
    CHECK(float{c * __float2bfloat16(3)} == 3);
    CHECK(__bfloat162float(__hadd(c, c)) == 2);
    CHECK(__bfloat1622float2(__hmul2(__floats2bfloat162_rn(2, 3), __bfloat162bfloat162(c))).y == 3);
    CHECK(__bfloat16_as_ushort(c) == 0x3f80);
}

namespace {

__global__ void of_warps(unsigned* active, unsigned* same, int* all, __half* shuffled) {
    const unsigned lane = threadIdx.x % 32;
    active[threadIdx.x] = __activemask();
    if (lane % 2 == 0) {
        active[threadIdx.x] &= __activemask();
    }
    same[threadIdx.x] = __match_any_sync(0xffffffffu, static_cast<long long>(lane / 8) << 40);
    __match_all_sync(0xffffffffu, 1.5f, &all[threadIdx.x]);
    shuffled[threadIdx.x] = __shfl_xor_sync(0xffffffffu, __half(static_cast<int>(lane)), 1);
}

__global__ void counted_by_one_lane(int* counter, int* own, int limit) {
    if (static_cast<int>(threadIdx.x) < limit) {
        const cg::coalesced_group group = cg::coalesced_threads();
        int before = 0;
        if (group.thread_rank() == 0) {
            before = atomicAdd(counter, static_cast<int>(group.size()));
        }
        own[threadIdx.x] = group.shfl(before, 0) + static_cast<int>(group.thread_rank());
    }
}

} // namespace

TEST_CASE("what a warp can say of itself") {
    in_every_way([] {
        const Buffer<unsigned> active(64), same(64);
        const Buffer<int> all(64);
        const Buffer<__half> shuffled(64);
        launch(of_warps, 1, 64, 0, active.data(), same.data(), all.data(), shuffled.data());
        CHECK(active.values()[33] == 0xffffffffu);
        CHECK(active.values()[34] == 0x55555555u);
        CHECK(same.values()[41] == 0xff00u);
        CHECK(all.values()[63] == 1);
        CHECK(shuffled.values()[32] == __half(1));
    });
}

TEST_CASE("lanes that come together count as one") {
    in_every_way([] {
        const Buffer<int> counter(1), own(64);
        launch(counted_by_one_lane, 1, 64, 0, counter.data(), own.data(), 50);
        CHECK(counter.values()[0] == 50);
        std::vector<int> places = own.values();
        std::sort(places.begin(), places.begin() + 50);
        std::vector<int> each(50);
        std::iota(each.begin(), each.end(), 0);
        CHECK(std::equal(each.begin(), each.end(), places.begin()));
    });
}

namespace {

__global__ void atomics(unsigned* wrapping, unsigned short* once, __half* halves, __half2* pairs,
                        __nv_bfloat16* brain, double* doubles, unsigned long long* longs) {
    atomicDec(&wrapping[0], 6u);
    if (atomicCAS(&once[1], static_cast<unsigned short>(0), static_cast<unsigned short>(9)) == 0) {
        atomicCAS(&once[0], static_cast<unsigned short>(0), static_cast<unsigned short>(1));
    }
    atomicAdd(&halves[1], __half(0.5f));
    atomicAdd(&pairs[0], __floats2half2_rn(1, 2));
    atomicAdd(&brain[1], 1.0f);
    atomicAdd(doubles, 0.5);
    atomicMax(longs, 5ull + threadIdx.x);
}

} // namespace

TEST_CASE("atomic operations of every width") {
    const With watched({.detect = true});
    const Buffer<unsigned> wrapping(std::vector<unsigned>{3});
    const Buffer<unsigned short> once(2);
    const Buffer<__half> halves(std::vector<__half>(2, __half(0)));
    const Buffer<__half2> pairs(std::vector<__half2>(1, make_half2(0, 0)));
    const Buffer<__nv_bfloat16> brain(std::vector<__nv_bfloat16>(2, __nv_bfloat16(0)));
    const Buffer<double> doubles(1);
    const Buffer<unsigned long long> longs(1);
    launch(atomics, 1, 32, 0, wrapping.data(), once.data(), halves.data(), pairs.data(),
           brain.data(), doubles.data(), longs.data());
    CHECK(wrapping.values()[0] == 6); // 32 steps down from 3, of which 7 are a turn
    CHECK(once.values() == std::vector<unsigned short>{1, 9});
    CHECK(halves.values() == std::vector<__half>{0, 16});
    CHECK(pairs.values()[0] == make_half2(32, 64));
    CHECK(brain.values()[1] == __nv_bfloat16(32));
    CHECK(doubles.values()[0] == 16);
    CHECK(longs.values()[0] == 36);
}

TEST_CASE("rows with a pitch, streams and events") {
    float* rows = nullptr;
    size_t pitch = 0;
    checkCudaErrors(cudaMallocPitch(&rows, &pitch, 3 * sizeof(float), 2));
    CHECK(pitch == 512);
    const float in[6] = {1, 2, 3, 4, 5, 6};
    float out[6] = {};
    constexpr size_t width = 3 * sizeof(float);
    cudaStream_t stream;
    checkCudaErrors(cudaStreamCreate(&stream));
    cudaEvent_t start, stop;
    checkCudaErrors(cudaEventCreate(&start));
    checkCudaErrors(cudaEventCreate(&stop));
    float milliseconds = -1;
    CHECK(cudaEventElapsedTime(&milliseconds, start, stop) == cudaErrorInvalidResourceHandle);
    CHECK(cudaPeekAtLastError() == cudaErrorInvalidResourceHandle);
    CHECK(cudaGetLastError() == cudaErrorInvalidResourceHandle);
    CHECK(cudaGetLastError() == cudaSuccess);

    checkCudaErrors(cudaEventRecord(start, stream));
    checkCudaErrors(
        cudaMemcpy2DAsync(rows, pitch, in, width, width, 2, cudaMemcpyHostToDevice, stream));
    checkCudaErrors(cudaMemcpy2D(out, width, rows, pitch, width, 2, cudaMemcpyDeviceToHost));
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    checkCudaErrors(cudaEventRecord(stop, stream));
    checkCudaErrors(cudaEventSynchronize(stop));
    checkCudaErrors(cudaEventElapsedTime(&milliseconds, start, stop));
    CHECK(milliseconds >= 2);
    CHECK(std::equal(in, in + 6, out));
    CHECK(cudaMemcpy2D(out, 4, rows, pitch, width, 2, cudaMemcpyDeviceToHost) ==
          cudaErrorInvalidPitchValue);
    CHECK(std::string(cudaGetErrorName(cudaGetLastError())) == "cudaErrorInvalidPitchValue");
    checkCudaErrors(cudaMemset2D(rows, pitch, 0, width, 2));
    checkCudaErrors(cudaStreamSynchronize(stream));
    checkCudaErrors(cudaStreamDestroy(stream));
    checkCudaErrors(cudaEventDestroy(start));
    checkCudaErrors(cudaEventDestroy(stop));
    checkCudaErrors(cudaFree(rows));
}

namespace {

__global__ void add(float* sum, const float* a, float b) {
    __shared__ float tile[256];
    tile[threadIdx.x] = a[threadIdx.x];
    sum[threadIdx.x] = tile[threadIdx.x] + b;
}
template <int factor, class T> __global__ void times(T* numbers) { numbers[threadIdx.x] *= factor; }

} // namespace

TEST_CASE("the emulated device, and what it holds") {
    int count = 0;
    checkCudaErrors(cudaGetDeviceCount(&count));
    CHECK(count == 1);
    CHECK(cudaSetDevice(1) == cudaErrorInvalidDevice);
    CHECK(cudaGetLastError() == cudaErrorInvalidDevice);
    cudaDeviceProp gpu;
    checkCudaErrors(cudaGetDeviceProperties(&gpu, 0));
    CHECK(gpu.major == 8);
    CHECK(gpu.warpSize == 32);
    int sms = 0;
    checkCudaErrors(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0));
    CHECK(sms == gpu.multiProcessorCount);
    size_t free = 0, total = 0;
    checkCudaErrors(cudaMemGetInfo(&free, &total));
    CHECK(free <= total);

    cudaFuncAttributes attributes;
    checkCudaErrors(cudaFuncGetAttributes(&attributes, add));
    CHECK(attributes.sharedSizeBytes == 1024);
    checkCudaErrors(
        cudaFuncSetAttribute(add, cudaFuncAttributeMaxDynamicSharedMemorySize, 100 << 10));
    CHECK(cudaFuncSetAttribute(add, cudaFuncAttributeMaxDynamicSharedMemorySize, 163 << 10) ==
          cudaErrorInvalidValue);
    CHECK(cudaGetLastError() == cudaErrorInvalidValue);
    int blocks = 0;
    checkCudaErrors(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, add, 256, 0));
    CHECK(blocks == 8);
    checkCudaErrors(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, add, 256, 80 << 10));
    CHECK(blocks == 2);
    int grid = 0, block = 0;
    checkCudaErrors(cudaOccupancyMaxPotentialBlockSize(&grid, &block, add, 0, 256));
    CHECK(block == 256);
    CHECK(grid == 8 * sms);
}

TEST_CASE("kernels are launched by their address") {
    const Buffer<float> sum(32), a(std::vector<float>(32, 1.0f));
    float* sum_gpu = sum.data();
    float* a_gpu = a.data();
    float b = 2;
    void* arguments[] = {&sum_gpu, &a_gpu, &b};
    checkCudaErrors(cudaLaunchKernel((void*)add, dim3(1), dim3(32), arguments, 0, nullptr));
    CHECK(sum.values()[31] == 3);
    void* one[] = {&sum_gpu};
    checkCudaErrors(cudaLaunchKernel((const void*)times<2, float>, 1, 32, one));
    checkCudaErrors(cudaLaunchKernel(times<2, float>, 1, 32, one));
    checkCudaErrors(cudaLaunchKernel(&times<2, float>, 1, 32, one, 0));
    CHECK(sum.values()[31] == 24);
}

namespace {

__global__ void in_groups(int* out) {
    const cg::thread_block block = cg::this_thread_block();
    const auto warp = cg::tiled_partition<32>(block);
    const cg::thread_block_tile<8> tile = cg::tiled_partition<8>(warp);
    const int rank = static_cast<int>(block.thread_rank());
    out[rank] = cg::reduce(warp, rank, cg::plus<int>());
    out[64 + rank] = cg::reduce(tile, rank, cg::less<int>());
    out[128 + rank] = cg::inclusive_scan(tile, 1);
    out[192 + rank] = tile.shfl_xor(rank, 1) + static_cast<int>(tile.meta_group_rank());
    const cg::coalesced_group odd = cg::binary_partition(warp, rank % 2 != 0);
    out[256 + rank] = cg::reduce(odd, rank, cg::greater<int>());
    const cg::thread_group any = tile;
    any.sync();
    out[320 + rank] = static_cast<int>(any.size() + any.thread_rank());
    const auto four = cg::tiled_partition<4>(tile);
    out[384 + rank] = static_cast<int>(10 * four.meta_group_size() + four.meta_group_rank());
    const auto pair = cg::tiled_partition(odd, 2); // of every second lane
    out[448 + rank] = static_cast<int>(100 * pair.meta_group_size() + 10 * pair.meta_group_rank() +
                                       pair.thread_rank());
    const auto labeled = cg::labeled_partition(warp, rank % 3);
    out[512 + rank] = static_cast<int>(10 * labeled.meta_group_size() + labeled.meta_group_rank());
    block.sync();
}

__global__ void neighbours_after_all(const int* in, int* between, int* out, int size) {
    const cg::grid_group grid = cg::this_grid();
    const int i = static_cast<int>(grid.thread_rank());
    between[i] = in[i] + 1;
    grid.sync();
    out[i] = between[(i + 33) % size];
    grid.sync();
    between[i] = out[i] + 1;
}

} // namespace

TEST_CASE("cooperative groups within a block") {
    in_every_way([] {
        const Buffer<int> out(576);
        launch(in_groups, 1, dim3(16, 4), 0, out.data());
        const std::vector<int> of = out.values();
        CHECK(of[33] == 1520); // 32 to 63
        CHECK(of[64 + 45] == 40);
        CHECK(of[128 + 45] == 6);
        CHECK(of[192 + 45] == 44 + 1); // a tile counts within its warp
        CHECK(of[256 + 45] == 63);
        CHECK(of[256 + 44] == 62);
        CHECK(of[320 + 45] == 8 + 5);
        CHECK(of[384 + 45] == 21);
        CHECK(of[448 + 45] == 830);    // lanes 1, 3, 5 ... of 16: lane 13 is the seventh
        CHECK(of[512 + 45] == 30 + 1); // labels by their lowest lanes: 2, 0, 1
    });
}

TEST_CASE("all blocks of a grid meet") {
    for (const bool detect : {false, true}) {
        for (const int workers : {1, 4}) {
            const With chosen({.detect = detect, .workers = workers});
            constexpr int size = 4 * 64;
            const Buffer<int> in(std::vector<int>(size, 4)), between(size), out(size);
            int* in_gpu = in.data();
            int* between_gpu = between.data();
            int* out_gpu = out.data();
            int count = size;
            void* arguments[] = {&in_gpu, &between_gpu, &out_gpu, &count};
            checkCudaErrors(
                cudaLaunchCooperativeKernel((void*)neighbours_after_all, 4, 64, arguments));
            CHECK(out.values() == std::vector<int>(size, 5));
            CHECK(between.values() == std::vector<int>(size, 6));
            CHECK(cudaLaunchCooperativeKernel(neighbours_after_all, 1000, 1024, arguments) ==
                  cudaErrorCooperativeLaunchTooLarge);
            CHECK(cudaGetLastError() == cudaErrorCooperativeLaunchTooLarge);
            const Fault fault = fault_of([&] {
                launch(neighbours_after_all, 4, 64, 0, in.data(), between.data(), out.data(),
                       size); // alone
            });
            CHECK(fault.hint == "launch the kernel by cudaLaunchCooperativeKernel");
        }
    }
}

namespace {

template <int M, int N, class T, class C, class LayoutA, class LayoutB>
__global__ void tensor_cores(const T* a, const T* b, C* c, wmma::layout_t layout) {
    wmma::fragment<wmma::matrix_a, M, N, 16, T, LayoutA> A;
    wmma::fragment<wmma::matrix_b, M, N, 16, T, LayoutB> B;
    wmma::fragment<wmma::accumulator, M, N, 16, C> sum, old;
    const int c_distance = layout == wmma::mem_row_major ? N : M;
    wmma::fill_fragment(sum, C(1.0f));
    wmma::load_matrix_sync(old, c, static_cast<unsigned>(c_distance), layout);
    wmma::load_matrix_sync(A, a, A.is_row_major ? 16 : M);
    wmma::load_matrix_sync(B, b, B.is_row_major ? N : 16);
    wmma::mma_sync(sum, A, B, sum);
    for (int i = 0; i < sum.num_elements; ++i) {
        sum.x[i] += old.x[i];
    }
    wmma::store_matrix_sync(c, sum, static_cast<unsigned>(c_distance), layout);
}

template <int M, int N, class T, class C, class LayoutA, class LayoutB>
void check_tensor_cores(wmma::layout_t layout) {
    const With watched({.detect = true, .count = true});
    std::vector<T> a, b;
    for (int i = 0; i < M * 16; ++i) {
        a.push_back(T(i % 7 - 3));
    }
    for (int i = 0; i < 16 * N; ++i) {
        b.push_back(T(i % 5 - 2));
    }
    const Buffer<T> a_gpu(a), b_gpu(b);
    const Buffer<C> c_gpu(std::vector<C>(static_cast<size_t>(M * N), C(2.0f)));
    simt::clear_profile();
    launch(tensor_cores<M, N, T, C, LayoutA, LayoutB>, 1, 32, 0, a_gpu.data(), b_gpu.data(),
           c_gpu.data(), layout);
    CHECK(simt::profile().front().total.mma == 2);
    const std::vector<C> c = c_gpu.values();
    const bool a_rows = std::is_same_v<LayoutA, wmma::row_major>;
    const bool b_rows = std::is_same_v<LayoutB, wmma::row_major>;
    int wrong = 0;
    for (int row = 0; row < M; ++row) {
        for (int column = 0; column < N; ++column) {
            float sum = 3;
            for (int k = 0; k < 16; ++k) {
                sum += float{a[static_cast<size_t>(a_rows ? row * 16 + k : k * M + row)]} *
                       float{b[static_cast<size_t>(b_rows ? k * N + column : column * 16 + k)]};
            }
            const int place = layout == wmma::mem_row_major ? row * N + column : column * M + row;
            wrong += static_cast<float>(c[static_cast<size_t>(place)]) == sum ? 0 : 1;
        }
    }
    CHECK(wrong == 0);
}

} // namespace

TEST_CASE("wmma in each shape, type and layout") {
    using wmma::col_major, wmma::row_major;
    check_tensor_cores<16, 16, __half, float, row_major, col_major>(wmma::mem_row_major);
    check_tensor_cores<16, 16, __half, __half, col_major, row_major>(wmma::mem_col_major);
    check_tensor_cores<32, 8, __nv_bfloat16, float, row_major, row_major>(wmma::mem_row_major);
    check_tensor_cores<32, 8, __half, float, col_major, col_major>(wmma::mem_col_major);
    check_tensor_cores<8, 32, __half, float, row_major, col_major>(wmma::mem_row_major);
    check_tensor_cores<8, 32, __nv_bfloat16, float, col_major, row_major>(wmma::mem_col_major);
}

namespace {

template <class T> std::vector<T> product(int m, int n, int k, const T* a, const T* b) {
    std::vector<T> c(static_cast<size_t>(m * n));
    for (int i = 0; i < m; ++i) {
        for (int j = 0; j < n; ++j) {
            float sum = 0;
            for (int x = 0; x < k; ++x) {
                sum += static_cast<float>(a[x * m + i]) * static_cast<float>(b[j * k + x]);
            }
            c[static_cast<size_t>(j * m + i)] = T(sum);
        }
    }
    return c;
}

} // namespace

TEST_CASE("cuBLAS multiplies column by column") {
    constexpr int m = 3, n = 2, k = 4;
    std::vector<float> a(m * k), b(k * n);
    std::iota(a.begin(), a.end(), 1.0f);
    std::iota(b.begin(), b.end(), -3.0f);
    const std::vector<float> expected = product(m, n, k, a.data(), b.data());
    const Buffer<float> a_gpu(a), b_gpu(b), c_gpu(std::vector<float>(m * n, NAN));
    cublasHandle_t handle;
    REQUIRE(cublasCreate(&handle) == CUBLAS_STATUS_SUCCESS);
    const float one = 1, none = 0;
    CHECK(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, m, n, k, &one, a_gpu.data(), m,
                      b_gpu.data(), k, &none, c_gpu.data(), m) == CUBLAS_STATUS_SUCCESS);
    CHECK(c_gpu.values() == expected);
    CHECK(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, m, n, k, &one, a_gpu.data(), m - 1,
                      b_gpu.data(), k, &none, c_gpu.data(), m) == CUBLAS_STATUS_INVALID_VALUE);

    // the same read as rows: op(A) op(B) of the transposed matrices
    const Buffer<float> c_rows(std::vector<float>(m * n, 1.0f));
    CHECK(cublasSgemm(handle, CUBLAS_OP_T, CUBLAS_OP_T, n, m, k, &one, b_gpu.data(), k,
                      a_gpu.data(), m, &one, c_rows.data(), n) == CUBLAS_STATUS_SUCCESS);
    CHECK(c_rows.values()[1] == expected[m] + 1);

    std::vector<__half> a16(a.begin(), a.end()), b16(b.begin(), b.end());
    const Buffer<__half> a16_gpu(a16), b16_gpu(b16);
    const Buffer<__half> c16_gpu(static_cast<size_t>(2 * m * n));
    CHECK(cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, m, n, k, &one, a16_gpu.data(), CUDA_R_16F,
                       m, b16_gpu.data(), CUDA_R_16F, k, &none, c_gpu.data(), CUDA_R_32F, m,
                       CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT) == CUBLAS_STATUS_SUCCESS);
    CHECK(c_gpu.values() == expected);
    const __half half_one = 1, half_none = 0;
    CHECK(cublasHgemmStridedBatched(handle, CUBLAS_OP_N, CUBLAS_OP_N, m, n, k, &half_one,
                                    a16_gpu.data(), m, 0, b16_gpu.data(), k, 0, &half_none,
                                    c16_gpu.data(), m, m * n, 2) == CUBLAS_STATUS_SUCCESS);
    CHECK(static_cast<float>(c16_gpu.values()[m * n + 1]) == expected[1]);

    float dot = 0;
    CHECK(cublasSdot(handle, m, a_gpu.data(), 1, b_gpu.data(), 2, &dot) == CUBLAS_STATUS_SUCCESS);
    CHECK(dot == 1 * -3 + 2 * -1 + 3 * 1);
    CHECK(cublasSgemv(handle, CUBLAS_OP_N, m, k, &one, a_gpu.data(), m, b_gpu.data(), 1, &none,
                      c_gpu.data(), 1) == CUBLAS_STATUS_SUCCESS);
    CHECK(c_gpu.values()[2] == expected[2]);
    CHECK(cublasSaxpy(handle, 2, &one, a_gpu.data(), 1, b_gpu.data(), 2) == CUBLAS_STATUS_SUCCESS);
    CHECK(b_gpu.values()[2] == b[2] + a[1]);
    CHECK(cublasDestroy(handle) == CUBLAS_STATUS_SUCCESS);
}

TEST_CASE("the samples' helpers") {
    const char* arguments[] = {"program", "--size=12", "-verbose"};
    CHECK(checkCmdLineFlag(3, arguments, "verbose"));
    CHECK(getCmdLineArgumentInt(3, arguments, "size") == 12);
    CHECK(findCudaDevice(3, arguments) == 0);
    StopWatchInterface* timer = nullptr;
    sdkCreateTimer(&timer);
    sdkStartTimer(&timer);
    sdkStopTimer(&timer);
    CHECK(sdkGetTimerValue(&timer) >= 0);
    sdkDeleteTimer(&timer);
    const float reference[] = {1, 2}, near[] = {1, 2.0001f}, far[] = {1, 3};
    CHECK(sdkCompareL2fe(reference, near, 2, 1e-3f));
    CHECK(!sdkCompareL2fe(reference, far, 2, 1e-3f));
}
