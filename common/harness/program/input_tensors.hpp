// The problem and its tensors, from the options: random, or out of a file.
#pragma once

#include <vector>

#include "common/harness/program/command_line.hpp"
#include "common/harness/program/verdict.hpp"
#include "common/ranks.hpp"

namespace flash {

/// Q, K and V, every value exactly representable in `dtype`.
struct HostTensors {
    DType dtype = DType::fp32;
    std::vector<float> q, k, v;
    // for a backward rung; O and LSE are empty when the file holds none
    std::vector<float> o, lse, d_o;

    Inputs view() const { return {dtype, q, k, v, o, lse, d_o}; }
};

/// The problem that the options, and the header of the file they name, describe. Reads no tensor
/// yet, so that a problem that is too large can be refused before. Throws Error when shapes
/// disagree or a value makes no sense.
Problem make_problem(const Rung& rung, const Options& options);

/// How many keys each sequence has in pages. Throws Error when the options do not fit the problem.
std::vector<int64_t> make_lengths(const Problem& problem, const Options& options);

/// Keys in a page, with --page or without.
int page_of(const Options& options);

/// The K/V heads first .. first + count - 1 of all B H_kv, each with the query heads that share it:
/// of a problem that is too large for one host, a part. Throws Error as make_tensors does.
HostTensors make_heads(const Problem& problem, DType dtype, const Options& options, int64_t first,
                       int64_t count, const Progress& progress);

/// What a rank of a ring holds of Q (`i` is 0), K or V, as problem_of(problem, shard) says. Throws
/// Error as make_tensors does.
std::vector<float> make_shard(const Problem& problem, DType dtype, const Options& options,
                              const Shard& shard, size_t i, const Progress& progress);

/// For a backward rung dO is made as well, random where the file holds none. Throws Error when a
/// tensor cannot be read, or when a finite value of the file is too large for `dtype`.
HostTensors make_tensors(const Rung& rung, const Problem& problem, DType dtype,
                         const Options& options, const Progress& progress);

} // namespace flash
