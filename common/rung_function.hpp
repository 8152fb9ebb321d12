// A rung's function, whether it takes a workspace or not.
#pragma once

#include <cstddef>

#include "common/attention.hpp"

namespace flash {

/// A function of a rung that has these parameters; one that needs memory of its caller takes it
/// behind them. An empty one stands for a type that the rung does not support.
template <class... Parameters> class RungFunction {
  public:
    RungFunction(std::nullptr_t = nullptr) {}
    RungFunction(void (*function)(const Problem&, Parameters...)) : without_(function) {}
    RungFunction(void (*function)(const Problem&, Parameters..., void* workspace))
        : with_(function) {}

    explicit operator bool() const { return with_ != nullptr || without_ != nullptr; }
    bool takes_workspace() const { return with_ != nullptr; }

    void operator()(const Problem& p, Parameters... parameters, void* workspace) const {
        with_ != nullptr ? with_(p, parameters..., workspace) : without_(p, parameters...);
    }

  private:
    void (*without_)(const Problem&, Parameters...) = nullptr;
    void (*with_)(const Problem&, Parameters..., void* workspace) = nullptr;
};

/// O and LSE from Q, K and V; the pointers are memory of the rung's backend.
/// The problem has been validated; every element of O and LSE is written, nothing else but the
/// workspace is.
template <class T>
using Forward =
    RungFunction<const T* /*Q*/, const T* /*K*/, const T* /*V*/, T* /*O*/, float* /*LSE*/>;

/// dQ, dK and dV from Q, K, V, O, LSE and dO, likewise.
template <class T>
using Backward =
    RungFunction<const T* /*Q*/, const T* /*K*/, const T* /*V*/, const T* /*O*/,
                 const float* /*LSE*/, const T* /*dO*/, T* /*dQ*/, T* /*dK*/, T* /*dV*/>;

} // namespace flash
