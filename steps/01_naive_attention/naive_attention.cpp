// naive_attention: attention as it is defined. The matrices S, P and O, one after the other.
//
// The idea: none. The first product, the softmax and the second product are five lines of Eigen.
// Look at: S and P. Each has N_q x N_kv floats, and each is written to memory and read again.
// Left out on purpose: the row maximum. Above x = 88.72, exp(x) exceeds the largest float. The row
// sum is then infinite, and inf / inf is NaN.
#include "steps/01_naive_attention/naive_attention.hpp"

#include <omp.h>

#include <vector>

#include "common/cpu/head.hpp"
#include "common/cpu/mask.hpp"
#include "common/cpu/parallel.hpp"

namespace naive_attention {

using namespace flash::cpu;

void attention(const flash::Problem& p, const float* Q, const float* K, const float* V, float* O,
               float* LSE) {
    const int threads = omp_get_max_threads();
    // of one head; each thread that gets a head has its own
    std::vector<Matrix> S_of(threads), P_of(threads);
    parallel_for(p.batch * p.heads, [&](int64_t bh) {
        Matrix &S = S_of[omp_get_thread_num()], &P = P_of[omp_get_thread_num()];
        // allocates for the thread's first head, and does nothing for the next ones
        S.resize(p.q_len, p.kv_len);
        P.resize(p.q_len, p.kv_len);
        Head h = head(p, bh, Q, K, V, O, LSE);
        S.noalias() = p.scale * h.Q * h.K.transpose();
        mask(S, p, 0, 0);
        for (int64_t i = 0; i < p.q_len; ++i) {
            P.row(i) = exponential(S.row(i).array());
            const float l = P.row(i).sum();
            P.row(i) /= l == 0 ? 1 : l; // l == 0: the query sees no key, its P is already 0
            h.LSE(i) = std::log(l);     // log(0) = -inf
        }
        h.O.noalias() = P * h.V;
    });
}

int64_t workspace_bytes(const flash::Problem& p) {
    const auto threads =
        static_cast<double>(std::min<int64_t>(omp_get_max_threads(), p.batch * p.heads));
    const double matrix =
        sizeof(float) * static_cast<double>(p.q_len) * static_cast<double>(p.kv_len);
    // huge problems must not wrap around
    return static_cast<int64_t>(std::min(threads * 2 * matrix, 0x1p62));
}

} // namespace naive_attention
