// The products of matrices in reference/, in one source: Eigen makes code of its own for each
// expression, and that takes most of the time to compile.
#pragma once

#include <Eigen/Core>

namespace flash::reference {

using MatrixF = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using MatrixD = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using ViewF = Eigen::Ref<const MatrixF>; // a matrix, or some of its rows or columns
using ViewD = Eigen::Ref<const MatrixD>;

/// A B
MatrixF product(const ViewF& A, const ViewF& B);
MatrixD product(const ViewD& A, const ViewD& B);

/// A B^T
MatrixF product_transposed(const ViewF& A, const ViewF& B);
MatrixD product_transposed(const ViewD& A, const ViewD& B);

/// A^T B
MatrixF transposed_product(const ViewF& A, const ViewF& B);
MatrixD transposed_product(const ViewD& A, const ViewD& B);

} // namespace flash::reference
