// cuBLAS as far as programs use it to check a matrix product: handles, products of matrices, and
// the simplest functions of vectors. Computed by Eigen on the host; what is on the device is copied
// there and back by cudaMemcpy, which checks it.
#pragma once

// by which other headers tell that it is there
#define CUBLAS_API_H_

#include <cstdint>

#include "common/simt/language/copies.hpp"
#include "common/simt/language/narrow.hpp"

enum cublasStatus_t {
    CUBLAS_STATUS_SUCCESS = 0,
    CUBLAS_STATUS_NOT_INITIALIZED = 1,
    CUBLAS_STATUS_ALLOC_FAILED = 3,
    CUBLAS_STATUS_INVALID_VALUE = 7,
    CUBLAS_STATUS_ARCH_MISMATCH = 8,
    CUBLAS_STATUS_MAPPING_ERROR = 11,
    CUBLAS_STATUS_EXECUTION_FAILED = 13,
    CUBLAS_STATUS_INTERNAL_ERROR = 14,
    CUBLAS_STATUS_NOT_SUPPORTED = 15,
    CUBLAS_STATUS_LICENSE_ERROR = 16
};
enum cublasOperation_t { CUBLAS_OP_N, CUBLAS_OP_T, CUBLAS_OP_C };
enum cublasPointerMode_t { CUBLAS_POINTER_MODE_HOST, CUBLAS_POINTER_MODE_DEVICE };
enum cublasMath_t {
    CUBLAS_DEFAULT_MATH = 0,
    CUBLAS_TENSOR_OP_MATH = 1,
    CUBLAS_PEDANTIC_MATH = 2,
    CUBLAS_TF32_TENSOR_OP_MATH = 3,
    CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION = 16
};
enum cublasGemmAlgo_t { CUBLAS_GEMM_DEFAULT = -1, CUBLAS_GEMM_DEFAULT_TENSOR_OP = 99 };
inline constexpr cublasGemmAlgo_t CUBLAS_GEMM_DFALT = CUBLAS_GEMM_DEFAULT;
enum cublasComputeType_t {
    CUBLAS_COMPUTE_16F = 64,
    CUBLAS_COMPUTE_16F_PEDANTIC = 65,
    CUBLAS_COMPUTE_32F = 68,
    CUBLAS_COMPUTE_32F_PEDANTIC = 69,
    CUBLAS_COMPUTE_64F = 70,
    CUBLAS_COMPUTE_64F_PEDANTIC = 71,
    CUBLAS_COMPUTE_32F_FAST_16F = 74,
    CUBLAS_COMPUTE_32F_FAST_16BF = 75,
    CUBLAS_COMPUTE_32F_FAST_TF32 = 77
};
enum cudaDataType_t { CUDA_R_32F = 0, CUDA_R_64F = 1, CUDA_R_16F = 2, CUDA_R_16BF = 14 };
using cudaDataType = cudaDataType_t;

struct cublasContext;
using cublasHandle_t = cublasContext*;

cublasStatus_t cublasCreate(cublasHandle_t* handle);
cublasStatus_t cublasDestroy(cublasHandle_t handle);
cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream);
cublasStatus_t cublasGetStream(cublasHandle_t handle, cudaStream_t* stream);
cublasStatus_t cublasSetPointerMode(cublasHandle_t handle, cublasPointerMode_t mode);
cublasStatus_t cublasGetPointerMode(cublasHandle_t handle, cublasPointerMode_t* mode);
inline cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t) {
    return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasSetWorkspace(cublasHandle_t, void*, size_t) {
    return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasGetVersion(cublasHandle_t, int* version) {
    *version = 130000;
    return CUBLAS_STATUS_SUCCESS;
}
const char* cublasGetStatusName(cublasStatus_t status);
const char* cublasGetStatusString(cublasStatus_t status);

/// `batch` products C = alpha op(A) op(B) + beta C of column-major matrices, strides apart.
/// alpha and beta are of the type that is computed in.
cublasStatus_t cublasGemmStridedBatchedEx(
    cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n, int k,
    const void* alpha, const void* a, cudaDataType a_type, int lda, long long a_stride,
    const void* b, cudaDataType b_type, int ldb, long long b_stride, const void* beta, void* c,
    cudaDataType c_type, int ldc, long long c_stride, int batch, cublasComputeType_t compute,
    cublasGemmAlgo_t algorithm,
    flash::simt::SourceLocation location = flash::simt::SourceLocation::here());

/// The compute type by the name that it had before: that of a number.
inline cublasComputeType_t compute_type_of(cudaDataType type) {
    return type == CUDA_R_64F   ? CUBLAS_COMPUTE_64F
           : type == CUDA_R_16F ? CUBLAS_COMPUTE_16F
                                : CUBLAS_COMPUTE_32F;
}
inline cublasComputeType_t compute_type_of(cublasComputeType_t type) { return type; }

template <class Compute>
inline cublasStatus_t
cublasGemmEx(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n,
             int k, const void* alpha, const void* a, cudaDataType a_type, int lda, const void* b,
             cudaDataType b_type, int ldb, const void* beta, void* c, cudaDataType c_type, int ldc,
             Compute compute, cublasGemmAlgo_t algorithm,
             flash::simt::SourceLocation location = flash::simt::SourceLocation::here()) {
    return cublasGemmStridedBatchedEx(handle, op_a, op_b, m, n, k, alpha, a, a_type, lda, 0, b,
                                      b_type, ldb, 0, beta, c, c_type, ldc, 0, 1,
                                      compute_type_of(compute), algorithm, location);
}

#define FLASH_SIMT_GEMM(letter, Type, type, compute)                                               \
    inline cublasStatus_t cublas##letter##gemmStridedBatched(                                      \
        cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n,       \
        int k, const Type* alpha, const Type* a, int lda, long long a_stride, const Type* b,       \
        int ldb, long long b_stride, const Type* beta, Type* c, int ldc, long long c_stride,       \
        int batch, flash::simt::SourceLocation location = flash::simt::SourceLocation::here()) {   \
        return cublasGemmStridedBatchedEx(                                                         \
            handle, op_a, op_b, m, n, k, alpha, a, type, lda, a_stride, b, type, ldb, b_stride,    \
            beta, c, type, ldc, c_stride, batch, compute, CUBLAS_GEMM_DEFAULT, location);          \
    }                                                                                              \
    inline cublasStatus_t cublas##letter##gemm(                                                    \
        cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n,       \
        int k, const Type* alpha, const Type* a, int lda, const Type* b, int ldb,                  \
        const Type* beta, Type* c, int ldc,                                                        \
        flash::simt::SourceLocation location = flash::simt::SourceLocation::here()) {              \
        return cublas##letter##gemmStridedBatched(handle, op_a, op_b, m, n, k, alpha, a, lda, 0,   \
                                                  b, ldb, 0, beta, c, ldc, 0, 1, location);        \
    }
FLASH_SIMT_GEMM(S, float, CUDA_R_32F, CUBLAS_COMPUTE_32F)
FLASH_SIMT_GEMM(D, double, CUDA_R_64F, CUBLAS_COMPUTE_64F)
FLASH_SIMT_GEMM(H, flash::simt::Narrow<flash::Half>, CUDA_R_16F, CUBLAS_COMPUTE_16F)
#undef FLASH_SIMT_GEMM

// Copies between host and device: columns of a matrix, or elements of a vector, that lie apart.
#define FLASH_SIMT_CUBLAS_COPIES(Name, kind)                                                       \
    inline cublasStatus_t cublas##Name##Matrix(                                                    \
        int rows, int columns, int element_bytes, const void* source, int source_stride,           \
        void* destination, int destination_stride,                                                 \
        flash::simt::SourceLocation location = flash::simt::SourceLocation::here()) {              \
        const auto bytes_of = [=](int elements) {                                                  \
            return static_cast<size_t>(elements) * static_cast<size_t>(element_bytes);             \
        };                                                                                         \
        cudaMemcpy2D(destination, bytes_of(destination_stride), source, bytes_of(source_stride),   \
                     bytes_of(rows), static_cast<size_t>(columns), kind, location);                \
        return CUBLAS_STATUS_SUCCESS;                                                              \
    }                                                                                              \
    inline cublasStatus_t cublas##Name##Vector(                                                    \
        int n, int element_bytes, const void* source, int source_increment, void* destination,     \
        int destination_increment,                                                                 \
        flash::simt::SourceLocation location = flash::simt::SourceLocation::here()) {              \
        const bool whole = source_increment == 1 && destination_increment == 1;                    \
        return cublas##Name##Matrix(whole ? n : 1, whole ? 1 : n, element_bytes, source,           \
                                    whole ? n : source_increment, destination,                     \
                                    whole ? n : destination_increment, location);                  \
    }                                                                                              \
    inline cublasStatus_t cublas##Name##MatrixAsync(                                               \
        int rows, int columns, int element_bytes, const void* source, int source_stride,           \
        void* destination, int destination_stride, cudaStream_t,                                   \
        flash::simt::SourceLocation location = flash::simt::SourceLocation::here()) {              \
        return cublas##Name##Matrix(rows, columns, element_bytes, source, source_stride,           \
                                    destination, destination_stride, location);                    \
    }                                                                                              \
    inline cublasStatus_t cublas##Name##VectorAsync(                                               \
        int n, int element_bytes, const void* source, int source_increment, void* destination,     \
        int destination_increment, cudaStream_t,                                                   \
        flash::simt::SourceLocation location = flash::simt::SourceLocation::here()) {              \
        return cublas##Name##Vector(n, element_bytes, source, source_increment, destination,       \
                                    destination_increment, location);                              \
    }
FLASH_SIMT_CUBLAS_COPIES(Set, cudaMemcpyHostToDevice)
FLASH_SIMT_CUBLAS_COPIES(Get, cudaMemcpyDeviceToHost)
#undef FLASH_SIMT_CUBLAS_COPIES

// Vectors, elements `increment` apart.
#define FLASH_SIMT_VECTOR_FUNCTIONS(letter, Type)                                                  \
    cublasStatus_t cublas##letter##gemv(                                                           \
        cublasHandle_t handle, cublasOperation_t op, int m, int n, const Type* alpha,              \
        const Type* a, int lda, const Type* x, int x_increment, const Type* beta, Type* y,         \
        int y_increment,                                                                           \
        flash::simt::SourceLocation location = flash::simt::SourceLocation::here());               \
    cublasStatus_t cublas##letter##axpy(cublasHandle_t handle, int n, const Type* alpha,           \
                                        const Type* x, int x_increment, Type* y, int y_increment,  \
                                        flash::simt::SourceLocation location =                     \
                                            flash::simt::SourceLocation::here());                  \
    cublasStatus_t cublas##letter##scal(                                                           \
        cublasHandle_t handle, int n, const Type* alpha, Type* x, int increment,                   \
        flash::simt::SourceLocation location = flash::simt::SourceLocation::here());               \
    cublasStatus_t cublas##letter##copy(                                                           \
        cublasHandle_t handle, int n, const Type* x, int x_increment, Type* y, int y_increment,    \
        flash::simt::SourceLocation location = flash::simt::SourceLocation::here());               \
    cublasStatus_t cublas##letter##dot(                                                            \
        cublasHandle_t handle, int n, const Type* x, int x_increment, const Type* y,               \
        int y_increment, Type* result,                                                             \
        flash::simt::SourceLocation location = flash::simt::SourceLocation::here());               \
    cublasStatus_t cublas##letter##nrm2(                                                           \
        cublasHandle_t handle, int n, const Type* x, int increment, Type* result,                  \
        flash::simt::SourceLocation location = flash::simt::SourceLocation::here());               \
    cublasStatus_t cublas##letter##asum(                                                           \
        cublasHandle_t handle, int n, const Type* x, int increment, Type* result,                  \
        flash::simt::SourceLocation location = flash::simt::SourceLocation::here());
FLASH_SIMT_VECTOR_FUNCTIONS(S, float)
FLASH_SIMT_VECTOR_FUNCTIONS(D, double)
#undef FLASH_SIMT_VECTOR_FUNCTIONS
