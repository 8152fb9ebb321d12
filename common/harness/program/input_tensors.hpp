// The problem and its tensors, from the options: random, or out of a file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/harness/program/command_line.hpp"
#include "common/harness/program/verdict.hpp"

namespace flash {

/// Q, K and V, every value exactly representable in `dtype`, and the sink if the problem has one.
struct HostTensors {
    DType dtype = DType::fp32;
    std::vector<float> q, k, v, sink;
    std::vector<float> q_scale, k_scale, v_scale; // in e4m3

    Inputs view() const {
        return {.dtype = dtype,
                .q = q,
                .k = k,
                .v = v,
                .sink = sink,
                .q_scale = q_scale,
                .k_scale = k_scale,
                .v_scale = v_scale};
    }
};

/// The problem that the options, and the header of the file they name, describe. Reads no tensor
/// yet, so that a problem that is too large can be refused before. Throws Error when shapes
/// disagree or a value makes no sense.
Problem make_problem(const Rung& rung, const Options& options);

/// The problem's Q, K and V, and its sink. Throws Error when a tensor cannot be read, or when a
/// finite value of the file is too large for `dtype`.
HostTensors make_tensors(const Problem& problem, DType dtype, const Options& options,
                         const Progress& progress);

/// The K/V heads first .. first + count - 1 of all B H_kv, each with the query heads that share it:
/// of a problem that is too large for one host, a part. Throws Error likewise.
HostTensors make_heads(const Problem& problem, DType dtype, const Options& options, int64_t first,
                       int64_t count, const Progress& progress);

/// Some elements of a tensor.
struct Range {
    int64_t first, count;
};

/// Parts of Q (`i` is 0), K or V, one behind the other. Throws Error likewise.
std::vector<float> make_ranges(const Problem& problem, DType dtype, const Options& options,
                               size_t i, const std::vector<Range>& ranges,
                               const Progress& progress);

/// Random numbers, N(0, 1), as elements of `dtype`. All tensors, one after the other, are one
/// sequence of numbers; these are those from `first` on.
void fill_with_normal_numbers(std::vector<float>& values, int64_t first, DType dtype, uint64_t seed,
                              const Progress& progress);

/// Rounds to `type`, in place. Throws Error, naming the tensor, when a finite value is too large.
void convert(std::vector<float>& values, DType type, const std::string& tensor);

} // namespace flash
