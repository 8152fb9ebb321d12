// What the CPU rungs compute with: Eigen matrices in the row-major layout of the tensors, and an
// exponential.
#pragma once

#include <Eigen/Core>

#include <cmath>
#include <cstdint>
#include <limits>

namespace flash::cpu {

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Vector = Eigen::VectorXf; // one number for each row of a matrix

using MatrixView = Eigen::Map<Matrix>; // views own nothing
using ConstMatrixView = Eigen::Map<const Matrix>;
using VectorView = Eigen::Map<Vector>;

inline constexpr float infinity = std::numeric_limits<float>::infinity();

/// How many blocks of `block` rows it takes to hold `rows` rows; the last may be shorter.
constexpr int64_t count_blocks(int64_t rows, int64_t block) { return (rows + block - 1) / block; }

/// The exponential, in the form that Eigen vectorises: `packetOp` takes 4, 8 or 16 numbers at once.
///
/// Eigen's own exp clamps its argument, and with most instruction sets exp(-inf) is 2.9e-39 instead
/// of 0: masked keys would get a weight. Here all results below the smallest normal number, 2^-126,
/// are 0.
struct Exp {
    static constexpr float lowest = -87.3365448f; // ln(2^-126)

    float operator()(float x) const { return x < lowest ? 0.0f : std::exp(x); }

    template <class Packet> Packet packetOp(const Packet& x) const {
        using namespace Eigen::internal;
        return pselect(pcmp_lt(x, pset1<Packet>(lowest)), pset1<Packet>(0.0f), pexp(x));
    }
};

/// exp of each element of an array expression, with a relative error below 2^-21. exp(-inf) = 0,
/// exp(NaN) = NaN; it is infinite above 88.37 or 88.72, depending on the instruction set.
template <class Array> auto exponential(const Eigen::ArrayBase<Array>& x) {
    return x.derived().unaryExpr(Exp{});
}

} // namespace flash::cpu

/// Tells Eigen what an Exp costs, and that it has a packetOp.
template <> struct Eigen::internal::functor_traits<flash::cpu::Exp> {
    enum {
        Cost = functor_traits<scalar_exp_op<float>>::Cost,
        PacketAccess = packet_traits<float>::HasExp
    };
};
