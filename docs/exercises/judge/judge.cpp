// What judges the kernel of an exercise. Linked with a rung's main.cpp and a kernel, in place of
// the rung's program:
//   full HEAD_DIMS LONGEST [KIND]              the suite's full list up to that length;
//                                              KIND of input: "equal keys"
//   detect HEAD_DIMS LONGEST [KIND]            its list for detectors
//   count N_Q N_KV HEAD_DIM full|causal FILE   one problem, counted: FILE gets the counts as JSON
// A list prints a line of JSON per problem, and ends with exit code 1 at the first that is wrong.
// The environment chooses schedule and detectors (docs/simt.md).
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "reference/conformance/judge.hpp"

#ifdef FLASH_EXERCISE_SIMT // the kernel runs on the SIMT backend: it can be watched
#include "common/simt/machine/simt_options.hpp"
#include "common/simt/report/profile.hpp"
#else
#include "common/cpu/tiles.hpp"
#endif

namespace flash {
namespace {

using conformance::Case;

conformance::Scope scope_of(const Rung& rung, const std::string& head_dims, int64_t longest) {
    conformance::Scope scope{rung.dtypes,         {}, longest, false, rung.has_gradients,
                             rung.window_and_sink};
    std::istringstream stream(head_dims);
    for (std::string d; std::getline(stream, d, ',');) {
        scope.head_dims.push_back(std::stoi(d));
        if (!rung.head_dims_v.empty()) {
            scope.head_dims_v.push_back(rung.head_dim_v_of(scope.head_dims.back()));
        }
    }
    return scope;
}

/// The problem as the rung's own program would be asked for it.
std::string options_of(const Case& c) {
    const Problem& p = c.problem;
    std::ostringstream text;
    text << "--batch " << p.batch << " --heads " << p.heads << " --kv-heads " << p.kv_heads
         << " --q-len " << p.q_len << " --kv-len " << p.kv_len << " --head-dim " << p.head_dim
         << " --dtype " << dtype_name(c.dtype) << (p.causal ? " --causal" : "");
    if (p.window > 0) {
        text << " --window " << p.window;
    }
    text << (p.sink ? " --sink" : "");
    return text.str();
}

/// Judges each problem of a list until one is wrong, and says so in a line.
int judge(const Rung& rung, const std::vector<Case>& cases, int64_t longest,
          const std::string& kind) {
    for (Case c : cases) {
        Problem& p = c.problem;
        const bool wanted =
            kind.empty() ? c.kind != conformance::Kind::real_text : kind_name(c.kind) == kind;
        if (!wanted || std::max(p.q_len, p.kv_len) > longest) {
            continue;
        }
        // two of the suite's six heads, so that a learner waits seconds
        p.kv_heads = p.kv_heads == p.heads ? 2 : 1;
        p.heads = 2;
        nlohmann::ordered_json wrong = nlohmann::json::array();
        for (const auto& [of_fault, said] : conformance::findings(rung, conformance::prepare(c))) {
            wrong.push_back({{"kind", of_fault}, {"said", said}});
        }
        const nlohmann::ordered_json line = {{"problem", c.group()},
                                             {"detail", c.name()},
                                             {"options", options_of(c)},
                                             {"wrong", wrong}};
        std::printf("%s\n", line.dump().c_str());
        std::fflush(stdout);
        if (!wrong.empty()) {
            return 1;
        }
    }
    return 0;
}

void count(const Rung& rung, const Case& c, const std::string& file) {
    const conformance::Tensors t = conformance::make_inputs(c);
    const std::unique_ptr<AnyRun> run = rung.on(c.problem, t.view(c.dtype));
#ifdef FLASH_EXERCISE_SIMT
    simt::options().count = true;
    run->run();
    std::ofstream(file) << simt::to_json(simt::profile());
#else
    cpu::BytesRead& read = cpu::bytes_read;
    read.Q = read.K = read.V = 0;
    run->run();
    const nlohmann::json total = {{"Q", read.Q.load()},
                                  {"K", read.K.load()},
                                  {"V", read.V.load()},
                                  {"workspace", rung.workspace_bytes(c.problem, c.dtype)}};
    std::ofstream(file)
        << nlohmann::json{{"kernels", {{{"name", rung.name}, {"total", total}}}}}.dump() << '\n';
#endif
}

} // namespace

int rung_main(Rung& rung, int argc, char** argv) {
    const std::vector<std::string> arguments(argv + 1, argv + argc);
    const std::string verb = arguments.at(0);
    try {
        rung.backend().require_device();
        if (verb == "full" || verb == "detect") {
            const int64_t longest = std::stoi(arguments.at(2));
            const conformance::Scope scope = scope_of(rung, arguments.at(1), longest);
            const conformance::List list =
                verb == "full" ? conformance::full(scope) : conformance::detect(scope);
            return judge(rung, list.cases, longest, arguments.size() > 3 ? arguments[3] : "");
        }
        if (verb == "count") {
            const int d = std::stoi(arguments.at(3));
            const Problem problem{.q_len = std::stoi(arguments.at(1)),
                                  .kv_len = std::stoi(arguments.at(2)),
                                  .head_dim = d,
                                  .scale = default_scale(d),
                                  .causal = arguments.at(4) == "causal",
                                  .head_dim_v = rung.head_dim_v_of(d)};
            count(rung,
                  {conformance::Kind::normal, rung.dtypes.at(0), problem, 1, rung.has_gradients},
                  arguments.at(5));
            return 0;
        }
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 2;
    }
    std::fprintf(stderr, "there is no verb '%s'\n", verb.c_str());
    return 2;
}

} // namespace flash
