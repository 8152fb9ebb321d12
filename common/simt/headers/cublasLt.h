// CUDA's header of this name, for the SIMT backend: programs make a handle even where they do not
// multiply with it. Products are cuBLAS's.
#pragma once

#include "cublas_v2.h"

using cublasLtHandle_t = cublasHandle_t;
inline cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) { return cublasCreate(handle); }
inline cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) { return cublasDestroy(handle); }
