#include "common/cuda/launch/tensor_map.hpp"

#include <cudaTypedefs.h>
#include <cuda_runtime.h>

#include "common/cuda/launch/error.hpp"

namespace flash::detail {
namespace {

/// cuTensorMapEncodeTiled belongs to the driver. Asking the runtime for it saves linking with the
/// driver's library, which a machine without a GPU lacks.
PFN_cuTensorMapEncodeTiled_v12000 encoder() {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found{};
#if CUDART_VERSION >= 12050
    FLASH_CHECK_CUDA(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000,
                                                      cudaEnableDefault, &found));
#else
    FLASH_CHECK_CUDA(
        cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &function, cudaEnableDefault, &found));
#endif
    if (found != cudaDriverEntryPointSuccess) {
        throw Error(
            "this GPU's driver has no cuTensorMapEncodeTiled; CUDA 12.0 or later is needed");
    }
    return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function);
}

} // namespace

TensorMap encode_tensor_map(DType type, int rank, const void* base, const int64_t* sizes,
                            const int64_t* strides, const int* box) {
    static const auto encode = encoder();
    const CUtensorMapDataType element = type == DType::fp32   ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32
                                        : type == DType::fp16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                        : type == DType::bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                                              : CU_TENSOR_MAP_DATA_TYPE_UINT8;
    const CUtensorMapSwizzle swizzle =
        box[0] * dtype_bytes(type) == 128 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B;
    cuuint64_t size[5];
    cuuint64_t stride_bytes[4];
    cuuint32_t box_size[5];
    cuuint32_t every_element[5];
    for (int i = 0; i < rank; ++i) {
        size[i] = static_cast<cuuint64_t>(sizes[i]);
        box_size[i] = static_cast<cuuint32_t>(box[i]);
        every_element[i] = 1;
        if (i > 0) {
            stride_bytes[i - 1] = static_cast<cuuint64_t>(strides[i - 1] * dtype_bytes(type));
        }
    }
    TensorMap map{};
    const CUresult result =
        encode(&map.encoded, element, static_cast<cuuint32_t>(rank), const_cast<void*>(base), size,
               stride_bytes, box_size, every_element, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
               CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result != CUDA_SUCCESS) {
        throw Error("cuTensorMapEncodeTiled failed with CUDA driver error " +
                    std::to_string(result));
    }
    return map;
}

} // namespace flash::detail
