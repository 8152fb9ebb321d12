// One rung on one case of the suite: everything that must hold. The suite, and the tests that feed
// it wrong attentions, both judge through here.
#pragma once

#include <string>
#include <vector>

#include "reference/conformance/cases.hpp"
#include "reference/conformance/inputs.hpp"
#include "reference/expectation.hpp"
#include "reference/gradients.hpp"

namespace flash::conformance {

/// A case with its inputs and what they should give; any number of rungs can be judged by it.
struct Prepared {
    Case c;
    Tensors tensors;
    reference::Expectation expected;
    reference::ExpectedGradients gradients; // of a backward case, in place of `expected`
};

Prepared prepare(const Case& c);

/// Bytes before and after each tensor that hold NaN and canaries. They must reach as far as a
/// kernel may stray: more rows than any tile has.
size_t margin_of(const Case& c);

/// Runs the rung on the case, outputs poisoned and canaries around every tensor, and lists what is
/// wrong:
///   - O or LSE outside the rule's bounds (reference/check.hpp), or dQ, dK or dV
///     (reference/gradients.hpp);
///   - something written outside the outputs;
///   - a row whose inputs hold NaN or infinity that came out finite; of gradients, all rows of its
///     K/V head;
///   - one key, and O further from V than one unit in the last place;
///   - other bits in a repeated run; in dQ of a rung that says unordered_dQ: a value outside its
///     bound;
///   - an exception.
/// A rung that overflows (naive_attention) must give a wrong result where the inputs make it
/// overflow.
/// A rung that has another way to compute the same (Rung::other_way) is tried in both.
std::vector<std::string> judge(const Rung& rung, const Prepared& prepared);

/// The same for programs that grade. `kind`: "O", "LSE", "O and LSE", "gradient" or "NaN", where
/// values are wrong; "damage"; "finite"; "one key"; "other bits"; "overflow"; of an exception the
/// name of a kernel's fault ("race"), else "exception".
struct Finding {
    std::string kind, said;
};
std::vector<Finding> findings(const Rung& rung, const Prepared& prepared);

} // namespace flash::conformance
