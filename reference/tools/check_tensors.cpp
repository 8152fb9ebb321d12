// Holds tensors to the suite's rule, whoever computed them:
//   check_tensors INPUT.safetensors RESULT.safetensors full|causal ROWS
// INPUT has q, k, v, and do for gradients; RESULT has o and perhaps lse, or dq, dk and dv. Some
// ROWS of each head are compared, all with 0; the scale is 1/sqrt(d). Prints a line for each of
// them: its name, its error and its bound. Exit code: 0, or 2 and what is wrong with the files.
#include <cstdio>
#include <string>
#include <vector>

#include "common/harness/files/safetensors.hpp"
#include "reference/check.hpp"
#include "reference/gradients.hpp"

namespace {

void check(flash::SafetensorsReader input, flash::SafetensorsReader result, bool causal,
           int64_t rows) {
    using namespace flash;
    const std::vector<int64_t> q = input.info("q").shape, k = input.info("k").shape;
    if (q.size() != 4 || k.size() != 4) {
        throw Error("q and k must have the shape (B, H, N, d)");
    }
    const Problem p{.batch = q[0],
                    .heads = q[1],
                    .kv_heads = k[1],
                    .q_len = q[2],
                    .kv_len = k[2],
                    .head_dim = q[3],
                    .scale = default_scale(q[3]),
                    .causal = causal};
    const std::string& type = input.info("q").dtype;
    const std::vector<float> Q = input.read("q"), K = input.read("k"), V = input.read("v");
    Inputs inputs{type == "F32" ? DType::fp32 : type == "F16" ? DType::fp16 : DType::bf16, Q, K, V};
    const auto print = [](const char* name, double error, double bound) {
        std::printf("%s %.9g %.9g\n", name, error, bound);
    };
    if (result.tensors().contains("dq")) {
        const std::vector<float> dO = input.read("do"), dQ = result.read("dq"),
                                 dK = result.read("dk"), dV = result.read("dv");
        inputs.d_o = dO;
        const ForwardResult forward = reference::forward(p, inputs);
        inputs.o = forward.o;
        inputs.lse = forward.lse;
        const Outputs outputs{.d_q = dQ, .d_k = dK, .d_v = dV};
        const Verdict found = reference::check_gradients(p, inputs, outputs, {}, rows);
        print("dq", found.d_q.error, found.d_q.bound);
        print("dk", found.d_k.error, found.d_k.bound);
        print("dv", found.d_v.error, found.d_v.bound);
        return;
    }
    const bool has_lse = result.tensors().contains("lse");
    const std::vector<float> O = result.read("o"),
                             LSE = has_lse ? result.read("lse")
                                           : std::vector<float>(static_cast<size_t>(p.lse_size()));
    const Verdict found = reference::check(p, inputs, {.o = O, .lse = LSE}, {}, rows);
    print("o", found.o_error, found.o_bound);
    if (has_lse) {
        print("lse", found.lse_error, found.lse_bound);
    }
}

} // namespace

int main(int argc, char** argv) {
    try {
        if (argc != 5) {
            throw flash::Error("check_tensors INPUT RESULT full|causal ROWS");
        }
        check(flash::SafetensorsReader(argv[1]), flash::SafetensorsReader(argv[2]),
              std::string(argv[3]) == "causal", std::stoll(argv[4]));
    } catch (const std::exception& error) {
        std::fprintf(stderr, "check_tensors: %s\n", error.what());
        return 2;
    }
    return 0;
}
