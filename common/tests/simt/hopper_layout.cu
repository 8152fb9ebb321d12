// Where TMA and wgmma put things: the same kernels on a GPU and on the SIMT backend. Each case
// compares what it finds with what the layout's definition says, and prints a checksum of all the
// bytes; the two programs must print the same.
//
//     nvcc -std=c++20 -O2 -arch=sm_90a -I. common/tests/simt/hopper_layout.cu common/cuda/*/*.cu
//     ./a.out > gpu.txt
//     ./build-simt/common/tests/simt/hopper_layout > simt.txt
//     diff gpu.txt simt.txt
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "common/attention.hpp"
#include "common/cuda/cuda.hpp"
#include "common/cuda/launch/device_buffer.hpp"
#include "common/cuda/launch/tensor_map.hpp"
#include "common/cuda/ptx/e4m3.hpp"
#include "common/cuda/ptx/mbarrier.hpp"
#include "common/cuda/ptx/mma.hpp"
#include "common/cuda/ptx/tma.hpp"
#include "common/cuda/ptx/wgmma.hpp"
#ifdef __NVCC__
#include "common/cuda/launch/error.hpp"
#endif

namespace {

using flash::Bfloat16;
using flash::E4m3;
using flash::Half;
using flash::TensorMap;

// --- between host and device ---------------------------------------------------------------------

#ifdef __NVCC__
void copy(void* to, const void* from, size_t bytes) {
    FLASH_CHECK_CUDA(cudaMemcpy(to, from, bytes, cudaMemcpyDefault));
}
#else
void copy(void* to, const void* from, size_t bytes) { std::memcpy(to, from, bytes); }
#endif

template <class T> struct Buffer {
    explicit Buffer(const std::vector<T>& values)
        : device(static_cast<int64_t>(values.size()), "data"), size(values.size()) {
        copy(device.data(), values.data(), size * sizeof(T));
    }
    T* data() const { return device.data(); }
    std::vector<T> values() const {
        std::vector<T> result(size);
        copy(result.data(), device.data(), size * sizeof(T));
        return result;
    }
    flash::DeviceBuffer<T> device;
    size_t size;
};

int wrong = 0;

/// One line of the output. FNV-1a of all bytes.
template <class T>
void report(const std::string& name, const std::vector<T>& found, const std::vector<T>& expected) {
    uint64_t sum = 0xcbf29ce484222325;
    const auto* const bytes = reinterpret_cast<const unsigned char*>(found.data());
    for (size_t i = 0; i < found.size() * sizeof(T); ++i) {
        sum = (sum ^ bytes[i]) * 0x100000001b3;
    }
    const bool right = std::memcmp(found.data(), expected.data(), found.size() * sizeof(T)) == 0;
    wrong += right ? 0 : 1;
    std::printf("%-54s %016llx %s\n", name.c_str(), static_cast<unsigned long long>(sum),
                right ? "right" : "WRONG");
}

// --- TMA -----------------------------------------------------------------------------------------

constexpr int most_bytes = 32768; // of a tile

template <int rank> struct Coordinates { int of[rank]; };

/// The tile as it lies in shared memory.
template <int rank>
__global__ void load(const __grid_constant__ TensorMap tensor, Coordinates<rank> at, int bytes,
                     unsigned char* out) {
    unsigned char* tile = flash::dynamic_shared<unsigned char>();
    __shared__ uint64_t landed[1];
    if (threadIdx.x == 0) {
        flash::mbarrier_init(landed, 1);
        flash::fence_mbarrier_init();
        flash::mbarrier_expect_tx(landed, bytes);
        flash::tma_load<rank>(tile, tensor, at.of, landed);
    }
    __syncthreads(); // the mbarrier is there
    flash::mbarrier_wait(landed, 0);
    for (int i = threadIdx.x; i < bytes; i += blockDim.x) {
        out[i] = tile[i];
    }
}

/// A tile of which byte i is in[i], to the tensor.
template <int rank>
__global__ void store(const __grid_constant__ TensorMap tensor, Coordinates<rank> at, int bytes,
                      const unsigned char* in) {
    unsigned char* tile = flash::dynamic_shared<unsigned char>();
    for (int i = threadIdx.x; i < bytes; i += blockDim.x) {
        tile[i] = in[i];
    }
    flash::fence_proxy_async();
    __syncthreads(); // the tile is complete
    if (threadIdx.x == 0) {
        flash::tma_store<rank>(tensor, at.of, tile);
        flash::bulk_commit();
        flash::bulk_wait_read<0>();
    }
}

/// A run of floats, added to global memory.
__global__ void add(float* sums, const float* in, int count) {
    float* terms = flash::dynamic_shared<float>();
    for (int i = threadIdx.x; i < count; i += blockDim.x) {
        terms[i] = in[i];
    }
    flash::fence_proxy_async();
    __syncthreads(); // the terms are complete
    if (threadIdx.x == 0) {
        flash::bulk_reduce_add(sums, terms, count * 4);
        flash::bulk_commit();
        flash::bulk_wait<0>();
    }
}

/// A tensor whose element i, counted in memory, holds number i, and a box of it.
template <int rank> struct Case {
    const char* name;
    int64_t sizes[rank], strides[rank - 1];
    int box[rank];
    Coordinates<rank> at;
    int64_t own_elements = 0; // of a tensor that is smaller than its sizes say
};

template <int rank> int64_t elements(const Case<rank>& one) {
    if (one.own_elements > 0) {
        return one.own_elements;
    }
    int64_t last = one.sizes[0] - 1;
    for (int i = 1; i < rank; ++i) {
        last += (one.sizes[i] - 1) * one.strides[i - 1];
    }
    return last + 1;
}

template <int rank> int box_elements(const Case<rank>& one) {
    int count = 1;
    for (const int side : one.box) {
        count *= side;
    }
    return count;
}

/// use(byte of the tile in shared memory, element of the tensor or -1) for each element of the box.
template <class T, int rank, class Use> void for_each(const Case<rank>& one, Use use) {
    for (int number = 0; number < box_elements(one); ++number) {
        uint64_t element = 0; // addresses have 64 bits
        bool inside = true;
        for (int i = 0, rest = number; i < rank; rest /= one.box[i], ++i) {
            const int64_t coordinate = one.at.of[i] + rest % one.box[i];
            inside = inside && coordinate >= 0 && coordinate < one.sizes[i];
            element += static_cast<uint64_t>(coordinate) *
                       static_cast<uint64_t>(i == 0 ? 1 : one.strides[i - 1]);
        }
        // rows lie side by side; then the swizzle:
        const size_t byte = static_cast<size_t>(number) * sizeof(T);
        const size_t flip = one.box[0] * sizeof(T) == 128 ? 7 : 3;
        use(byte ^ (byte >> 7 & flip) << 4, inside ? static_cast<int64_t>(element) : -1);
    }
}

template <class T> T number(int64_t i) {
    const int64_t exact = sizeof(T) == 1 ? i % 17 : sizeof(T) == 2 ? i % 2039 : i; // in the type
    return flash::from_float<T>(static_cast<float>(exact));
}

template <class T, int rank> void load_case(const Case<rank>& one) {
    std::vector<T> values(static_cast<size_t>(elements(one)));
    for (size_t i = 0; i < values.size(); ++i) {
        values[i] = number<T>(static_cast<int64_t>(i) + 1);
    }
    const Buffer<T> tensor(values);
    const auto bytes = static_cast<size_t>(box_elements(one)) * sizeof(T);
    const Buffer<unsigned char> out{std::vector<unsigned char>(bytes, 0xff)};
    flash::launch(load<rank>, 1, 128, most_bytes,
                  flash::make_tensor_map<rank>(tensor.data(), one.sizes, one.strides, one.box),
                  one.at, static_cast<int>(bytes), out.data());
    std::vector<unsigned char> expected(bytes);
    for_each<T>(one, [&](size_t byte, int64_t element) {
        const T value = element < 0 ? T{} : values[static_cast<size_t>(element)];
        std::memcpy(&expected[byte], &value, sizeof value);
    });
    report(std::string("load, ") + one.name, out.values(), expected);
}

template <class T, int rank> void store_case(const Case<rank>& one) {
    std::vector<T> values(static_cast<size_t>(elements(one)), number<T>(3));
    const Buffer<T> tensor(values);
    std::vector<unsigned char> tile(static_cast<size_t>(box_elements(one)) * sizeof(T));
    int64_t next = 1;
    for_each<T>(one, [&](size_t byte, int64_t element) {
        const T value = number<T>(next++);
        std::memcpy(&tile[byte], &value, sizeof value);
        if (element >= 0) {
            values[static_cast<size_t>(element)] = value;
        }
    });
    const Buffer<unsigned char> in(tile);
    flash::launch(store<rank>, 1, 128, most_bytes,
                  flash::make_tensor_map<rank>(tensor.data(), one.sizes, one.strides, one.box),
                  one.at, static_cast<int>(tile.size()), in.data());
    report(std::string("store, ") + one.name, tensor.values(), values);
}

void tma() {
    load_case<Half, 2>({"2-D, inside", {64, 100}, {64}, {64, 64}, {{0, 16}}});
    load_case<Half, 2>({"2-D, beyond the last row", {64, 100}, {64}, {64, 64}, {{0, 70}}});
    load_case<Half, 2>(
        {"2-D, before the first row and column", {120, 40}, {128}, {64, 32}, {{-8, -3}}});
    load_case<Half, 2>({"2-D, beyond the last column", {100, 40}, {104}, {64, 40}, {{56, 3}}});
    load_case<Half, 2>({"2-D, wholly outside", {64, 100}, {64}, {64, 16}, {{0, 200}}});
    load_case<Bfloat16, 2>({"2-D, bf16, 12 rows", {64, 100}, {72}, {64, 12}, {{0, 50}}});
    load_case<float, 2>({"2-D, fp32", {96, 50}, {100}, {32, 50}, {{36, 1}}});
    load_case<Half, 3>({"3-D", {64, 30, 5}, {64, 2048}, {64, 8, 3}, {{0, 20, 3}}});
    load_case<Half, 4>({"4-D, a tile of attention, d = 128",
                        {64, 70, 2, 3},
                        {128, 64, 8960},
                        {64, 64, 2, 1},
                        {{0, 40, 0, 1}}});
    load_case<Bfloat16, 4>({"4-D, a tile of attention, d = 256",
                            {64, 70, 4, 2},
                            {256, 64, 17920},
                            {64, 40, 4, 1},
                            {{0, 64, 0, 1}}});
    load_case<E4m3, 4>({"4-D, a tile of attention, e4m3, d = 256",
                        {128, 70, 2, 3},
                        {256, 128, 17920},
                        {128, 64, 2, 1},
                        {{0, 40, 0, 1}}});
    load_case<E4m3, 4>({"4-D, a tile of attention, e4m3, d = 64",
                        {64, 70, 1, 3},
                        {64, 64, 4480},
                        {64, 64, 1, 1},
                        {{0, 40, 0, 1}}});
    load_case<Half, 5>(
        {"5-D", {64, 9, 4, 3, 2}, {64, 576, 2304, 6912}, {64, 4, 2, 2, 2}, {{0, 7, 3, 2, -1}}});
    // packed_sequences: 150 rows of two heads, and row 64 of the 70 that end at 90
    constexpr int far = 1 << 30;
    const Case<5> line{"5-D, round all addresses",
                       {64, far, 2, 151, far + 1},
                       {128, 64, 128, (int64_t{1} << 34) - 128},
                       {64, 64, 1, 1, 1},
                       {{0, far - 70 + 64, 1, 90, far}},
                       150 * 128};
    load_case<Half, 5>(line);
    store_case<Half, 5>(line);
    store_case<Half, 2>({"2-D, clipped", {64, 100}, {64}, {64, 64}, {{0, 70}}});
    store_case<Half, 2>({"2-D, clipped on the right", {96, 40}, {104}, {64, 40}, {{56, 3}}});
    store_case<float, 3>({"3-D, fp32", {32, 30, 4}, {32, 960}, {32, 16, 2}, {{0, 20, 3}}});
    store_case<Bfloat16, 4>({"4-D, a tile of attention",
                             {64, 70, 2, 3},
                             {128, 64, 8960},
                             {64, 64, 2, 1},
                             {{0, 40, 0, 2}}});

    std::vector<float> terms(300), sums(400, 5);
    for (size_t i = 0; i < terms.size(); ++i) {
        terms[i] = static_cast<float>(i);
    }
    const Buffer<float> in(terms), out(sums);
    flash::launch(add, 1, 128, most_bytes, out.data() + 4, static_cast<const float*>(in.data()),
                  300);
    for (size_t i = 0; i < terms.size(); ++i) {
        sums[i + 4] += terms[i];
    }
    report("reduction", out.values(), sums);
}

// --- wgmma ---------------------------------------------------------------------------------------

constexpr int K = 64; // four k16 steps

// how A is given: rows of 64 k, for each k 64 rows, or in fragments
enum class Left { rows, columns, registers };

/// What A and B hold: small integers, each sum of products exact in fp32.
__host__ __device__ inline int a(int row, int k) { return (row * 7 + k * 13 + row * k) % 31 - 15; }
__host__ __device__ inline int b(int k, int column) {
    return (k * 11 + column * 5 + k * column) % 29 - 14;
}

template <class T> __device__ uint16_t small(int value) { // exact in both types
    return static_cast<uint16_t>(flash::pack<T>(static_cast<float>(value), 0.0f) & 0xffff);
}

/// out[thread][i]: the accumulators of each thread, of A B + A B.
template <class T, int N, Left A, bool transpose_B> __global__ void multiply(float* out) {
    char* A_smem = flash::dynamic_shared<char>();
    char* B_smem = A_smem + 64 * 128;
    const auto put = [](char* tile, int byte, int value) {
        *reinterpret_cast<uint16_t*>(tile + (byte ^ (byte >> 7 & 7) << 4)) = small<T>(value);
    };
    for (int i = threadIdx.x; i < 64 * K; i += blockDim.x) {
        put(A_smem, i * 2, A == Left::columns ? a(i % 64, i / 64) : a(i / K, i % K));
    }
    for (int i = threadIdx.x; i < N * K; i += blockDim.x) {
        if (transpose_B) { // panels of 64 columns; in each, rows of one k
            const int k = i / N, column = i % N;
            put(B_smem, column / 64 * K * 128 + k * 128 + column % 64 * 2, b(k, column));
        } else { // rows of 64 k
            put(B_smem, i * 2, b(i % K, i / K));
        }
    }
    flash::fence_proxy_async();
    __syncthreads(); // both operands are complete

    const uint64_t A_desc = flash::wgmma_descriptor(A_smem, 0, 1024);
    const uint64_t B_desc = flash::wgmma_descriptor(B_smem, transpose_B ? K * 128 : 0, 1024);
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    uint32_t A_reg[K / 16][4];
    for (int k = 0; k < K / 16; ++k) {
        for (int i = 0; i < 4; ++i) {
            const int row = threadIdx.x / 32 * 16 + g + i % 2 * 8,
                      column = 16 * k + 2 * t + i / 2 * 8;
            A_reg[k][i] = flash::pack<T>(static_cast<float>(a(row, column)),
                                         static_cast<float>(a(row, column + 1)));
        }
    }
    float C_reg[N / 8][4];
    flash::wgmma_fence();
#pragma unroll
    for (int k = 0; k < 2 * K / 16; ++k) { // all steps twice
        const int step = k % (K / 16);
        const uint64_t B = flash::advance(B_desc, (transpose_B ? 2048 : 32) * step);
        if constexpr (A == Left::registers) {
            flash::wgmma_m64k16<T, N, transpose_B>(C_reg, A_reg[step], B, k > 0);
        } else {
            constexpr bool transpose_A = A == Left::columns;
            flash::wgmma_m64k16<T, N, transpose_B, transpose_A>(
                C_reg, flash::advance(A_desc, (transpose_A ? 2048 : 32) * step), B, k > 0);
        }
    }
    flash::wgmma_commit();
    flash::wgmma_wait<0>(C_reg);
    for (int n = 0; n < N / 8; ++n) {
        for (int i = 0; i < 4; ++i) {
            out[threadIdx.x * (N / 2) + 4 * n + i] = C_reg[n][i];
        }
    }
}

template <class T, int N, Left A, bool transpose_B> void wgmma_case() {
    const Buffer<float> out(std::vector<float>(128 * N / 2, -1));
    flash::launch(multiply<T, N, A, transpose_B>, 1, 128, 64 * 128 + (N + 63) / 64 * K * 128,
                  out.data());
    std::vector<float> expected;
    for (int thread = 0; thread < 128; ++thread) {
        for (int i = 0; i < N / 2; ++i) {
            const int row = thread / 32 * 16 + thread % 32 / 4 + i % 4 / 2 * 8;
            const int column = i / 4 * 8 + thread % 4 * 2 + i % 2;
            int sum = 0;
            for (int k = 0; k < K; ++k) {
                sum += a(row, k) * b(k, column);
            }
            expected.push_back(static_cast<float>(2 * sum));
        }
    }
    report("wgmma m64n" + std::to_string(N) + "k16 " + flash::dtype_name(flash::dtype_of<T>) +
               ", A in " + (A == Left::registers ? "registers" : "shared memory") +
               (A == Left::columns ? ", transposed" : "") + (transpose_B ? ", B transposed" : ""),
           out.values(), expected);
}

template <class T, int N> void wgmma_shape() {
    wgmma_case<T, N, Left::rows, false>();
    wgmma_case<T, N, Left::rows, true>();
    wgmma_case<T, N, Left::columns, false>();
    wgmma_case<T, N, Left::columns, true>();
    wgmma_case<T, N, Left::registers, false>();
    wgmma_case<T, N, Left::registers, true>();
}

template <class T> void wgmma() {
    wgmma_shape<T, 64>();
    wgmma_shape<T, 80>();
    wgmma_shape<T, 96>();
    wgmma_shape<T, 112>();
    wgmma_shape<T, 128>();
    wgmma_shape<T, 160>();
    wgmma_shape<T, 176>();
    wgmma_shape<T, 192>();
    wgmma_shape<T, 256>();
}

/// The same in e4m3: A and B have rows of `row` k, which are as many bytes. All numbers are exact.
template <int N, int row, bool in_registers> __global__ void multiply_e4m3(float* out) {
    char* A_smem = flash::dynamic_shared<char>();
    char* B_smem = A_smem + 64 * row;
    const auto bits = [](int value) {
        return static_cast<char>(flash::pack_e4m3(static_cast<float>(value), 0, 0, 0) & 0xff);
    };
    const auto swizzled = [](int byte) { return byte ^ (byte >> 7 & (row == 128 ? 7 : 3)) << 4; };
    for (int i = threadIdx.x; i < 64 * row; i += blockDim.x) {
        A_smem[swizzled(i)] = bits(a(i / row, i % row));
    }
    for (int i = threadIdx.x; i < N * row; i += blockDim.x) {
        B_smem[swizzled(i)] = bits(b(i % row, i / row));
    }
    flash::fence_proxy_async();
    __syncthreads(); // both operands are complete

    const uint64_t A_desc = flash::wgmma_descriptor(A_smem, 0, 8 * row, row);
    const uint64_t B_desc = flash::wgmma_descriptor(B_smem, 0, 8 * row, row);
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    uint32_t A_reg[row / 32][4];
    for (int k = 0; k < row / 32; ++k) {
        for (int i = 0; i < 4; ++i) {
            const int line = threadIdx.x / 32 * 16 + g + i % 2 * 8;
            const int column = 32 * k + 4 * t + i / 2 * 16;
            A_reg[k][i] = flash::pack_e4m3(
                static_cast<float>(a(line, column)), static_cast<float>(a(line, column + 1)),
                static_cast<float>(a(line, column + 2)), static_cast<float>(a(line, column + 3)));
        }
    }
    float C_reg[N / 8][4];
    flash::wgmma_fence();
#pragma unroll
    for (int k = 0; k < row / 32; ++k) {
        const uint64_t B = flash::advance(B_desc, 32 * k);
        if constexpr (in_registers) {
            flash::wgmma_m64k32<N>(C_reg, A_reg[k], B, k > 0);
        } else {
            flash::wgmma_m64k32<N>(C_reg, flash::advance(A_desc, 32 * k), B, k > 0);
        }
    }
    flash::wgmma_commit();
    flash::wgmma_wait<0>(C_reg);
    for (int n = 0; n < N / 8; ++n) {
        for (int i = 0; i < 4; ++i) {
            out[threadIdx.x * (N / 2) + 4 * n + i] = C_reg[n][i];
        }
    }
}

template <int N, int row, bool in_registers> void e4m3_case() {
    const Buffer<float> out(std::vector<float>(128 * N / 2, -1));
    flash::launch(multiply_e4m3<N, row, in_registers>, 1, 128, (64 + N) * row, out.data());
    std::vector<float> expected;
    for (int thread = 0; thread < 128; ++thread) {
        for (int i = 0; i < N / 2; ++i) {
            const int line = thread / 32 * 16 + thread % 32 / 4 + i % 4 / 2 * 8;
            const int column = i / 4 * 8 + thread % 4 * 2 + i % 2;
            int sum = 0;
            for (int k = 0; k < row; ++k) {
                sum += a(line, k) * b(k, column);
            }
            expected.push_back(static_cast<float>(sum));
        }
    }
    report("wgmma m64n" + std::to_string(N) + "k32 e4m3, A in " +
               (in_registers ? "registers" : "shared memory") + ", rows of " + std::to_string(row) +
               " bytes",
           out.values(), expected);
}

/// out[0]: the sum of 64 numbers of e4m3, times 1 each, in two steps.
__global__ void add_up(const float* in, float* out) {
    char* A_smem = flash::dynamic_shared<char>();
    char* B_smem = A_smem + 64 * 64;
    for (int i = threadIdx.x; i < 64 * 64; i += blockDim.x) {
        const int place = i ^ (i >> 7 & 3) << 4;
        A_smem[place] = static_cast<char>(flash::pack_e4m3(in[i % 64], 0, 0, 0) & 0xff);
        B_smem[place] = static_cast<char>(flash::pack_e4m3(1, 0, 0, 0) & 0xff);
    }
    flash::fence_proxy_async();
    __syncthreads(); // both operands are complete
    const uint64_t A = flash::wgmma_descriptor(A_smem, 0, 512, 64);
    const uint64_t B = flash::wgmma_descriptor(B_smem, 0, 512, 64);
    float C_reg[8][4];
    flash::wgmma_fence();
    flash::wgmma_m64k32<64>(C_reg, A, B, false);
    flash::wgmma_m64k32<64>(C_reg, flash::advance(A, 32), flash::advance(B, 32));
    flash::wgmma_commit();
    flash::wgmma_wait<0>(C_reg);
    if (threadIdx.x == 0) {
        out[0] = C_reg[0][0];
    }
}

struct Term {
    int k;
    float value;
};

void sum_case(const char* name, const std::vector<Term>& terms, float expected) {
    std::vector<float> numbers(64);
    for (const Term& term : terms) {
        numbers[static_cast<size_t>(term.k)] = term.value;
    }
    const Buffer<float> in(numbers), out(std::vector<float>{-1});
    flash::launch(add_up, 1, 128, 2 * 64 * 64, static_cast<const float*>(in.data()), out.data());
    report(std::string("e4m3 adds ") + name, out.values(), std::vector<float>{expected});
}

void e4m3() {
    e4m3_case<64, 64, false>();
    e4m3_case<128, 64, false>();
    e4m3_case<64, 128, false>();
    e4m3_case<128, 128, false>();
    e4m3_case<72, 128, true>();
    e4m3_case<136, 128, true>();
    // what lies more than 13 bits below the largest is lost
    sum_case("256 and 2^-5", {{0, 256}, {1, 0x1p-5f}}, 256 + 0x1p-5f);
    sum_case("256 and 2^-6", {{0, 256}, {1, 0x1p-6f}}, 256);
    sum_case("256 and twice 2^-6", {{0, 256}, {1, 0x1p-6f}, {9, 0x1p-6f}}, 256);
    sum_case("256 and then 2^-5", {{0, 256}, {32, 0x1p-5f}}, 256 + 0x1p-5f);
    sum_case("256 and then 2^-6", {{0, 256}, {32, 0x1p-6f}}, 256);
}

} // namespace

int main() {
    try {
        tma();
        wgmma<Half>();
        wgmma<Bfloat16>();
        e4m3();
    } catch (const std::exception& error) {
        std::fprintf(stderr, "hopper_layout: %s\n", error.what());
        return 2;
    }
    std::printf("%d wrong\n", wrong);
    return wrong == 0 ? 0 : 1;
}
