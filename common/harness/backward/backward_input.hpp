// What backward kinds have in common: their input, and what is said of gradients.
#pragma once

#include <functional>
#include <vector>

#include "common/harness/program/input_tensors.hpp"
#include "common/harness/program/run_report.hpp"
#include "common/harness/program/rung.hpp"

namespace flash {

struct BackwardTensors : HostTensors {
    std::vector<float> o, lse, d_o;
    Inputs view() const { return {dtype, q, k, v, o, lse, d_o, sink}; }
};

/// The shapes of O, dO and dQ, and of LSE, in a file.
struct GradientShapes {
    std::vector<int64_t> o, lse;
};

/// O and LSE of the input.
using ForwardOf = std::function<ForwardResult(const Inputs&, const Progress&)>;

/// Tensors of the problem's sizes, random or from a file. dO is random where the file holds none,
/// and O and LSE are those of `forward`. Throws Error as make_tensors does, and where a tensor has
/// another shape.
BackwardTensors input_of(const Problem& problem, const Report& report, const Options& options,
                         const GradientShapes& shapes, const ForwardOf& forward);

/// As Rung::host_bytes and Rung::errors.
double host_bytes_of_gradients(const Problem& problem, DType dtype, bool check);
std::vector<NamedError> errors_of_gradients(const Verdict& verdict);

} // namespace flash
