#include "common/harness/limits.hpp"

#include <algorithm>

#include "common/harness/host_memory.hpp"
#include "common/harness/text.hpp"

namespace flash {

void require_supported(const Rung& rung, const Problem& problem, DType type) {
    if (!rung.supports(type)) {
        std::string known;
        for (const DType supported : rung.dtypes()) {
            known += std::string(known.empty() ? "" : ", ") + dtype_name(supported);
        }
        throw Error(rung.name + " has no " + dtype_name(type) + " version; it supports " + known);
    }
    if (!rung.head_dims.empty() && std::ranges::count(rung.head_dims, problem.head_dim) == 0) {
        std::string known;
        for (const int64_t supported : rung.head_dims) {
            known += (known.empty() ? "" : ", ") + std::to_string(supported);
        }
        throw Error(rung.name + " has no version for head dim " + std::to_string(problem.head_dim) + "; it supports " +
                    known);
    }
}

void require_memory(const Rung& rung, const Problem& problem, DType type, size_t margin, double host_bytes) {
    // In double: no sum can overflow, and nobody minds the last byte.
    const auto size = [](int64_t elements) { return static_cast<double>(elements); };
    const double tensors = (2 * size(problem.q_size()) + 2 * size(problem.kv_size())) * dtype_bytes(type) +
                           size(problem.lse_size()) * sizeof(float) + 10 * static_cast<double>(margin);
    const double workspace = rung.workspace_bytes != nullptr ? size(rung.workspace_bytes(problem)) : 0;
    Backend& backend = rung.backend();
    const auto refuse_beyond = [&](double wanted, double available, const std::string& what) {
        if (wanted > available) {
            throw Error("not enough memory: this problem needs " + format_bytes(wanted) + " " + what + ", " +
                        format_bytes(available) + " is available" +
                        (workspace > tensors ? "\n" + rung.name + " alone allocates " + format_bytes(workspace) +
                                                   " beyond its inputs and outputs"
                                             : "") +
                        "\ntry a smaller --batch, --heads, --q-len or --kv-len");
        }
    };
    if (backend.name() == "cuda") {
        refuse_beyond(tensors + workspace, static_cast<double>(backend.available_bytes()), "on the GPU");
        refuse_beyond(host_bytes, static_cast<double>(available_host_memory()), "on the host");
    } else {
        refuse_beyond(tensors + workspace + host_bytes, static_cast<double>(backend.available_bytes()), "of memory");
    }
}

} // namespace flash
