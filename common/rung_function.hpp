// A rung's function, whether it takes a workspace or not.
#pragma once

#include <cstddef>

#include "common/attention.hpp"
#include "common/packed_sequences.hpp"

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

/// O and LSE from Q, K and V; the pointers are memory of the rung's backend. A rung that knows a
/// sink takes it behind V: (H), in fp32, or null if the problem has none.
/// The problem has been validated; every element of O and LSE is written, nothing else but the
/// workspace is.
template <class T> class Forward {
    using Plain =
        RungFunction<const T* /*Q*/, const T* /*K*/, const T* /*V*/, T* /*O*/, float* /*LSE*/>;
    using WithSink = RungFunction<const T* /*Q*/, const T* /*K*/, const T* /*V*/,
                                  const float* /*sink*/, T* /*O*/, float* /*LSE*/>;

  public:
    Forward(std::nullptr_t = nullptr) {}
    Forward(void (*function)(const Problem&, const T*, const T*, const T*, T*, float*))
        : plain_(function) {}
    Forward(void (*function)(const Problem&, const T*, const T*, const T*, T*, float*,
                             void* workspace))
        : plain_(function) {}
    Forward(void (*function)(const Problem&, const T*, const T*, const T*, const float*, T*,
                             float*))
        : with_sink_(function) {}
    Forward(void (*function)(const Problem&, const T*, const T*, const T*, const float*, T*, float*,
                             void* workspace))
        : with_sink_(function) {}

    explicit operator bool() const { return plain_ || takes_sink(); }
    bool takes_sink() const { return bool(with_sink_); }
    bool takes_workspace() const {
        return plain_.takes_workspace() || with_sink_.takes_workspace();
    }

    void operator()(const Problem& p, const T* Q, const T* K, const T* V, const float* sink, T* O,
                    float* LSE, void* workspace) const {
        takes_sink() ? with_sink_(p, Q, K, V, sink, O, LSE, workspace)
                     : plain_(p, Q, K, V, O, LSE, workspace);
    }
    void operator()(const Problem& p, const T* Q, const T* K, const T* V, T* O, float* LSE,
                    void* workspace) const {
        (*this)(p, Q, K, V, nullptr, O, LSE, workspace);
    }

  private:
    Plain plain_;
    WithSink with_sink_;
};

/// The same from lines of tokens (common/packed_sequences.hpp); p.q_len and p.kv_len are bounds of
/// the lengths.
template <class T>
using ForwardPacked = RungFunction<const PackedSequences&, const T* /*Q*/, const T* /*K*/,
                                   const T* /*V*/, T* /*O*/, float* /*LSE*/>;

/// dQ, dK and dV from Q, K, V, O, LSE and dO, likewise. A rung that knows a sink takes it behind V,
/// and gives dsink behind dV: both are (H), in fp32, or null if the problem has none.
template <class T> class Backward {
    using Plain =
        RungFunction<const T* /*Q*/, const T* /*K*/, const T* /*V*/, const T* /*O*/,
                     const float* /*LSE*/, const T* /*dO*/, T* /*dQ*/, T* /*dK*/, T* /*dV*/>;
    using WithSink =
        RungFunction<const T* /*Q*/, const T* /*K*/, const T* /*V*/, const float* /*sink*/,
                     const T* /*O*/, const float* /*LSE*/, const T* /*dO*/, T* /*dQ*/, T* /*dK*/,
                     T* /*dV*/, float* /*dsink*/>;

  public:
    Backward(std::nullptr_t = nullptr) {}
    Backward(void (*function)(const Problem&, const T*, const T*, const T*, const T*, const float*,
                              const T*, T*, T*, T*))
        : plain_(function) {}
    Backward(void (*function)(const Problem&, const T*, const T*, const T*, const T*, const float*,
                              const T*, T*, T*, T*, void* workspace))
        : plain_(function) {}
    Backward(void (*function)(const Problem&, const T*, const T*, const T*, const float*, const T*,
                              const float*, const T*, T*, T*, T*, float*))
        : with_sink_(function) {}
    Backward(void (*function)(const Problem&, const T*, const T*, const T*, const float*, const T*,
                              const float*, const T*, T*, T*, T*, float*, void* workspace))
        : with_sink_(function) {}

    explicit operator bool() const { return plain_ || takes_sink(); }
    bool takes_sink() const { return bool(with_sink_); }
    bool takes_workspace() const {
        return plain_.takes_workspace() || with_sink_.takes_workspace();
    }

    void operator()(const Problem& p, const T* Q, const T* K, const T* V, const float* sink,
                    const T* O, const float* LSE, const T* dO, T* dQ, T* dK, T* dV, float* dsink,
                    void* workspace) const {
        takes_sink() ? with_sink_(p, Q, K, V, sink, O, LSE, dO, dQ, dK, dV, dsink, workspace)
                     : plain_(p, Q, K, V, O, LSE, dO, dQ, dK, dV, workspace);
    }
    void operator()(const Problem& p, const T* Q, const T* K, const T* V, const T* O,
                    const float* LSE, const T* dO, T* dQ, T* dK, T* dV, void* workspace) const {
        (*this)(p, Q, K, V, nullptr, O, LSE, dO, dQ, dK, dV, nullptr, workspace);
    }

  private:
    Plain plain_;
    WithSink with_sink_;
};

} // namespace flash
