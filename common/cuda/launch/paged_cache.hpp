// What launchers of kernels that read K and V from pages do before they launch one.
#pragma once

#include <cstdint>
#include <string>

#include "common/attention.hpp"
#include "common/cuda/launch/sizes.hpp"
#include "common/paged_kv.hpp"

namespace flash {

/// Throws Error unless kernels that copy 16 bytes at a time can read the cache, of sequences that
/// have up to `kv_len` keys.
template <class T> void require_cache(const PagedKV<T>& cache, int64_t kv_len) {
    require_page(cache.page);
    // an array, because nvcc 13.0 fails where the loop is over a list in braces
    const int64_t strides[] = {cache.page_stride, cache.head_stride, cache.row_stride};
    for (const int64_t stride : strides) {
        if (stride % 8 != 0) { // elements
            throw Error("the strides of a cache must be multiples of 8 elements, got " +
                        std::to_string(stride));
        }
    }
    const int64_t room = int64_t{cache.most_pages} * cache.page;
    if (cache.table != nullptr && kv_len > room) {
        throw Error("a sequence may have " + std::to_string(kv_len) +
                    " keys, but its row of the table has room for " + std::to_string(room));
    }
}

/// K and V that are tensors, as a cache: one page for each sequence, no table, which would say 0,
/// 1, 2, ..., and no lengths.
template <class T> PagedKV<T> one_page_each(const Problem& p, const T* K, const T* V) {
    return {.K = K,
            .V = V,
            .page_stride = p.kv_heads * p.kv_len * p.head_dim,
            .head_stride = p.kv_len * p.head_dim,
            .row_stride = p.head_dim,
            .page = as_int(ceil_div(p.kv_len, page_multiple) * page_multiple, "kv-len"),
            .table = nullptr,
            .most_pages = 1,
            .lengths = nullptr};
}

} // namespace flash
