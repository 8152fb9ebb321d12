#include "common/harness/program/limits.hpp"

#include <algorithm>

#include "common/harness/backends/host_memory.hpp"
#include "common/harness/files/text.hpp"

namespace flash {

void require_supported(const Rung& rung, const Problem& problem, DType type) {
    if (!rung.supports(type)) {
        std::string known;
        for (const DType supported : rung.dtypes) {
            known += std::string(known.empty() ? "" : ", ") + dtype_name(supported);
        }
        throw Error(rung.name + " has no " + dtype_name(type) + " version; it supports " + known);
    }
    if (!rung.head_dims.empty() && std::ranges::count(rung.head_dims, problem.head_dim) == 0) {
        std::string known;
        for (const int supported : rung.head_dims) {
            known += (known.empty() ? "" : ", ") + std::to_string(supported);
        }
        throw Error(rung.name + " has no version for head dim " + std::to_string(problem.head_dim) +
                    "; it supports " + known);
    }
    if ((problem.window > 0 || problem.sink) && !rung.window_and_sink) {
        throw Error(rung.name + " knows no " + (problem.window > 0 ? "window" : "sink") +
                    "; the rung " + (rung.has_gradients ? "backward_window" : "window") + " does");
    }
    if (problem.two_head_dims() && rung.head_dims_v.empty()) {
        throw Error(rung.name + " knows no head dim of V's own, such as " +
                    std::to_string(problem.v_dim()) + " beside " +
                    std::to_string(problem.head_dim) + "; the rung two_head_dims does");
    }
    if (const int64_t d_v = rung.head_dim_v_of(problem.head_dim); problem.v_dim() != d_v) {
        throw Error(rung.name + " has no version for head dim " + std::to_string(problem.v_dim()) +
                    " of V; beside " + std::to_string(problem.head_dim) + " it supports " +
                    std::to_string(d_v));
    }
}

void require_memory(const Call& call, size_t margin, double host_bytes) {
    // In double: no sum can overflow, and nobody minds the last byte.
    double tensors = 0;
    for (const auto* specs : {&call.inputs, &call.outputs}) {
        for (const TensorSpec& spec : *specs) {
            tensors += static_cast<double>(spec.bytes()) + 2 * static_cast<double>(margin);
        }
    }
    const auto require = [](double wanted, size_t available, const std::string& where,
                            const std::string& why) {
        if (wanted > static_cast<double>(available)) {
            throw Error("not enough memory" + where + ": this problem needs " +
                        format_bytes(wanted) + why + ", " +
                        format_bytes(static_cast<double>(available)) +
                        " is available\ntry a smaller --batch, --heads, --q-len or --kv-len");
        }
    };
    Backend& backend = *call.backend;
    const size_t available = backend.available_bytes();
    const std::string where = backend.uses_host_memory() ? "" : " on the device";
    double wanted = tensors;
    if (backend.uses_host_memory()) {
        wanted += host_bytes;
    } else {
        require(host_bytes, available_host_memory(), " on the host", "");
    }
    // The tensors first: when they fit, the rung can compute its workspace without an overflow.
    require(wanted, available, where, "");
    if (call.workspace_bytes) {
        const auto workspace = static_cast<double>(call.workspace_bytes());
        require(wanted + workspace, available, where,
                " (" + format_bytes(workspace) + " of it is workspace of " + call.rung + ")");
    }
}

} // namespace flash
