#include "common/harness/backends/backend.hpp"
#include "common/harness/backends/device_backend.hpp"

#include <cstdint>
#include <sstream>

#include "common/cuda/launch/device_buffer.hpp"
#include "common/cuda/launch/error.hpp"

namespace flash {
namespace {

const char* const without_gpu =
    "without one, the same kernels run on the CPU: scripts/step --preset simt RUNG";

/// "12.4" for 12040, as the driver and the runtime report their versions.
std::string version(int number) {
    return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
}

/// The architectures that nvcc was asked for: "8.0, 9.0".
std::string built_for() {
    std::string list;
    for (const int architecture : {__CUDA_ARCH_LIST__}) {
        list += (list.empty() ? "" : ", ") + std::to_string(architecture / 100) + "." +
                std::to_string(architecture % 100 / 10);
    }
    return list;
}

/// Compiled for the same architectures as every kernel of the program; the driver says here whether
/// it can load them.
__global__ void probe() {}

/// Reads all of a buffer. A sum that is used nowhere would not be computed; it is hardly ever 1.
__global__ void read_all(uint4* buffer, size_t count) {
    unsigned sum = 0;
    const size_t first = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
    const size_t threads = size_t{gridDim.x} * blockDim.x;
    for (size_t i = first; i < count; i += threads) {
        const uint4 read = buffer[i];
        sum += read.x + read.y + read.z + read.w;
    }
    if (sum == 1) {
        buffer->x = sum;
    }
}

cudaDeviceProp properties() {
    cudaDeviceProp found{};
    FLASH_CHECK_CUDA(cudaGetDeviceProperties(&found, 0));
    return found;
}

class CudaMemory final : public Memory {
  public:
    explicit CudaMemory(size_t bytes)
        : bytes_(bytes), buffer_(static_cast<int64_t>(bytes), "a tensor") {}

    void* data() const override { return buffer_.data(); }
    size_t bytes() const override { return bytes_; }

    void write(size_t offset, const void* source, size_t bytes) override {
        FLASH_CHECK_CUDA(
            cudaMemcpy(buffer_.data() + offset, source, bytes, cudaMemcpyHostToDevice));
    }
    void read(size_t offset, void* destination, size_t bytes) const override {
        FLASH_CHECK_CUDA(
            cudaMemcpy(destination, buffer_.data() + offset, bytes, cudaMemcpyDeviceToHost));
    }

  private:
    size_t bytes_;
    DeviceBuffer<char> buffer_;
};

/// Two CUDA events: the GPU itself notes when it passes them.
class Stopwatch {
  public:
    Stopwatch() {
        FLASH_CHECK_CUDA(cudaEventCreate(&start_));
        FLASH_CHECK_CUDA(cudaEventCreate(&stop_));
    }
    ~Stopwatch() {
        cudaEventDestroy(start_);
        cudaEventDestroy(stop_);
    }
    Stopwatch(const Stopwatch&) = delete;
    Stopwatch& operator=(const Stopwatch&) = delete;

    double seconds(const std::function<void()>& work) {
        FLASH_CHECK_CUDA(cudaEventRecord(start_));
        work();
        FLASH_CHECK_CUDA(cudaEventRecord(stop_));
        FLASH_CHECK_CUDA(cudaEventSynchronize(stop_));
        float milliseconds = 0;
        FLASH_CHECK_CUDA(cudaEventElapsedTime(&milliseconds, start_, stop_));
        return static_cast<double>(milliseconds) / 1000;
    }

  private:
    cudaEvent_t start_ = nullptr;
    cudaEvent_t stop_ = nullptr;
};

class CudaBackend final : public Backend {
  public:
    std::string name() const override { return "cuda"; }
    bool uses_host_memory() const override { return false; }

    std::string description() const override {
        const cudaDeviceProp gpu = properties();
        int driver = 0;
        FLASH_CHECK_CUDA(cudaDriverGetVersion(&driver));
        std::ostringstream text;
        text << gpu.name << ", compute capability " << gpu.major << '.' << gpu.minor << ", "
             << gpu.multiProcessorCount << " SMs, driver for CUDA " << version(driver)
             << ", built with CUDA " << version(CUDART_VERSION);
        return text.str();
    }

    void require_device() const override {
        int driver = 0;
        int devices = 0;
        cudaDriverGetVersion(&driver);
        const cudaError_t status = cudaGetDeviceCount(&devices);
        if (status == cudaErrorInsufficientDriver && driver == 0) {
            throw Error(
                std::string("there is no NVIDIA driver, so no GPU to run this kernel on\n") +
                without_gpu);
        }
        if (status == cudaErrorInsufficientDriver) {
            throw Error("the NVIDIA driver is too old: it supports CUDA " + version(driver) +
                        ", and this program was built with CUDA " + version(CUDART_VERSION) +
                        "\nupdate the driver, or build with an older CUDA Toolkit (12.4 or later)");
        }
        if (status == cudaErrorNoDevice || (status == cudaSuccess && devices == 0)) {
            throw Error(std::string("there is a CUDA driver but no GPU that it may use "
                                    "(CUDA_VISIBLE_DEVICES hides GPUs when it is set)\n") +
                        without_gpu);
        }
        FLASH_CHECK_CUDA(status);

        cudaFuncAttributes attributes{};
        const cudaError_t loaded =
            cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(probe));
        if (loaded == cudaErrorNoKernelImageForDevice || loaded == cudaErrorInvalidDeviceFunction ||
            loaded == cudaErrorUnsupportedPtxVersion) {
            cudaGetLastError();
            const cudaDeviceProp gpu = properties();
            const std::string capability =
                std::to_string(gpu.major) + "." + std::to_string(gpu.minor);
            const std::string own = std::to_string(gpu.major) + std::to_string(gpu.minor);
            if (gpu.major < 8) {
                throw Error(std::string(gpu.name) + " has compute capability " + capability +
                            "; the CUDA rungs need 8.0 or newer\non this computer the same kernels "
                            "run on the CPU: " +
                            "scripts/step --preset simt RUNG");
            }
            throw Error(std::string(gpu.name) + " has compute capability " + capability +
                        ", and this program was built for " + built_for() +
                        "\nbuild it for this GPU: nvcc --generate-code=arch=compute_" + own +
                        ",code=sm_" + own + " ...");
        }
        FLASH_CHECK_CUDA(loaded);

        // Freed memory stays in the pool instead of going back to the driver at every
        // synchronisation.
        uint64_t keep_all = UINT64_MAX;
        FLASH_CHECK_CUDA(
            cudaMemPoolSetAttribute(pool(), cudaMemPoolAttrReleaseThreshold, &keep_all));
    }

    size_t available_bytes() const override {
        size_t free = 0;
        size_t total = 0;
        FLASH_CHECK_CUDA(cudaMemGetInfo(&free, &total));
        uint64_t reserved = 0;
        uint64_t used = 0;
        FLASH_CHECK_CUDA(
            cudaMemPoolGetAttribute(pool(), cudaMemPoolAttrReservedMemCurrent, &reserved));
        FLASH_CHECK_CUDA(cudaMemPoolGetAttribute(pool(), cudaMemPoolAttrUsedMemCurrent, &used));
        return free + (reserved - used);
    }

    std::unique_ptr<Memory> allocate(size_t bytes) override {
        return std::make_unique<CudaMemory>(bytes);
    }

    void synchronize() override { FLASH_CHECK_CUDA(cudaDeviceSynchronize()); }

    void flush_caches() override {
        int L2_bytes = 0;
        FLASH_CHECK_CUDA(cudaDeviceGetAttribute(&L2_bytes, cudaDevAttrL2CacheSize, 0));
        // Four times as much, because L2 does not always give up the oldest line. Read and not
        // written: the lines of a memset would go back to DRAM while the timed kernel needs it.
        const std::unique_ptr<Memory> buffer = allocate(4 * static_cast<size_t>(L2_bytes));
        auto* const words = static_cast<uint4*>(buffer->data());
        read_all<<<2048, 256>>>(words, buffer->bytes() / sizeof(uint4));
        FLASH_CHECK_CUDA(cudaGetLastError());
    }

    std::optional<size_t> peak_memory_of(const std::function<void()>& work) override {
        uint64_t before = 0;
        uint64_t most = 0; // writing 0 sets the pool's mark back to what is in use
        FLASH_CHECK_CUDA(cudaMemPoolGetAttribute(pool(), cudaMemPoolAttrUsedMemCurrent, &before));
        FLASH_CHECK_CUDA(cudaMemPoolSetAttribute(pool(), cudaMemPoolAttrUsedMemHigh, &most));
        work();
        FLASH_CHECK_CUDA(cudaMemPoolGetAttribute(pool(), cudaMemPoolAttrUsedMemHigh, &most));
        return most - before;
    }

    double time(const std::function<void()>& work) override { return Stopwatch().seconds(work); }

  private:
    static cudaMemPool_t pool() {
        cudaMemPool_t found = nullptr;
        FLASH_CHECK_CUDA(cudaDeviceGetDefaultMemPool(&found, 0));
        return found;
    }
};

} // namespace

Backend& device_backend() {
    // Never destroyed: at exit the CUDA runtime may be gone before a static object would free its
    // memory.
    static CudaBackend& backend = *new CudaBackend;
    return backend;
}

} // namespace flash
