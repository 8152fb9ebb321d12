// Three kernels for Hopper, each with a mistake that the speed of a GPU can hide, and each
// repaired. The SIMT backend names the mistake and its line. From the repository's root, for a GPU
// and for the CPU:
//
//     nvcc -std=c++20 -O2 -arch=sm_90a -I. docs/examples/unseen_races.cu common/cuda/*/*.cu
//     ./a.out slot        # or wait, or fence; then the same with "repaired" behind it
//
//     g++ -std=c++20 -O1 -g -fsanitize=thread -I. -w -x c++ -c docs/examples/unseen_races.cu
//     g++ -std=c++20 -O2 -I. unseen_races.o common/simt/*/*.cpp -lboost_context -ldw -lpthread
//     FLASH_SIMT_DETECT=1 ./a.out slot
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "common/attention.hpp"
#include "common/cuda/cuda.hpp"
#include "common/cuda/launch/device_buffer.hpp"
#include "common/cuda/ptx/mbarrier.hpp"
#include "common/cuda/ptx/tma.hpp"
#include "common/cuda/ptx/wgmma.hpp"
#ifdef __NVCC__
#include "common/cuda/launch/error.hpp"
#endif

namespace {

using flash::Bfloat16;

// of X: tiles of 64 x 64, one below the other
constexpr int tiles = 16, side = 64, tile_bytes = side * side * 2;

__device__ void make(uint64_t* barriers, int count, int arrivals = 1) {
    if (threadIdx.x == 0) {
        for (int i = 0; i < count; ++i) {
            flash::mbarrier_init(barriers + i, arrivals);
        }
        flash::fence_mbarrier_init();
    }
    __syncthreads(); // the mbarriers are there for all
}

/// Starts C += X_i X_j^T, two tiles in shared memory.
__device__ void multiply(float (&C)[side / 8][4], const char* X_i, const char* X_j,
                         bool accumulate) {
    const uint64_t A = flash::wgmma_descriptor(X_i, 0, 1024),
                   B = flash::wgmma_descriptor(X_j, 0, 1024);
    flash::wgmma_fence();
#pragma unroll
    for (int k = 0; k < side / 16; ++k) {
        flash::wgmma_m64k16<Bfloat16, side>(C, flash::advance(A, 32 * k), flash::advance(B, 32 * k),
                                            accumulate || k > 0);
    }
    flash::wgmma_commit();
}

__device__ void write(float* out, const float (&C)[side / 8][4]) {
    for (int n = 0; n < side / 8; ++n) {
        for (int i = 0; i < 4; ++i) {
            const int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4 + i / 2 * 8;
            out[row * side + 8 * n + threadIdx.x % 4 * 2 + i % 2] = C[n][i];
        }
    }
}

/// The sum over all tiles of X_j X_j^T. Thread 128 has TMA bring them into a ring of two slots.
template <bool repaired>
__global__ void overwritten_slot(const __grid_constant__ flash::TensorMap X, float* out) {
    char* slots = flash::dynamic_shared<char>();
    __shared__ uint64_t barriers[4];
    uint64_t* full = barriers;
    uint64_t* free = barriers + 2;
    make(full, 2);
    // one arrival per warp, because each warp waits for its own part of the products
    make(free, 2, 4);
    if (threadIdx.x >= 128) {
        for (int j = 0; threadIdx.x == 128 && j < tiles; ++j) {
            flash::mbarrier_wait(free + j % 2, j / 2 % 2 ^ 1); // the slot's last tile has been read
            flash::mbarrier_expect_tx(full + j % 2, tile_bytes);
            flash::tma_load<2>(slots + j % 2 * tile_bytes, X, {0, j * side}, full + j % 2);
        }
        return;
    }
    float C[side / 8][4];
    for (int j = 0; j < tiles; ++j) {
        const char* slot = slots + j % 2 * tile_bytes;
        flash::mbarrier_wait(full + j % 2, j / 2 % 2); // the tile has landed
        multiply(C, slot, slot, j > 0);
        if (repaired) {
            flash::wgmma_wait<0>(C); // the warp's products have read the slot
        }
        if (threadIdx.x % 32 == 0) {
            flash::mbarrier_arrive(free + j % 2); // broken: while the products still read it
        }
        if (!repaired) {
            flash::wgmma_wait<0>(C);
        }
    }
    write(out, C);
}

/// X_0 X_1^T: two tiles, each with an mbarrier of its own.
template <bool repaired>
__global__ void missing_wait(const __grid_constant__ flash::TensorMap X, float* out) {
    char* two = flash::dynamic_shared<char>();
    __shared__ uint64_t landed[2];
    make(landed, 2);
    if (threadIdx.x == 0) {
        for (int j = 0; j < 2; ++j) {
            flash::mbarrier_expect_tx(landed + j, tile_bytes);
            flash::tma_load<2>(two + j * tile_bytes, X, {0, j * side}, landed + j);
        }
    }
    if (repaired) {
        flash::mbarrier_wait(landed, 0); // the first tile has landed
    }
    // the second: it was asked for later, so the first must be there, or not?
    flash::mbarrier_wait(landed + 1, 0);
    float C[side / 8][4];
    multiply(C, two, two + tile_bytes, false);
    flash::wgmma_wait<0>(C);
    write(out, C);
}

/// Writes a tile, whose numbers the threads compute, with TMA.
template <bool repaired>
__global__ void missing_fence(const __grid_constant__ flash::TensorMap out) {
    char* tile = flash::dynamic_shared<char>();
    for (int i = threadIdx.x; i < side * side; i += blockDim.x) {
        const int byte = 2 * i;
        *reinterpret_cast<uint16_t*>(tile + (byte ^ (byte >> 7 & 7) << 4)) =
            static_cast<uint16_t>(i);
    }
    if (repaired) {
        flash::fence_proxy_async(); // TMA sees what this thread has written
    }
    __syncthreads(); // the tile is complete: for threads, but is it for TMA?
    if (threadIdx.x == 0) {
        flash::tma_store<2>(out, {0, 0}, tile);
        flash::bulk_commit();
        flash::bulk_wait_read<0>();
    }
}

#ifdef __NVCC__
void copy(void* to, const void* from, size_t bytes) {
    FLASH_CHECK_CUDA(cudaMemcpy(to, from, bytes, cudaMemcpyDefault));
}
#else
void copy(void* to, const void* from, size_t bytes) { std::memcpy(to, from, bytes); }
#endif

float x(int row, int column) { return static_cast<float>((row * 5 + column * 3) % 7 - 3); } // of X

flash::TensorMap tensor_map(const Bfloat16* tensor, int rows) {
    return flash::make_tensor_map<2>(tensor, {side, rows}, {side}, {side, side});
}

template <bool repaired> int run(const std::string& which) {
    std::vector<Bfloat16> X(tiles * side * side);
    for (size_t i = 0; i < X.size(); ++i) {
        X[i] =
            flash::from_float<Bfloat16>(x(static_cast<int>(i) / side, static_cast<int>(i) % side));
    }
    const flash::DeviceBuffer<Bfloat16> in(tiles * side * side, "X"),
        numbers(side * side, "numbers");
    const flash::DeviceBuffer<float> out(side * side, "out");
    copy(in.data(), X.data(), X.size() * sizeof(Bfloat16));
    if (which == "slot") {
        flash::launch(overwritten_slot<repaired>, 1, 160, 2 * tile_bytes,
                      tensor_map(in.data(), tiles * side), out.data());
    } else if (which == "wait") {
        flash::launch(missing_wait<repaired>, 1, 128, 2 * tile_bytes,
                      tensor_map(in.data(), tiles * side), out.data());
    } else {
        flash::launch(missing_fence<repaired>, 1, 128, tile_bytes,
                      tensor_map(numbers.data(), side));
    }
    std::vector<float> C(side * side);
    std::vector<Bfloat16> tile(side * side);
    copy(C.data(), out.data(), C.size() * sizeof(float));
    copy(tile.data(), numbers.data(), tile.size() * sizeof(Bfloat16));
    int wrong = 0;
    for (int i = 0; i < side * side; ++i) {
        float sum = 0;
        for (int j = 0; j < (which == "slot" ? tiles : 1); ++j) {
            for (int k = 0; k < side; ++k) {
                sum +=
                    x(j * side + i / side, k) * x((which == "slot" ? j : 1) * side + i % side, k);
            }
        }
        const auto place = static_cast<size_t>(i);
        wrong += (which == "fence" ? tile[place].bits != i : !(C[place] == sum)) ? 1 : 0;
    }
    std::printf("%s%s: %d of %d numbers are wrong\n", which.c_str(), repaired ? ", repaired" : "",
                wrong, side * side);
    return wrong == 0 ? 0 : 1;
}

} // namespace

int main(int argc, char** argv) {
    const std::string which = argc > 1 ? argv[1] : "";
    const bool repaired = argc == 3 && std::string(argv[2]) == "repaired";
    if ((which != "slot" && which != "wait" && which != "fence") || (argc != 2 && !repaired)) {
        std::fprintf(stderr, "usage: unseen_races slot|wait|fence [repaired]\n");
        return 2;
    }
    try {
        return repaired ? run<true>(which) : run<false>(which);
    } catch (const flash::KernelFault& fault) {
        if (std::getenv("FLASH_SIMT_DETECT") != nullptr) { // else scripts/simt has told it
            std::fprintf(stderr, "unseen_races: %s\n", fault.what());
        }
        return 1;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "unseen_races: %s\n", error.what());
        return 2;
    }
}
