// Which problems a rung is tried on.
#pragma once

#include <string>
#include <vector>

#include "common/harness/program/rung.hpp"

namespace flash::conformance {

/// What Q, K and V hold. All values are representable in the case's type.
enum class Kind {
    // every score lies between -145 and -115, so that exp of a padding key's score, 0 - LSE,
    // overflows
    normal,          // N(0,1)
    outliers,        // N(0,1), and N(0, sd 10) on top of one value in a thousand
    one_sign,        // N(0,1), and V N(4,1): nothing cancels, so what accumulation loses adds up
    equal_keys,      // all keys of a head are equal, so O is the mean of the visible V
    logits_1e4,      // the largest |score| is 1e4
    logits_6e4,      // 6e4, close to the end of fp16
    logits_negative, // every score lies between -6e4 and -5e4
    nan_row,         // NaN in one row of Q
    inf_row,         // infinity in one row of Q, such that a score of that row is +inf
    real_text,       // one layer of a transformer on a page of a book: reference/data
    nan_head,        // K and V of one K/V head are NaN; the heads beside it must not notice
    spread_16,       // N(0,1), with Q so large that the scores have the standard deviation 16
    spread_24,       // 24
    rises_50,   // on top of N(0,1), the scores of a row rise steadily along the keys, by 50 in all
    rises_200,  // by 200
    rises_2000, // by 2000
    towering_first,  // the score of one key is 200 above all others: of the first key
    towering_middle, // of the one in the middle
    towering_last,   // of the last
    negative_scores,
    huge_equal,    // Q and K hold one large number, so all scores are one, of 1e8 to 1e37
    large_scale,   // N(0,1), and a scale of 1e7 and more
    tiny_scale,    // N(0,1), and a scale of 1e-30 and less: all weights are equal
    large_values,  // V is one large number, 65504 in fp16, with a sign for each column
    small_values,  // N(0,1), and V of 1e-30, or 1e-4 in fp16
    extreme_sinks, // N(0,1), and sinks, head by head: the highest score of the middle row, which
                   // weighs as much as a key; -inf; 1e30; -1e30; 80 more, and 80 less than that
                   // score
};

std::string kind_name(Kind kind);

struct Case {
    Kind kind = Kind::normal;
    DType dtype = DType::fp32;
    Problem problem;
    int runs = 1; // more than one: all must give the same bits
    bool backward = false;
    uint64_t seed = 0; // of its inputs; 0: the same numbers everywhere

    std::string group() const; // "normal 113x203, window 65, sink": kind, N_q x N_kv, what else
    // "fp32 d=64 causal B=1 H=6/2 scale=0.3": all the rest; d=192/128 where V has its own
    std::string name() const;
};

/// What a rung can do, and how much its backend can bear.
struct Scope {
    std::vector<DType> dtypes;
    std::vector<int64_t> head_dims;
    int64_t longest = 2113; // larger N_q and N_kv are left out, but for a few cases with many keys
    bool many_rows = false; // with many keys, as many queries; and many blocks
    bool backward = false;  // the gradients
    bool window_and_sink = false;          // problems with a window, a sink, or both, too
    std::vector<int64_t> head_dims_v = {}; // V's beside each of head_dims; empty: the same
};

/// Every head dim of interest when the rung takes any; N <= 512 on SIMT, and many rows on a GPU
/// alone. Backward rungs do more than twice the work, and get N <= 217 on SIMT.
Scope scope_of(const Rung& rung);

struct List {
    std::vector<Case> cases;
    // what the design names and this list does not hold, line by line
    std::vector<std::string> left_out;
};

/// Every shape with every head dim, mask, head grouping and scale, thinned where stated; every
/// other kind of input on some of them.
List full(const Scope& scope);

/// For runs with race and bounds detection: N <= 200, two heads. What costs little comes first. Of
/// several types and head dims each case is for one type.
List detect(const Scope& scope);

/// A part of those, for further schedules: what a kernel computes, and from which inputs, does not
/// depend on the order of its threads, and the detector finds a race in whichever order it meets.
/// So here are the ways of threads through a kernel alone: one tile and several, cut short, rows
/// without a key, maxima that rise. Types take turns, of a single head dim, too.
List schedules(const Scope& scope);

} // namespace flash::conformance
