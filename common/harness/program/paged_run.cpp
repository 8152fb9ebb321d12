#include "common/harness/program/paged_run.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <utility>

#include "common/harness/program/random.hpp"

namespace flash {
namespace {

constexpr int no_page = 0x7fffffff; // in the table, behind a sequence's length
constexpr int unused_pages = 3;

int pages_of(int64_t length, int page) { return static_cast<int>((length + page - 1) / page); }

/// A table's numbers are read by the kernel alone, which cannot refuse them.
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

/// The problem whose tensors are as large as the cache's: all pages are the keys of one head.
Problem problem_of_pages(const PagedCache& cache) {
    Problem p = cache.problem;
    p.heads *= p.batch;
    p.batch = 1;
    p.kv_len = cache.pages() * cache.page * p.kv_heads;
    p.kv_heads = 1;
    return p;
}

/// The rung as DeviceRun calls it, with pages for K and V.
Rung rung_of(const Rung& paged, const PagedCache& cache, const int* table, const int* lengths) {
    const auto bound = [&]<class T>(ForwardPaged<T> function) {
        PagedKV<T> kv{.K = nullptr,
                      .V = nullptr,
                      .page_stride = cache.page_stride(),
                      .head_stride = cache.head_stride(),
                      .row_stride = cache.row_stride(),
                      .page = cache.page,
                      .table = table,
                      .most_pages = cache.most_pages(),
                      .lengths = lengths};
        return Forward<T>([=, whole = cache.problem](const Problem&, const T* Q, const T* K,
                                                     const T* V, T* O, float* LSE,
                                                     void* workspace) mutable {
            kv.K = K;
            kv.V = V;
            function(whole, kv, Q, O, LSE, workspace);
        });
    };
    Rung rung = paged;
    rung.fp16 = bound(paged.paged.fp16);
    rung.bf16 = bound(paged.paged.bf16);
    rung.workspace_bytes = [whole = cache.problem, bytes = paged.workspace_bytes](const Problem&) {
        return bytes(whole);
    };
    return rung;
}

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

double PagedCache::flops() const {
    double sum = 0;
    for (int64_t b = 0; b < problem.batch; ++b) {
        sum += of_sequence(b).flops();
    }
    return sum;
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

PagedRun::Numbers PagedRun::upload(Backend& backend, const std::string& name,
                                   const std::vector<int>& numbers) {
    const size_t around = margin_ / sizeof(int);
    std::vector<int> all(numbers.size() + 2 * around, no_page);
    std::ranges::copy(numbers, all.begin() + static_cast<std::ptrdiff_t>(around));
    auto memory = backend.allocate(all.size() * sizeof(int));
    memory->write(0, all.data(), all.size() * sizeof(int));
    memory->declare(margin_, numbers.size() * sizeof(int), name);
    return {name, std::move(all), std::move(memory)};
}

PagedRun::PagedRun(const Rung& rung, const PagedCache& cache, DType dtype, std::span<const float> q,
                   size_t margin)
    : margin_(margin) {
    require_table(cache);
    table_ = upload(rung.backend(), "the table", cache.table);
    lengths_ = upload(rung.backend(), "the lengths", cache.lengths);
    const auto inside = [margin](const Numbers& numbers) {
        return static_cast<const int*>(numbers.memory->data()) + margin / sizeof(int);
    };
    run_ = std::make_unique<DeviceRun>(rung_of(rung, cache, inside(table_), inside(lengths_)),
                                       problem_of_pages(cache), Inputs{dtype, q, cache.k, cache.v},
                                       margin);
}

std::string PagedRun::damage() const {
    for (const Numbers* numbers : {&table_, &lengths_}) {
        std::vector<int> now(numbers->uploaded.size());
        numbers->memory->read(0, now.data(), now.size() * sizeof(int));
        if (now != numbers->uploaded) {
            return numbers->name + ", or the memory around, was overwritten";
        }
    }
    return run_->damage();
}

Verdict check_paged(const Rung& rung, const PagedCache& cache, DType dtype,
                    std::span<const float> q, const Outputs& outputs, const Progress& progress,
                    int64_t rows_of_head) {
    const int64_t B = cache.problem.batch;
    Verdict all;
    for (int64_t b = 0; b < B; ++b) {
        const Problem p = cache.of_sequence(b);
        const auto of_b = [b](std::span<const float> whole, int64_t size) {
            return whole.subspan(static_cast<size_t>(b * size), static_cast<size_t>(size));
        };
        const auto o = of_b(outputs.o, p.q_size()), lse = of_b(outputs.lse, p.lse_size());
        Verdict one;
        if (p.kv_len == 0) { // nothing for the reference to compute
            one.ok = std::ranges::all_of(o, [](float x) { return x == 0; }) &&
                     std::ranges::all_of(
                         lse, [](float x) { return x == -std::numeric_limits<float>::infinity(); });
            one.rows = p.lse_size();
            one.message = one.ok ? "" : "without keys O must be 0 and LSE -inf";
        } else {
            const std::vector<float> k = cache.of_sequence(b, cache.k),
                                     v = cache.of_sequence(b, cache.v);
            one = rung.check(p, {dtype, of_b(q, p.q_size()), k, v},
                             {.o = o, .lse = lse, .rounded_sums = rung.rounded_sums}, {},
                             rows_of_head);
        }
        all.add(one, "sequence " + std::to_string(b) + " of " +
                         std::to_string(cache.lengths[static_cast<size_t>(b)]) +
                         " keys, by itself: ");
        if (progress) {
            progress(static_cast<double>(b + 1) / static_cast<double>(B));
        }
    }
    return all;
}

} // namespace flash
