#include "reference/products.hpp"

#include <Eigen/Core>

namespace flash::reference {

MatrixF product(const ViewF& A, const ViewF& B) { return A * B; }
MatrixD product(const ViewD& A, const ViewD& B) { return A * B; }

MatrixF product_transposed(const ViewF& A, const ViewF& B) { return A * B.transpose(); }
MatrixD product_transposed(const ViewD& A, const ViewD& B) { return A * B.transpose(); }

MatrixF transposed_product(const ViewF& A, const ViewF& B) { return A.transpose() * B; }
MatrixD transposed_product(const ViewD& A, const ViewD& B) { return A.transpose() * B; }

} // namespace flash::reference
