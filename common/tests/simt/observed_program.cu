// A program as readers write them, whose kernels are watched: test_ending.cpp runs it and reads
// what it says and how it ends. Its argument chooses what it does.
#undef NDEBUG
#include <cassert>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>

#include "common/cuda/cuda.hpp"

namespace {

struct AtTheEnd { // of the program, after main
    bool speaks = false;
    ~AtTheEnd() {
        if (speaks) {
            std::printf("the last word\n");
        }
    }
} at_the_end;

__global__ void count_up(int* numbers) { numbers[threadIdx.x] += static_cast<int>(threadIdx.x); }

__global__ void count_in_one_place(int* numbers) {
    numbers[0] += 1; // race
}

__global__ void raise_flag(int* numbers) {
    numbers[0] = 1; // the same by all
}

__global__ void talk() { std::printf("thread %d\n", static_cast<int>(threadIdx.x)); }

__global__ void assert_too_much(int limit) {
    std::printf("thread %d\n", static_cast<int>(threadIdx.x));
    assert(static_cast<int>(threadIdx.x) < limit); // assertion
}

__global__ void spin(const volatile int* flag) {
    std::printf("spinning\n");
    if (threadIdx.x == 40) {
        while (*flag == 0) { // for ever
        }
    }
    __syncthreads(); // the others
}

} // namespace

int main(int, char** arguments) {
    const std::string what = arguments[1];
    int* numbers = nullptr;
    cudaMalloc(&numbers, 64 * sizeof(int));
    cudaMemset(numbers, 0, 64 * sizeof(int));
    std::printf("before\n");
    if (what == "clean") {
        for (int i = 0; i < 3; ++i) {
            flash::launch(count_up, 1, 64, 0, numbers);
        }
        flash::launch(talk, 1, 2, 0);
    } else if (what == "race") {
        flash::launch(count_in_one_place, 1, 64, 0, numbers);
    } else if (what == "race in a thread") {
        std::thread([&] { flash::launch(count_in_one_place, 1, 64, 0, numbers); }).join();
    } else if (what == "race caught") {
        try {
            flash::launch(count_in_one_place, 1, 64, 0, numbers);
        } catch (const std::exception&) {
            std::exit(0);
        }
    } else if (what == "same value") {
        flash::launch(raise_flag, 1, 64, 0, numbers);
    } else if (what == "assert") {
        flash::launch(assert_too_much, 1, 64, 0, 2);
    } else if (what == "spin") {
        flash::launch(spin, 1, 64, 0, numbers);
    } else if (what == "last word") {
        at_the_end.speaks = true;
        std::exit(4);
    } else if (what == "abort") {
        std::abort();
    } else if (what == "own assert") {
        flash::launch(count_up, 1, 64, 0, numbers);
        assert(what.empty());
    } else if (what == "own exception") {
        flash::launch(count_in_one_place, 1, 64, 0, numbers); // with keep_going
        throw std::runtime_error("own");
    }
    std::printf("after\n");
    cudaFree(numbers);
    return 3;
}
