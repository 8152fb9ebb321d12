#include <cstdio>
#include <random>

#include "common/harness/device_run.hpp"

namespace flash {

// The first version: one fixed problem, no options yet.
int rung_main(const Rung& rung, int argc, char** argv) {
    try {
        if (argc > 1) {
            throw Error(std::string("unknown argument ") + argv[1]);
        }
        Problem problem{.heads = 4, .kv_heads = 4, .q_len = 256, .kv_len = 256};
        std::mt19937_64 generator(0);
        std::normal_distribution<float> normal;
        std::vector<float> q(static_cast<size_t>(problem.q_size())), k(static_cast<size_t>(problem.kv_size())), v(k);
        const DType type = rung.dtypes().at(0);
        for (auto* tensor : {&q, &k, &v}) {
            for (float& x : *tensor) {
                x = round_to(type, normal(generator));
            }
        }
        const Inputs inputs{type, q, k, v};
        DeviceRun run(rung, problem, inputs);
        run.run();
        const std::vector<float> o = run.o(), lse = run.lse();
        const Verdict verdict = rung.check(problem, inputs, {o, lse}, {});
        std::printf("%s %s\n", rung.name.c_str(), verdict.ok ? "passed" : "FAILED");
        return verdict.ok ? 0 : 1;
    } catch (const Error& error) {
        std::fprintf(stderr, "%s: %s\n", rung.name.c_str(), error.what());
        return 2;
    }
}

} // namespace flash
