// A broken kernel: warps read what other warps write, and no barrier stands between.
#include "common/cuda/cuda.hpp"
#include "common/cuda/launch/device_buffer.hpp"

__global__ void turn_round(float* to) {
    __shared__ float row[128];
    row[threadIdx.x] = static_cast<float>(threadIdx.x); // first
    to[threadIdx.x] = row[127 - threadIdx.x];           // second
}

int main() {
    flash::DeviceBuffer<float> to(128, "to");
    flash::launch(turn_round, 1, 128, 0, to.data());
}
