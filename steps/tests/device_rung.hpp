// A CUDA rung as tests register it.
#pragma once

#include "common/harness/backends/device_backend.hpp"
#include "common/harness/forward/forward.hpp"
#include "reference/check.hpp"

namespace flash::tests {

inline ForwardRung on_device(ForwardRung rung) {
    rung.backend = device_backend;
    rung.check = reference::check;
    return rung;
}

/// The same problem with the usual scale.
inline Problem scaled(Problem p) {
    p.scale = default_scale(p.head_dim);
    return p;
}

} // namespace flash::tests
