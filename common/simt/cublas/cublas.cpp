#include "common/simt/cublas/cublas.hpp"

#include <Eigen/Core>
#include <algorithm>
#include <optional>
#include <vector>

struct cublasContext {
    cudaStream_t stream = nullptr;
    cublasPointerMode_t pointer_mode = CUBLAS_POINTER_MODE_HOST;
};

namespace {

using flash::Bfloat16;
using flash::Half;
using flash::simt::Narrow;

thread_local flash::simt::SourceLocation caller; // of the call at work

/// While it lives a call is at work, in its handle's stream.
struct AtWork : flash::simt::OnStream {
    AtWork(cublasHandle_t handle, flash::simt::SourceLocation location)
        : OnStream(handle == nullptr ? nullptr : handle->stream) {
        caller = location;
    }
};

template <class Number> using Matrix = Eigen::Matrix<Number, Eigen::Dynamic, Eigen::Dynamic>;
template <class Number> using Vector = Eigen::Matrix<Number, Eigen::Dynamic, 1>;

/// Calls `use` with a number of the type; false when there is none.
template <class Use> bool with_type(cudaDataType type, Use use) {
    switch (type) {
    case CUDA_R_32F:
        use(float{});
        return true;
    case CUDA_R_64F:
        use(double{});
        return true;
    case CUDA_R_16F:
        use(Narrow<Half>());
        return true;
    case CUDA_R_16BF:
        use(Narrow<Bfloat16>());
        return true;
    }
    return false;
}

/// A column-major matrix on the device.
struct Place {
    char* begin;
    cudaDataType type;
    int rows, columns, stride;
};

template <class Number> bool read(const Place& from, Matrix<Number>& to) {
    bool read_all = false;
    with_type(from.type, [&]<class Element>(Element) {
        const auto rows = static_cast<size_t>(from.rows);
        const auto columns = static_cast<size_t>(from.columns);
        std::vector<Element> elements(rows * columns);
        const size_t width = rows * sizeof(Element);
        const size_t pitch = static_cast<size_t>(from.stride) * sizeof(Element);
        read_all = cudaMemcpy2D(elements.data(), width, from.begin, pitch, width, columns,
                                cudaMemcpyDeviceToHost, caller) == cudaSuccess;
        to.resize(from.rows, from.columns);
        std::transform(elements.begin(), elements.end(), to.data(),
                       [](Element element) { return static_cast<Number>(element); });
    });
    return read_all;
}

template <class Number> bool write(const Place& to, const Matrix<Number>& from) {
    bool written = false;
    with_type(to.type, [&]<class Element>(Element) {
        std::vector<Element> elements(static_cast<size_t>(from.size()));
        std::transform(from.data(), from.data() + from.size(), elements.begin(),
                       [](Number number) { return static_cast<Element>(number); });
        const size_t width = static_cast<size_t>(to.rows) * sizeof(Element);
        const size_t pitch = static_cast<size_t>(to.stride) * sizeof(Element);
        written = cudaMemcpy2D(to.begin, pitch, elements.data(), width, width,
                               static_cast<size_t>(to.columns), cudaMemcpyHostToDevice,
                               caller) == cudaSuccess;
    });
    return written;
}

template <class Number>
std::optional<Number> scalar(cublasHandle_t handle, const void* at, cudaDataType type) {
    std::optional<Number> value;
    with_type(type, [&]<class Element>(Element element) {
        if (handle->pointer_mode == CUBLAS_POINTER_MODE_HOST) {
            element = *static_cast<const Element*>(at);
        } else if (cudaMemcpy(&element, at, sizeof element, cudaMemcpyDeviceToHost, caller) !=
                   cudaSuccess) {
            return;
        }
        value = static_cast<Number>(element);
    });
    return value;
}

size_t bytes_of(cudaDataType type) { return type == CUDA_R_32F ? 4 : type == CUDA_R_64F ? 8 : 2; }
cublasStatus_t status_of(bool done) {
    return done ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

template <class Number>
cublasStatus_t multiply(cublasOperation_t op_a, Place a, cublasOperation_t op_b, Place b, Place c,
                        Number alpha, Number beta) {
    Matrix<Number> A, B, C;
    if (!read(a, A) || !read(b, B) || (beta != 0 && !read(c, C))) {
        return CUBLAS_STATUS_EXECUTION_FAILED;
    }
    if (op_a != CUBLAS_OP_N) {
        A = A.transpose().eval();
    }
    if (op_b != CUBLAS_OP_N) {
        B = B.transpose().eval();
    }
    Matrix<Number> product = alpha * (A * B);
    if (beta != 0) { // else C may hold anything
        product += beta * C;
    }
    return status_of(write(c, product));
}

} // namespace

cublasStatus_t cublasCreate(cublasHandle_t* handle) {
    *handle = new cublasContext;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasDestroy(cublasHandle_t handle) {
    delete handle;
    return handle == nullptr ? CUBLAS_STATUS_NOT_INITIALIZED : CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream) {
    handle->stream = stream;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasGetStream(cublasHandle_t handle, cudaStream_t* stream) {
    *stream = handle->stream;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetPointerMode(cublasHandle_t handle, cublasPointerMode_t mode) {
    handle->pointer_mode = mode;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasGetPointerMode(cublasHandle_t handle, cublasPointerMode_t* mode) {
    *mode = handle->pointer_mode;
    return CUBLAS_STATUS_SUCCESS;
}

const char* cublasGetStatusName(cublasStatus_t status) {
    switch (status) {
#define FLASH_SIMT_STATUS(name)                                                                    \
    case name:                                                                                     \
        return #name;
        FLASH_SIMT_STATUS(CUBLAS_STATUS_SUCCESS)
        FLASH_SIMT_STATUS(CUBLAS_STATUS_NOT_INITIALIZED)
        FLASH_SIMT_STATUS(CUBLAS_STATUS_ALLOC_FAILED)
        FLASH_SIMT_STATUS(CUBLAS_STATUS_INVALID_VALUE)
        FLASH_SIMT_STATUS(CUBLAS_STATUS_ARCH_MISMATCH)
        FLASH_SIMT_STATUS(CUBLAS_STATUS_MAPPING_ERROR)
        FLASH_SIMT_STATUS(CUBLAS_STATUS_EXECUTION_FAILED)
        FLASH_SIMT_STATUS(CUBLAS_STATUS_INTERNAL_ERROR)
        FLASH_SIMT_STATUS(CUBLAS_STATUS_NOT_SUPPORTED)
        FLASH_SIMT_STATUS(CUBLAS_STATUS_LICENSE_ERROR)
#undef FLASH_SIMT_STATUS
    }
    return "unknown status";
}
const char* cublasGetStatusString(cublasStatus_t status) { return cublasGetStatusName(status); }

cublasStatus_t cublasGemmStridedBatchedEx(
    cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n, int k,
    const void* alpha, const void* a, cudaDataType a_type, int lda, long long a_stride,
    const void* b, cudaDataType b_type, int ldb, long long b_stride, const void* beta, void* c,
    cudaDataType c_type, int ldc, long long c_stride, int batch, cublasComputeType_t compute,
    cublasGemmAlgo_t, flash::simt::SourceLocation location) {
    const AtWork at_work(handle, location);
    if (handle == nullptr) {
        return CUBLAS_STATUS_NOT_INITIALIZED;
    }
    const int a_rows = op_a == CUBLAS_OP_N ? m : k;
    const int b_rows = op_b == CUBLAS_OP_N ? k : n;
    if (m < 0 || n < 0 || k < 0 || batch < 0 || lda < std::max(1, a_rows) ||
        ldb < std::max(1, b_rows) || ldc < std::max(1, m)) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    const auto matrix = [](const void* begin, long long number, cudaDataType type, int rows,
                           int columns, int stride) {
        const auto offset = number * static_cast<long long>(bytes_of(type));
        return Place{const_cast<char*>(static_cast<const char*>(begin)) + offset, type, rows,
                     columns, stride};
    };
    const auto compute_in = [&]<class Number>(Number, cudaDataType scalars) {
        const std::optional<Number> alpha_value = scalar<Number>(handle, alpha, scalars);
        const std::optional<Number> beta_value = scalar<Number>(handle, beta, scalars);
        if (!alpha_value || !beta_value) {
            return CUBLAS_STATUS_EXECUTION_FAILED;
        }
        for (int i = 0; i < batch; ++i) {
            const cublasStatus_t status = multiply<Number>(
                op_a, matrix(a, i * a_stride, a_type, a_rows, op_a == CUBLAS_OP_N ? k : m, lda),
                op_b, matrix(b, i * b_stride, b_type, b_rows, op_b == CUBLAS_OP_N ? n : k, ldb),
                matrix(c, i * c_stride, c_type, m, n, ldc), *alpha_value, *beta_value);
            if (status != CUBLAS_STATUS_SUCCESS) {
                return status;
            }
        }
        return CUBLAS_STATUS_SUCCESS;
    };
    switch (compute) {
    case CUBLAS_COMPUTE_64F:
    case CUBLAS_COMPUTE_64F_PEDANTIC:
        return compute_in(double{}, CUDA_R_64F);
    case CUBLAS_COMPUTE_16F:
    case CUBLAS_COMPUTE_16F_PEDANTIC:
        return compute_in(float{}, CUDA_R_16F);
    default:
        return compute_in(float{}, CUDA_R_32F);
    }
}

namespace {

/// A vector is a matrix of one row whose columns are `increment` apart, or else of one column.
template <class Type> Place vector(const Type* x, int n, int increment) {
    char* const begin = reinterpret_cast<char*>(const_cast<Type*>(x));
    const cudaDataType type = sizeof(Type) == 4 ? CUDA_R_32F : CUDA_R_64F;
    return increment == 1 ? Place{begin, type, n, 1, n} : Place{begin, type, 1, n, increment};
}

template <class Type> bool read(const Type* x, int n, int increment, Vector<Type>& to) {
    Matrix<Type> all;
    const bool done = n >= 0 && increment > 0 && read(vector(x, n, increment), all);
    to = Eigen::Map<Vector<Type>>(all.data(), all.size());
    return done;
}
template <class Type> bool write(Type* x, int increment, const Vector<Type>& from) {
    const auto n = static_cast<int>(from.size());
    const Matrix<Type> column = from;
    const Matrix<Type> row = from.transpose();
    return write(vector(x, n, increment), increment == 1 ? column : row);
}

template <class Type> std::optional<Type> scalar(cublasHandle_t handle, const Type* at) {
    return scalar<Type>(handle, at, sizeof(Type) == 4 ? CUDA_R_32F : CUDA_R_64F);
}
template <class Type> cublasStatus_t give(cublasHandle_t handle, Type value, Type* to) {
    if (handle->pointer_mode == CUBLAS_POINTER_MODE_HOST) {
        *to = value;
        return CUBLAS_STATUS_SUCCESS;
    }
    return status_of(cudaMemcpy(to, &value, sizeof value, cudaMemcpyHostToDevice, caller) ==
                     cudaSuccess);
}

template <class Type>
cublasStatus_t gemv(cublasHandle_t handle, cublasOperation_t op, int m, int n, const Type* alpha,
                    const Type* a, int lda, const Type* x, int x_increment, const Type* beta,
                    Type* y, int y_increment) {
    const auto alpha_value = scalar(handle, alpha);
    const auto beta_value = scalar(handle, beta);
    const bool transposed = op != CUBLAS_OP_N;
    Matrix<Type> A;
    Vector<Type> X, Y;
    const Place of_a{reinterpret_cast<char*>(const_cast<Type*>(a)),
                     sizeof(Type) == 4 ? CUDA_R_32F : CUDA_R_64F, m, n, lda};
    if (!alpha_value || !beta_value || !read(of_a, A) ||
        !read(x, transposed ? m : n, x_increment, X) ||
        (*beta_value != 0 && !read(y, transposed ? n : m, y_increment, Y))) {
        return CUBLAS_STATUS_EXECUTION_FAILED;
    }
    Vector<Type> product = transposed ? Vector<Type>(A.transpose() * X) : Vector<Type>(A * X);
    product *= *alpha_value;
    if (*beta_value != 0) {
        product += *beta_value * Y;
    }
    return status_of(write(y, y_increment, product));
}

} // namespace

#define FLASH_SIMT_VECTOR_FUNCTIONS(letter, Type)                                                  \
    cublasStatus_t cublas##letter##gemv(cublasHandle_t handle, cublasOperation_t op, int m, int n, \
                                        const Type* alpha, const Type* a, int lda, const Type* x,  \
                                        int x_increment, const Type* beta, Type* y,                \
                                        int y_increment, flash::simt::SourceLocation location) {   \
        const AtWork at_work(handle, location);                                                    \
        return gemv(handle, op, m, n, alpha, a, lda, x, x_increment, beta, y, y_increment);        \
    }                                                                                              \
    cublasStatus_t cublas##letter##axpy(cublasHandle_t handle, int n, const Type* alpha,           \
                                        const Type* x, int x_increment, Type* y, int y_increment,  \
                                        flash::simt::SourceLocation location) {                    \
        const AtWork at_work(handle, location);                                                    \
        const auto factor = scalar(handle, alpha);                                                 \
        Vector<Type> X, Y;                                                                         \
        return status_of(factor && read(x, n, x_increment, X) && read(y, n, y_increment, Y) &&     \
                         write<Type>(y, y_increment, *factor * X + Y));                            \
    }                                                                                              \
    cublasStatus_t cublas##letter##scal(cublasHandle_t handle, int n, const Type* alpha, Type* x,  \
                                        int increment, flash::simt::SourceLocation location) {     \
        const AtWork at_work(handle, location);                                                    \
        const auto factor = scalar(handle, alpha);                                                 \
        Vector<Type> X;                                                                            \
        return status_of(factor && read(x, n, increment, X) &&                                     \
                         write<Type>(x, increment, *factor * X));                                  \
    }                                                                                              \
    cublasStatus_t cublas##letter##copy(cublasHandle_t handle, int n, const Type* x,               \
                                        int x_increment, Type* y, int y_increment,                 \
                                        flash::simt::SourceLocation location) {                    \
        const AtWork at_work(handle, location);                                                    \
        Vector<Type> X;                                                                            \
        return status_of(read(x, n, x_increment, X) && write<Type>(y, y_increment, X));            \
    }                                                                                              \
    cublasStatus_t cublas##letter##dot(cublasHandle_t handle, int n, const Type* x,                \
                                       int x_increment, const Type* y, int y_increment,            \
                                       Type* result, flash::simt::SourceLocation location) {       \
        const AtWork at_work(handle, location);                                                    \
        Vector<Type> X, Y;                                                                         \
        return read(x, n, x_increment, X) && read(y, n, y_increment, Y)                            \
                   ? give<Type>(handle, X.dot(Y), result)                                          \
                   : CUBLAS_STATUS_EXECUTION_FAILED;                                               \
    }                                                                                              \
    cublasStatus_t cublas##letter##nrm2(cublasHandle_t handle, int n, const Type* x,               \
                                        int increment, Type* result,                               \
                                        flash::simt::SourceLocation location) {                    \
        const AtWork at_work(handle, location);                                                    \
        Vector<Type> X;                                                                            \
        return read(x, n, increment, X) ? give<Type>(handle, X.norm(), result)                     \
                                        : CUBLAS_STATUS_EXECUTION_FAILED;                          \
    }                                                                                              \
    cublasStatus_t cublas##letter##asum(cublasHandle_t handle, int n, const Type* x,               \
                                        int increment, Type* result,                               \
                                        flash::simt::SourceLocation location) {                    \
        const AtWork at_work(handle, location);                                                    \
        Vector<Type> X;                                                                            \
        return read(x, n, increment, X) ? give<Type>(handle, X.template lpNorm<1>(), result)       \
                                        : CUBLAS_STATUS_EXECUTION_FAILED;                          \
    }
FLASH_SIMT_VECTOR_FUNCTIONS(S, float)
FLASH_SIMT_VECTOR_FUNCTIONS(D, double)
