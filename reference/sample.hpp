// Which rows of a large problem are compared when comparing all of them would take minutes.
#pragma once

#include <cstdint>
#include <vector>

#include "common/attention.hpp"

namespace flash::reference {

/// One flag per row of LSE, (B, H, N_q): true for the rows that a sample of about `rows_of_head`
/// rows of each head leaves out; empty when that is no row. The sample is made of whole row tiles:
/// of each head the first and the last one, where the edges of masks and tensors are, and at least
/// one other. The others are at the same distance from each other, and shifted from head to head,
/// so that many heads together cover every part of the sequence.
std::vector<bool> rows_left_out(const Problem& problem, int64_t rows_of_head);

} // namespace flash::reference
