// The place in the source from which a function was called, for functions that are made of several
// wrappers and pass it on to them. The SIMT backend names it when it finds a fault. On a GPU it is
// empty.
#pragma once

#ifdef __NVCC__

namespace flash {
struct SourceLocation {
    static constexpr __host__ __device__ SourceLocation here() { return {}; }
};
} // namespace flash

#else
#include "common/simt/machine/source_location.hpp"
namespace flash {
using simt::SourceLocation;
}
#endif
