#include "common/harness/program/verdict.hpp"

namespace flash {

void Verdict::add(const Verdict& part, const std::string& where) {
    const bool first = rows == 0 && message.empty();
    const auto larger = [](double error, double bound, double other, double other_bound) {
        return !(error * other_bound <= other * bound); // NaN is
    };
    if (first || larger(part.o_error, part.o_bound, o_error, o_bound)) {
        o_error = part.o_error;
        o_bound = part.o_bound;
    }
    if (first || larger(part.lse_error, part.lse_bound, lse_error, lse_bound)) {
        lse_error = part.lse_error;
        lse_bound = part.lse_bound;
    }
    const auto add_gradient = [&](GradientError& to, const GradientError& from) {
        if (first || larger(from.error, from.bound, to.error, to.bound)) {
            to = from;
        }
    };
    add_gradient(d_q, part.d_q);
    add_gradient(d_k, part.d_k);
    add_gradient(d_v, part.d_v);
    if (message.empty() && !part.ok) {
        message = where + part.message;
    }
    says_little = says_little || part.says_little;
    ok = (first || ok) && part.ok;
    rows += part.rows;
}

} // namespace flash
