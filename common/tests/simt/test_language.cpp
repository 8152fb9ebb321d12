// CUDA's vocabulary on the CPU means what the CUDA C++ Programming Guide says.
#include <cmath>
#include <limits>
#include <numeric>

#include "common/cuda/ptx/exp2.hpp"
#include "common/cuda/ptx/reduction.hpp"
#include "common/tests/simt/support.hpp"

using namespace simt_test;

namespace {

constexpr unsigned full = 0xffffffffu;

__global__ void shuffles(int* out, int argument, int width) {
    const int lane = threadIdx.x;
    out[lane] = __shfl_sync(full, lane, argument, width);
    out[32 + lane] = __shfl_up_sync(full, lane, argument, width);
    out[64 + lane] = __shfl_down_sync(full, lane, argument, width);
    out[96 + lane] = __shfl_xor_sync(full, lane, argument, width);
}

__global__ void shuffle_types(double* d, int64_t* i, float* f) {
    const unsigned lane = threadIdx.x;
    d[lane] = __shfl_xor_sync(full, 0.1 * lane, 1);
    i[lane] = __shfl_xor_sync(full, int64_t{lane} << 40, 1);
    f[lane] = __shfl_xor_sync(full, 0.5f * static_cast<float>(lane), 1);
}

__global__ void votes(unsigned* out, int threshold) {
    const int lane = threadIdx.x;
    out[lane] = __ballot_sync(full, lane < threshold);
    out[32 + lane] = static_cast<unsigned>(__any_sync(full, lane < threshold));
    out[64 + lane] = static_cast<unsigned>(__all_sync(full, lane < threshold));
    if (lane % 2 == 0) {
        out[lane] = __ballot_sync(0x55555555u, lane >= 16); // only the even lanes meet
    }
}

__global__ void barriers(int* out, int threshold) {
    const int t = threadIdx.x;
    out[t] = __syncthreads_or(t < threshold);
    out[100 + t] = __syncthreads_or(t >= threshold);
}

__global__ void halves_of_a_warp(int* out) {
    const unsigned mask = threadIdx.x < 16 ? 0xffffu : 0xffff0000u;
    int sum = threadIdx.x;
    for (int distance = 8; distance > 0; distance /= 2) {
        sum += __shfl_xor_sync(mask, sum, distance);
    }
    out[threadIdx.x] = sum;
}

__global__ void lanes_that_left(int* out) {
    if (threadIdx.x >= 20) {
        return; // a warp collective waits only for lanes that are still there
    }
    out[threadIdx.x] = static_cast<int>(__ballot_sync(full, 1));
}

/// Lanes 0 and 1 each wait for lane 2 in a meeting of their own; it leaves, and then they meet each
/// other.
__global__ void lane_of_two_meetings_left(int* out) {
    if (threadIdx.x < 2) {
        const unsigned mask = threadIdx.x == 0 ? 0b101u : 0b110u;
        const int own = static_cast<int>(__ballot_sync(mask, 1));
        out[threadIdx.x] = __shfl_xor_sync(0b011u, own, 1);
    }
}

template <class T> __global__ void atomics(T* cells) {
    const T t = static_cast<T>(threadIdx.x);
    atomicAdd(&cells[0], t);
    atomicSub(&cells[1], t);
    atomicMin(&cells[2], t);
    atomicMax(&cells[3], t);
    atomicExch(&cells[4], T{7});
    T seen = cells[5] * 0;
    while (true) { // an addition by compare and swap
        const T before = atomicCAS(&cells[5], seen, static_cast<T>(seen + 2));
        if (before == seen) {
            break;
        }
        seen = before;
    }
}

__global__ void bits(unsigned* cells) {
    atomicAnd(&cells[0], ~(1u << threadIdx.x));
    atomicOr(&cells[1], 1u << threadIdx.x);
    atomicXor(&cells[2], 1u << (threadIdx.x / 2));
}

/// Element c of a lane's C fragment is that of row `row` and column `column` of a tile of 16 x 8.
__device__ void place_in_tile(int lane, int c, int& row, int& column) {
    row = lane / 4 + c / 2 * 8;
    column = lane % 4 * 2 + c % 2;
}

/// Each warp of each block adds the tile whose element is 8 row + column.
__global__ void additions(float* sum, float* by_elements) {
    const int lane = threadIdx.x % 32;
    float C[4];
    for (int c = 0; c < 4; ++c) {
        int row = 0, column = 0;
        place_in_tile(lane, c, row, column);
        C[c] = static_cast<float>(8 * row + column);
        by_elements[32 * c + lane] = C[c];
    }
    flash::add_to_sum(sum, C);
}

template <bool by_lane> __global__ void rows_of_a_sum(const float* sum, float* out) {
    float rows[2][8];
    flash::rows_of_sum<by_lane>(rows, sum, threadIdx.x);
    for (int x = 0; x < 8; ++x) {
        out[8 * threadIdx.x + x] = rows[0][x];
        out[64 + 8 * threadIdx.x + x] = rows[1][x];
    }
}

__global__ void vectors(const float4* in, float4* out, float2* pairs, uint4* words) {
    const float4 v = in[threadIdx.x];
    float4 w = v;
    w.x = v.w;
    out[threadIdx.x] = w;
    pairs[threadIdx.x] = make_float2(v.y, v.z);
    words[threadIdx.x] = *reinterpret_cast<const uint4*>(&in[threadIdx.x]);
}

__global__ void functions(float* out) {
    out[0] = __expf(1.0f);
    out[1] = exp2f(3.0f);
    out[2] = __logf(2.0f);
    out[3] = rsqrtf(4.0f);
    out[4] = fmaf(2.0f, 3.0f, 1.0f);
    out[5] = __fdividef(1.0f, 8.0f);
    out[6] = __fmaf_rn(2.0f, 3.0f, -6.0f);
    out[7] = static_cast<float>(min(3, size_t{2}) + max(1u, 5));
    out[8] = __int_as_float(__float_as_int(2.5f));
    out[9] = static_cast<float>(__popc(0xf0u) + __clz(1) + __ffs(8));
    out[10] = fmaxf(-INFINITY, 1.0f);
    out[11] = flash::fast_exp2(-200.0f);
    out[12] = __ldg(out + 4);
    out[13] = __saturatef(1.5f);
}

std::vector<int> expected(int (*source)(int lane, int argument, int width), int argument,
                          int width) {
    std::vector<int> lanes(32);
    for (int lane = 0; lane < 32; ++lane) {
        lanes[static_cast<size_t>(lane)] = source(lane, argument, width);
    }
    return lanes;
}

} // namespace

TEST_CASE("shuffles take from the lane that they name, within segments of a width") {
    for (const int width : {32, 16, 8}) {
        for (const int argument : {0, 1, 3, 7, 17}) {
            CAPTURE(width, argument);
            const Buffer<int> out(128);
            launch(shuffles, 1, 32, 0, out.data(), argument, width);
            const std::vector<int> all = out.values();
            const auto part = [&](int n) {
                return std::vector<int>(all.begin() + 32 * n, all.begin() + 32 * (n + 1));
            };
            CHECK(part(0) ==
                  expected([](int l, int a, int w) { return l / w * w + a % w; }, argument, width));
            CHECK(part(1) == expected([](int l, int a, int w) { return l % w < a ? l : l - a; },
                                      argument, width));
            CHECK(part(2) ==
                  expected([](int l, int a, int w) { return l % w + a >= w ? l : l + a; }, argument,
                           width));
            CHECK(part(3) ==
                  expected([](int l, int a, int w) { return (l ^ a) / w > l / w ? l : l ^ a; },
                           argument, width));
        }
    }
}

TEST_CASE("shuffles carry values of 4 and 8 bytes") {
    const Buffer<double> d(32);
    const Buffer<int64_t> i(32);
    const Buffer<float> f(32);
    launch(shuffle_types, 1, 32, 0, d.data(), i.data(), f.data());
    CHECK(d.values()[4] == 0.1 * 5);
    CHECK(i.values()[4] == int64_t{5} << 40);
    CHECK(f.values()[4] == 2.5f);
}

TEST_CASE("votes") {
    for (const int threshold : {0, 5, 32}) {
        const Buffer<unsigned> out(96);
        launch(votes, 1, 32, 0, out.data(), threshold);
        const auto lanes = out.values();
        CHECK(lanes[1] == (threshold == 32 ? full : (1u << threshold) - 1));
        CHECK(lanes[0] == 0x55550000u);
        CHECK(lanes[33] == (threshold > 0));
        CHECK(lanes[65] == (threshold == 32));
    }
}

TEST_CASE("barriers that vote, in every schedule") {
    for (const simt::Schedule& schedule : schedules()) {
        const With scheduled({.schedule = schedule});
        for (const int threshold : {0, 37, 100}) {
            const Buffer<int> out(200);
            launch(barriers, 1, 100, 0, out.data(), threshold);
            const auto values = out.values();
            CHECK(std::count(values.begin(), values.begin() + 100, threshold > 0) == 100);
            CHECK(std::count(values.begin() + 100, values.end(), threshold < 100) == 100);
        }
    }
}

TEST_CASE("parts of a warp meet on their own, and lanes that left are not waited for") {
    const Buffer<int> halves(32);
    launch(halves_of_a_warp, 1, 32, 0, halves.data());
    CHECK(halves.values()[3] == 120);
    CHECK(halves.values()[20] == 120 + 16 * 16);
    const Buffer<int> left(32);
    launch(lanes_that_left, 1, 32, 0, left.data());
    CHECK(left.values()[5] == (1 << 20) - 1);
    CHECK(left.values()[25] == 0);
    for (const simt::Schedule& schedule : schedules()) {
        const With scheduled({.schedule = schedule});
        CAPTURE(simt::to_string(schedule));
        const Buffer<int> two(2);
        launch(lane_of_two_meetings_left, 1, 3, 0, two.data());
        CHECK(two.values() == std::vector<int>{0b010, 0b001});
    }
}

TEST_CASE("atomic operations of many blocks at once lose nothing") {
    const auto check = []<class T>(T) {
        const Buffer<T> cells(std::vector<T>{0, T(1000000), 5, 5, 1, 0});
        launch(atomics<T>, 50, 100, 0, cells.data());
        CHECK(cells.values() ==
              std::vector<T>{T(50 * 4950), T(1000000 - 50 * 4950), 0, 99, 7, T(50 * 100 * 2)});
    };
    check(int{});
    check(unsigned{});
    check(float{});
    check(uint64_t{});
    check(double{});
    const Buffer<unsigned> masks({full, 0u, 0u});
    launch(bits, 1, 20, 0, masks.data());
    CHECK(masks.values() == std::vector<unsigned>{0xfff00000u, 0xfffffu, 0});
}

TEST_CASE("additions of four floats lose nothing, and either order of a sum gives its rows") {
    const Buffer<float> sum(128), by_elements(128), rows(128);
    launch(additions, 50, 96, 0, sum.data(), by_elements.data());
    std::vector<float> tile(128);
    std::iota(tile.begin(), tile.end(), 0.0f);
    launch(rows_of_a_sum<false>, 1, 8, 0, by_elements.data(), rows.data());
    CHECK(rows.values() == tile);
    launch(rows_of_a_sum<true>, 1, 8, 0, sum.data(), rows.data());
    for (float& x : tile) {
        x *= 50 * 3; // warps
    }
    CHECK(rows.values() == tile);
}

TEST_CASE("vector types") {
    std::vector<float> numbers(128);
    std::iota(numbers.begin(), numbers.end(), 0.0f);
    const Buffer<float> in(numbers), out(128), pairs(64);
    const Buffer<unsigned> words(128);
    launch(vectors, 1, 32, 0, reinterpret_cast<const float4*>(in.data()),
           reinterpret_cast<float4*>(out.data()), reinterpret_cast<float2*>(pairs.data()),
           reinterpret_cast<uint4*>(words.data()));
    CHECK(out.values()[8] == 11);
    CHECK(out.values()[9] == 9);
    CHECK(out.values()[11] == 11);
    CHECK(pairs.values()[4] == 9);
    CHECK(pairs.values()[5] == 10);
    CHECK(words.values()[9] == std::bit_cast<unsigned>(9.0f));
    static_assert(sizeof(float4) == 16 && alignof(float4) == 16 && alignof(float2) == 8 &&
                  alignof(uint4) == 16);
    static_assert(std::is_trivially_default_constructible_v<float4>);
}

TEST_CASE("scalar functions") {
    const Buffer<float> out(14);
    launch(functions, 1, 1, 0, out.data());
    const std::vector<float> values = out.values();
    CHECK(std::abs(values[0] - 2.7182817f) < 1e-6f);
    CHECK(values[1] == 8);
    CHECK(std::abs(values[2] - 0.6931472f) < 1e-6f);
    const std::vector<float> exact(values.begin() + 3, values.end());
    CHECK(exact == std::vector<float>{0.5f, 7, 0.125f, 0, 7, 2.5f, 4 + 31 + 4, 1, 0, 7, 1});
}
