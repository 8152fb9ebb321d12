// Keys and values that lie in pages, and a length of its own for each sequence: the cache of a
// server, whose sequences grow while others come and go. Nothing here knows a rung or a backend.
#pragma once

#include <cstdint>
#include <string>

#include "common/attention.hpp"

namespace flash {

/// A sequence's keys in a page are a multiple of this, so a step of a kernel lies in one page.
constexpr int64_t page_multiple = 16;

/// K and V of all sequences. All pointers are device memory, and the host reads none of it: one
/// captured CUDA graph serves a cache whose table and lengths change between its launches.
///
/// Key j of sequence b, in K/V head h, is a row of d numbers:
///
///     K + table[b][j / page] * page_stride + h * head_stride + j % page * row_stride
///
/// So pages (pages, H_kv, page, d) and (pages, page, H_kv, d) differ by their strides alone. The
/// caller answers for the table: nobody checks it. A length below 0 counts as 0, and one above N_kv
/// as N_kv, for which a row of the table must have room. What stands in the table behind a
/// sequence's length is never read, and neither are rows that no length covers.
template <class T> struct PagedKV {
    const T *K, *V;                               // at multiples of 16 bytes
    int64_t page_stride, head_stride, row_stride; // elements, multiples of 8
    int page;                                     // keys in a page, a multiple of page_multiple
    const int* table;                             // (B, most_pages): the page's number
    int most_pages;
    const int* lengths; // (B): keys of each sequence, 0 to N_kv. 0: O = 0, LSE = -inf
};

/// Throws Error unless pages can be this large.
inline void require_page(int64_t page) {
    if (page < page_multiple || page % page_multiple != 0) {
        throw Error("a page must hold a multiple of " + std::to_string(page_multiple) +
                    " keys, got " + std::to_string(page));
    }
}

} // namespace flash
