// Holds tensors to the suite's rule, whoever computed them:
//   check_tensors INPUT.safetensors full|causal|W ROWS RESULT.safetensors ...
// W is a window of so many keys. INPUT has q, k, v, and for gradients do, o and lse, those that the
// backward passes were given; each RESULT has o and perhaps lse, or dq, dk and dv. Of O some ROWS
// of each head are compared, all with 0; the scale is 1/sqrt(d). If INPUT has q_scale, then q, k
// and v are what numbers in e4m3 stand for, and O is in bf16. Prints a line for each of them: the
// number of the RESULT from 0 on, its name, its error and its bound. What gradients are compared
// with takes long, and is computed once. Exit code: 0, or 2 and what is wrong with the files.
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "common/harness/files/safetensors.hpp"
#include "common/harness/program/verdict.hpp"
#include "reference/check.hpp"
#include "reference/gradients.hpp"

namespace {

void print(size_t result, const char* name, double error, double bound) {
    std::printf("%zu %s %.9g %.9g\n", result, name, error, bound);
}

void check(flash::SafetensorsReader input, std::vector<flash::SafetensorsReader> results,
           const std::string& mask, int64_t rows) {
    using namespace flash;
    const std::vector<int64_t> q = input.info("q").shape, k = input.info("k").shape,
                               v = input.info("v").shape;
    if (q.size() != 4 || k.size() != 4 || v.size() != 4) {
        throw Error("q, k and v must have the shape (B, H, N, d)");
    }
    const Problem p{.batch = q[0],
                    .heads = q[1],
                    .kv_heads = k[1],
                    .q_len = q[2],
                    .kv_len = k[2],
                    .head_dim = q[3],
                    .scale = default_scale(q[3]),
                    .causal = mask != "full",
                    .window = mask == "full" || mask == "causal" ? 0 : std::stoll(mask),
                    .head_dim_v = v[3] == q[3] ? 0 : v[3]};
    const std::string& type = input.info("q").dtype;
    const std::vector<float> Q = input.read("q"), K = input.read("k"), V = input.read("v");
    Inputs inputs{type == "F32" ? DType::fp32 : type == "F16" ? DType::fp16 : DType::bf16, Q, K, V};
    if (input.tensors().contains("q_scale")) {
        inputs.dtype = DType::e4m3;
    }
    if (results[0].tensors().contains("dq")) {
        const std::vector<float> O = input.read("o"), LSE = input.read("lse"),
                                 dO = input.read("do");
        inputs.o = O;
        inputs.lse = LSE;
        inputs.d_o = dO;
        if (const std::string wrong = reference::wrong_forward(p, inputs, rows); !wrong.empty()) {
            throw Error(wrong);
        }
        const reference::ExpectedGradients expected = reference::expect_gradients(p, inputs);
        for (size_t n = 0; n < results.size(); ++n) {
            const std::vector<float> dQ = results[n].read("dq"), dK = results[n].read("dk"),
                                     dV = results[n].read("dv");
            const Verdict found =
                reference::compare_gradients(p, expected, {.d_q = dQ, .d_k = dK, .d_v = dV});
            print(n, "dq", found.d_q.error, found.d_q.bound);
            print(n, "dk", found.d_k.error, found.d_k.bound);
            print(n, "dv", found.d_v.error, found.d_v.bound);
        }
        return;
    }
    for (size_t n = 0; n < results.size(); ++n) {
        const bool has_lse = results[n].tensors().contains("lse");
        const std::vector<float> O = results[n].read("o"),
                                 LSE = has_lse
                                           ? results[n].read("lse")
                                           : std::vector<float>(static_cast<size_t>(p.lse_size()));
        // The suite knows which rungs sum up P before it is rounded. Here nobody has to.
        const Outputs outputs{.o = O, .lse = LSE, .rounded_sums = true};
        const Verdict found = reference::check(p, inputs, outputs, {}, rows);
        print(n, "o", found.o_error, found.o_bound);
        if (has_lse) {
            print(n, "lse", found.lse_error, found.lse_bound);
        }
    }
}

} // namespace

int main(int argc, char** argv) {
    try {
        if (argc < 5) {
            throw flash::Error("check_tensors INPUT full|causal|W ROWS RESULT ...");
        }
        std::vector<flash::SafetensorsReader> results;
        for (int n = 4; n < argc; ++n) {
            results.emplace_back(argv[n]);
        }
        check(flash::SafetensorsReader(argv[1]), std::move(results), argv[2], std::stoll(argv[3]));
    } catch (const std::exception& error) {
        std::fprintf(stderr, "check_tensors: %s\n", error.what());
        return 2;
    }
    return 0;
}
