// Prints which lane of a warp holds which element of the operands of mma.sync, which elements
// ldmatrix hands to which lane, and where the swizzle puts them: found by trying. Figures
// in the chapters of mma_sync and swizzle show the same.
#include <cstdio>
#include <vector>

#include "common/cuda/cuda.hpp"
#include "common/cuda/derived/swizzle.hpp"
#include "common/cuda/ptx/ldmatrix.hpp"
#include "common/cuda/ptx/mma.hpp"
#include "common/harness/backends/backend.hpp"
#include "common/harness/backends/device_backend.hpp"

namespace {

/// One mma per block. Block e has zeros in A and a one in element e (8 per lane, two per register),
/// and the numbers 1 to 128 in B (4 per lane): so each number in C says which element of B met
/// element e of A, and where they are summed.
template <class T> __global__ void products(float* C) {
    const int lane = threadIdx.x;
    const int e = static_cast<int>(blockIdx.x) - 8 * lane;
    uint32_t a[4];
    uint32_t b[2];
    float c[4] = {};
    for (int i = 0; i < 4; ++i) {
        a[i] = flash::pack<T>(e == 2 * i ? 1.0f : 0.0f, e == 2 * i + 1 ? 1.0f : 0.0f);
    }
    for (int i = 0; i < 2; ++i) {
        const auto first = static_cast<float>(4 * lane + 2 * i + 1);
        b[i] = flash::pack<T>(first, first + 1);
    }
    flash::mma_m16n8k16<T>(c, a, b);
    for (int i = 0; i < 4; ++i) {
        C[128 * blockIdx.x + 4 * lane + i] = c[i];
    }
}

/// Four 8 x 8 matrices, one after the other, whose elements are their own numbers, 0 to 255.
__global__ void fetch(uint32_t* out) {
    uint16_t* smem = flash::dynamic_shared<uint16_t>();
    for (int e = threadIdx.x; e < 256; e += 32) {
        smem[e] = static_cast<uint16_t>(e);
    }
    __syncthreads(); // other lanes' elements are there
    uint32_t r[4];
    for (int transposed = 0; transposed < 2; ++transposed) {
        if (transposed == 0) {
            flash::ldmatrix_x4(r, smem + 8 * threadIdx.x);
        } else {
            flash::ldmatrix_x4_trans(r, smem + 8 * threadIdx.x);
        }
        for (int i = 0; i < 4; ++i) {
            out[128 * transposed + 4 * threadIdx.x + i] = r[i];
        }
    }
}

/// Where a tile of 16 rows keeps chunk x of row y, for a block of d / 8 x 16 threads.
template <int d> __global__ void places(int* out) {
    out[threadIdx.y * blockDim.x + threadIdx.x] =
        flash::SwizzledTile<d, 16>::offset(threadIdx.y, threadIdx.x);
}

/// What a kernel writes when it is launched with room for `size` elements of T.
template <class T, class Kernel>
std::vector<T> results(Kernel kernel, int blocks, dim3 threads, size_t size) {
    std::vector<T> values(size);
    const auto memory = flash::device_backend().allocate(size * sizeof(T));
    flash::launch(kernel, static_cast<unsigned>(blocks), threads, 512,
                  static_cast<T*>(memory->data()));
    memory->read(0, values.data(), size * sizeof(T));
    return values;
}

template <class T> void show_products(const char* type) {
    const std::vector<float> C = results<float>(products<T>, 256, 32, 256 * 128);
    for (size_t i = 0; i < C.size(); ++i) {
        if (C[i] != 0) {
            const size_t a = i / 128;
            const size_t b = static_cast<size_t>(C[i]) - 1;
            std::printf("%s  A lane %zu register %zu half %zu  B lane %zu register %zu half %zu  C "
                        "lane %zu register "
                        "%zu\n",
                        type, a / 8, a / 2 % 4, a % 2, b / 4, b / 2 % 2, b % 2, i % 128 / 4, i % 4);
        }
    }
}

void show_fetch() {
    const std::vector<uint32_t> pairs = results<uint32_t>(fetch, 1, 32, 256);
    for (size_t i = 0; i < 2 * pairs.size(); ++i) {
        const uint32_t element = pairs[i / 2] >> 16 * (i % 2) & 0xffff;
        std::printf("%s  lane %zu register %zu half %zu  matrix %u row %u column %u\n",
                    i < 256 ? "ldmatrix" : "ldmatrix.trans", i % 256 / 8, i % 8 / 2, i % 2,
                    element / 64, element % 64 / 8, element % 8);
    }
}

template <int d> void show_places() {
    const std::vector<int> offsets = results<int>(places<d>, 1, dim3(d / 8, 16), size_t{2} * d);
    for (size_t i = 0; i < offsets.size(); ++i) {
        std::printf("swizzle d %d  row %zu chunk %zu  byte %d\n", d, i / (d / 8), i % (d / 8),
                    offsets[i]);
    }
}

} // namespace

int main() {
    try {
        flash::device_backend().require_device();
        show_products<flash::Half>("fp16");
        show_products<flash::Bfloat16>("bf16");
        show_fetch();
        show_places<32>();
        show_places<64>();
        show_places<128>();
    } catch (const flash::Error& error) {
        std::fprintf(stderr, "show_layouts: %s\n", error.what());
        return 2;
    }
    return 0;
}
