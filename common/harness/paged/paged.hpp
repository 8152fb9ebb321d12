// A forward rung that can also read K and V from pages.
#pragma once

#include "common/harness/forward/forward.hpp"
#include "common/paged_kv.hpp"

namespace flash {

/// O and LSE from Q, and from K and V in pages; p.kv_len is the most keys that a sequence may have.
template <class T>
using ForwardPaged = void (*)(const Problem&, const PagedKV<T>&, const T* /*Q*/, T* /*O*/,
                              float* /*LSE*/, void* workspace);

/// As its main.cpp describes it.
struct PagedRung {
    ForwardRung forward; // K and V as tensors
    ForwardPaged<Half> fp16 = nullptr;
    ForwardPaged<Bfloat16> bf16 = nullptr;
};

/// Lives as long as the program.
Rung& rung_of(const PagedRung& rung);

inline int rung_main(const PagedRung& rung, int argc, char** argv) {
    return rung_main(rung_of(rung), argc, argv);
}

} // namespace flash
