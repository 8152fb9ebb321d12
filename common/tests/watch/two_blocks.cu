// A broken kernel: a block reads what the block before it writes, and nothing makes it wait.
#include "common/cuda/cuda.hpp"
#include "common/cuda/launch/device_buffer.hpp"

__global__ void pass_on(float* to) {
    const unsigned own = blockIdx.x * blockDim.x + threadIdx.x;
    to[own] = static_cast<float>(own); // first
    if (blockIdx.x > 0) {
        to[own] += to[own - blockDim.x]; // second
    }
}

int main() {
    flash::DeviceBuffer<float> to(256, "to");
    flash::launch(pass_on, 2, 128, 0, to.data());
}
