#include "common/simt/language/device.hpp"

#include <cstdio>

#include "common/simt/language/occupancy.hpp"
#include "common/simt/machine/device_memory.hpp"
#include "common/simt/machine/grid.hpp"

using namespace flash;
using simt::noted;

namespace {

cudaDeviceProp emulated_device() {
    cudaDeviceProp gpu = {};
    const size_t most_shared = simt::shared_memory_limit(false);
    std::snprintf(gpu.name, sizeof gpu.name, "SIMT backend of flash-steps (a CPU as a GPU)");
    cudaMemGetInfo(nullptr, &gpu.totalGlobalMem);
    gpu.sharedMemPerBlock = 48 << 10;
    gpu.sharedMemPerBlockOptin = most_shared;
    gpu.reservedSharedMemPerBlock = 1 << 10;
    gpu.sharedMemPerMultiprocessor = most_shared + gpu.reservedSharedMemPerBlock;
    gpu.totalConstMem = 64 << 10;
    gpu.memPitch = 2147483647;
    gpu.textureAlignment = gpu.surfaceAlignment = 512;
    gpu.texturePitchAlignment = 32;
    gpu.regsPerBlock = gpu.regsPerMultiprocessor = 65536;
    gpu.warpSize = 32;
    gpu.maxThreadsPerBlock = 1024;
    gpu.maxThreadsPerMultiProcessor = simt::threads_per_sm;
    gpu.maxBlocksPerMultiProcessor = simt::blocks_per_sm;
    const int block[] = {1024, 1024, 64};
    const int grid[] = {2147483647, 65535, 65535};
    for (int axis = 0; axis < 3; ++axis) {
        gpu.maxThreadsDim[axis] = block[axis];
        gpu.maxGridSize[axis] = grid[axis];
    }
    gpu.major = 8;
    gpu.multiProcessorCount = simt::sms;
    // an A100's, for programs that divide by them
    gpu.clockRate = 1410000;
    gpu.memoryClockRate = 1215000;
    gpu.memoryBusWidth = 5120;
    gpu.l2CacheSize = 40 << 20;
    gpu.singleToDoublePrecisionPerfRatio = 2;
    gpu.concurrentKernels = gpu.asyncEngineCount = gpu.deviceOverlap = 1;
    gpu.canMapHostMemory = gpu.unifiedAddressing = gpu.managedMemory = 1;
    gpu.cooperativeLaunch = 1;
    gpu.globalL1CacheSupported = gpu.localL1CacheSupported = 1;
    return gpu;
}

} // namespace

cudaError_t cudaSetDevice(int device) {
    return noted(device == 0 ? cudaSuccess : cudaErrorInvalidDevice);
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
    if (device != 0) {
        return noted(cudaErrorInvalidDevice);
    }
    *properties = emulated_device();
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
    if (free != nullptr) {
        *free = simt::memory_left();
    }
    if (total != nullptr) {
        *total = simt::total_memory();
    }
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
    if (device != 0) {
        return noted(cudaErrorInvalidDevice);
    }
    const cudaDeviceProp gpu = emulated_device();
    switch (attribute) {
#define FLASH_SIMT_ATTRIBUTE(name, member)                                                         \
    case cudaDevAttr##name:                                                                        \
        *value = static_cast<int>(gpu.member);                                                     \
        return cudaSuccess;
        FLASH_SIMT_ATTRIBUTE(MaxThreadsPerBlock, maxThreadsPerBlock)
        FLASH_SIMT_ATTRIBUTE(MaxBlockDimX, maxThreadsDim[0])
        FLASH_SIMT_ATTRIBUTE(MaxBlockDimY, maxThreadsDim[1])
        FLASH_SIMT_ATTRIBUTE(MaxBlockDimZ, maxThreadsDim[2])
        FLASH_SIMT_ATTRIBUTE(MaxGridDimX, maxGridSize[0])
        FLASH_SIMT_ATTRIBUTE(MaxGridDimY, maxGridSize[1])
        FLASH_SIMT_ATTRIBUTE(MaxGridDimZ, maxGridSize[2])
        FLASH_SIMT_ATTRIBUTE(MaxSharedMemoryPerBlock, sharedMemPerBlock)
        FLASH_SIMT_ATTRIBUTE(TotalConstantMemory, totalConstMem)
        FLASH_SIMT_ATTRIBUTE(WarpSize, warpSize)
        FLASH_SIMT_ATTRIBUTE(MaxRegistersPerBlock, regsPerBlock)
        FLASH_SIMT_ATTRIBUTE(ClockRate, clockRate)
        FLASH_SIMT_ATTRIBUTE(GpuOverlap, deviceOverlap)
        FLASH_SIMT_ATTRIBUTE(MultiProcessorCount, multiProcessorCount)
        FLASH_SIMT_ATTRIBUTE(KernelExecTimeout, kernelExecTimeoutEnabled)
        FLASH_SIMT_ATTRIBUTE(Integrated, integrated)
        FLASH_SIMT_ATTRIBUTE(CanMapHostMemory, canMapHostMemory)
        FLASH_SIMT_ATTRIBUTE(ComputeMode, computeMode)
        FLASH_SIMT_ATTRIBUTE(ConcurrentKernels, concurrentKernels)
        FLASH_SIMT_ATTRIBUTE(EccEnabled, ECCEnabled)
        FLASH_SIMT_ATTRIBUTE(MemoryClockRate, memoryClockRate)
        FLASH_SIMT_ATTRIBUTE(GlobalMemoryBusWidth, memoryBusWidth)
        FLASH_SIMT_ATTRIBUTE(L2CacheSize, l2CacheSize)
        FLASH_SIMT_ATTRIBUTE(MaxThreadsPerMultiProcessor, maxThreadsPerMultiProcessor)
        FLASH_SIMT_ATTRIBUTE(AsyncEngineCount, asyncEngineCount)
        FLASH_SIMT_ATTRIBUTE(UnifiedAddressing, unifiedAddressing)
        FLASH_SIMT_ATTRIBUTE(ComputeCapabilityMajor, major)
        FLASH_SIMT_ATTRIBUTE(ComputeCapabilityMinor, minor)
        FLASH_SIMT_ATTRIBUTE(MaxSharedMemoryPerMultiprocessor, sharedMemPerMultiprocessor)
        FLASH_SIMT_ATTRIBUTE(MaxRegistersPerMultiprocessor, regsPerMultiprocessor)
        FLASH_SIMT_ATTRIBUTE(ManagedMemory, managedMemory)
        FLASH_SIMT_ATTRIBUTE(HostNativeAtomicSupported, hostNativeAtomicSupported)
        FLASH_SIMT_ATTRIBUTE(PageableMemoryAccess, pageableMemoryAccess)
        FLASH_SIMT_ATTRIBUTE(ConcurrentManagedAccess, concurrentManagedAccess)
        FLASH_SIMT_ATTRIBUTE(ComputePreemptionSupported, computePreemptionSupported)
        FLASH_SIMT_ATTRIBUTE(CanUseHostPointerForRegisteredMem, hostRegisterSupported)
        FLASH_SIMT_ATTRIBUTE(CooperativeLaunch, cooperativeLaunch)
        FLASH_SIMT_ATTRIBUTE(MaxSharedMemoryPerBlockOptin, sharedMemPerBlockOptin)
        FLASH_SIMT_ATTRIBUTE(MaxBlocksPerMultiprocessor, maxBlocksPerMultiProcessor)
        FLASH_SIMT_ATTRIBUTE(ReservedSharedMemoryPerBlock, reservedSharedMemPerBlock)
        FLASH_SIMT_ATTRIBUTE(MemoryPoolsSupported, memoryPoolsSupported)
        FLASH_SIMT_ATTRIBUTE(ClusterLaunch, clusterLaunch)
#undef FLASH_SIMT_ATTRIBUTE
    }
    return noted(cudaErrorInvalidValue);
}
