#include "common/harness/paged/paged_cache.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <utility>

#include "common/harness/program/random.hpp"
#include "common/paged_kv.hpp"

namespace flash {
namespace {

constexpr int no_page = 0x7fffffff; // in the table, behind a sequence's length
constexpr int unused_pages = 3;

int pages_of(int64_t length, int page) { return static_cast<int>((length + page - 1) / page); }

} // namespace

int64_t PagedCache::offset(int64_t sequence, int64_t kv_head, int64_t key) const {
    const int64_t number = table[static_cast<size_t>(sequence * most_pages() + key / page)];
    return number * page_stride() + kv_head * head_stride() + key % page * row_stride();
}

Problem PagedCache::of_sequence(int64_t sequence) const {
    Problem p = problem;
    p.batch = 1;
    p.kv_len = lengths[static_cast<size_t>(sequence)];
    return p;
}

std::vector<float> PagedCache::of_sequence(int64_t sequence,
                                           const std::vector<float>& pages) const {
    const Problem p = of_sequence(sequence);
    std::vector<float> values(static_cast<size_t>(p.kv_size()));
    auto to = values.begin();
    for (int64_t h = 0; h < p.kv_heads; ++h) {
        for (int64_t j = 0; j < p.kv_len; ++j) {
            to = std::copy_n(pages.begin() + offset(sequence, h, j), p.head_dim, to);
        }
    }
    return values;
}

void require_table(const PagedCache& cache) {
    const auto columns = static_cast<size_t>(cache.most_pages());
    for (size_t b = 0; b < cache.lengths.size(); ++b) {
        const auto used = static_cast<size_t>(pages_of(cache.lengths[b], cache.page));
        for (size_t n = 0; n < used; ++n) {
            const int number = cache.table[b * columns + n];
            if (number < 0 || number >= cache.pages()) {
                throw Error("the table says page " + std::to_string(number) + " for page " +
                            std::to_string(n) + " of sequence " + std::to_string(b) +
                            ", but the pages are 0 to " + std::to_string(cache.pages() - 1));
            }
        }
    }
}

void require_lengths(const Problem& p, int64_t page, const std::vector<int64_t>& lengths) {
    require_page(page);
    constexpr int64_t usual = 256;
    if (page > std::max(usual, p.kv_len + page_multiple)) { // it would be mostly empty
        throw Error("a page of " + std::to_string(page) +
                    " keys is more than a sequence may have, " + std::to_string(p.kv_len) +
                    "; try a smaller --page");
    }
    if (std::ssize(lengths) != p.batch) {
        throw Error("there are " + std::to_string(lengths.size()) + " lengths for " +
                    std::to_string(p.batch) + " sequences; --batch says how many sequences");
    }
    for (const int64_t length : lengths) {
        if (length < 0 || length > p.kv_len) {
            throw Error("a length must be 0 to " + std::to_string(p.kv_len) + ", got " +
                        std::to_string(length) + "; --kv-len is the most that a sequence may have");
        }
    }
}

std::vector<int64_t> random_lengths(const Problem& p, uint64_t seed) {
    NormalGenerator normal(seed, 0x1e46); // another part of the seed's sequence than the tensors
    std::vector<int64_t> lengths(static_cast<size_t>(p.batch));
    for (int64_t& length : lengths) {
        const double drawn = static_cast<double>(p.kv_len) / 4 * std::exp(normal());
        length = std::clamp<int64_t>(static_cast<int64_t>(drawn), 1, p.kv_len);
    }
    return lengths;
}

PagedCache in_pages(const Problem& p, const Inputs& inputs, int page,
                    const std::vector<int64_t>& lengths, uint64_t seed, bool heads_first,
                    int shared) {
    require_lengths(p, page, lengths);
    PagedCache cache{.problem = p,
                     .page = page,
                     .heads_first = heads_first,
                     .table = {},
                     .lengths = {lengths.begin(), lengths.end()},
                     .k = {},
                     .v = {}};
    // of sequence b: the pages that it shares with sequence 0
    const auto shared_by = [&](int64_t b) {
        const int64_t both = std::min(lengths[0], lengths[static_cast<size_t>(b)]);
        return b == 0 ? 0 : static_cast<int>(std::min<int64_t>(shared, both / page));
    };
    int pages = unused_pages;
    for (int64_t b = 0; b < p.batch; ++b) {
        pages += pages_of(lengths[static_cast<size_t>(b)], page) - shared_by(b);
    }
    std::vector<int> numbers(static_cast<size_t>(pages));
    std::iota(numbers.begin(), numbers.end(), 0);
    std::mt19937_64 bits(seed);
    for (size_t n = numbers.size(); n > 1; --n) { // std::shuffle is not the same everywhere
        std::swap(numbers[n - 1], numbers[bits() % n]);
    }
    const float nan = std::numeric_limits<float>::quiet_NaN();
    cache.k.assign(numbers.size() * static_cast<size_t>(cache.page_stride()), nan);
    cache.v = cache.k;
    const auto columns = static_cast<size_t>(cache.most_pages());
    cache.table.assign(static_cast<size_t>(p.batch) * columns, no_page);
    for (int64_t b = 0; b < p.batch; ++b) {
        const auto row = cache.table.begin() + b * cache.most_pages();
        const int64_t length = lengths[static_cast<size_t>(b)];
        std::copy_n(cache.table.begin(), shared_by(b), row);
        for (int n = shared_by(b); n < pages_of(length, page); ++n) {
            row[n] = numbers.back();
            numbers.pop_back();
        }
        for (int64_t h = 0; h < p.kv_heads; ++h) {
            for (int64_t j = int64_t{shared_by(b)} * page; j < length; ++j) {
                const int64_t from = ((b * p.kv_heads + h) * p.kv_len + j) * p.head_dim;
                const int64_t to = cache.offset(b, h, j);
                std::copy_n(inputs.k.begin() + from, p.head_dim, cache.k.begin() + to);
                std::copy_n(inputs.v.begin() + from, p.head_dim, cache.v.begin() + to);
            }
        }
    }
    return cache;
}

} // namespace flash
