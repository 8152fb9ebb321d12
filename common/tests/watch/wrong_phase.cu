// A broken kernel: the reader waits for the same phase in each round, and the ring runs dry.
#include "common/cuda/cuda.hpp"
#include "common/cuda/launch/device_buffer.hpp"
#include "common/cuda/ptx/mbarrier.hpp"

constexpr int rounds = 4;

__global__ void hand_over(float* to) {
    __shared__ float slot[32];
    __shared__ uint64_t full, empty;
    if (threadIdx.x == 0) {
        flash::mbarrier_init(&full, 32);
        flash::mbarrier_init(&empty, 32);
        flash::fence_mbarrier_init();
    }
    __syncthreads();
    const int lane = threadIdx.x % 32;
    for (int round = 0; round < rounds; ++round) {
        if (threadIdx.x < 32) {
            flash::mbarrier_wait(&empty, round % 2 ^ 1); // first
            slot[lane] = static_cast<float>(round);
            flash::mbarrier_arrive(&full);
        } else {
            flash::mbarrier_wait(&full, 1 - round % 2); // second: the parity is the other one
            to[lane] = slot[lane];
            flash::mbarrier_arrive(&empty);
        }
    }
}

int main() {
    flash::DeviceBuffer<float> to(32, "to");
    flash::launch(hand_over, 1, 64, 0, to.data());
}
