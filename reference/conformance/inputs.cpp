#include "reference/conformance/inputs.hpp"

#include <Eigen/Core>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <utility>

#include "common/harness/files/safetensors.hpp"
#include "common/harness/program/random.hpp"
#include "reference/check.hpp"
#include "reference/products.hpp"

namespace flash::conformance {
namespace {

using Matrix = reference::MatrixF;

uint64_t seed_of(const std::string& name) {
    std::seed_seq sequence(name.begin(), name.end());
    std::array<uint32_t, 2> words{};
    sequence.generate(words.begin(), words.end());
    return uint64_t{words[0]} << 32 | words[1];
}

// in [0, 1)
double uniform(std::mt19937_64& bits) { return static_cast<double>(bits() >> 11) * 0x1p-53; }

// The largest |score| of the problem, masked ones included.
double largest_score(const Problem& p, const Tensors& t) {
    float largest = 0;
    for (int64_t b = 0; b < p.batch; ++b) {
        for (int64_t h = 0; h < p.heads; ++h) {
            const Eigen::Map<const Matrix> Q(t.q.data() + p.q_offset(b, h), p.q_len, p.head_dim);
            const Eigen::Map<const Matrix> K(t.k.data() + p.kv_offset(b, h), p.kv_len, p.head_dim);
            largest = std::max(largest, reference::product_transposed(Q, K).cwiseAbs().maxCoeff());
        }
    }
    return static_cast<double>(p.scale * largest);
}

// Scales Q and K alike, so that the largest |score| becomes `target`.
void grow_scores(const Problem& p, Tensors& t, double target) {
    const float factor = static_cast<float>(std::sqrt(target / largest_score(p, t)));
    for (std::vector<float>* tensor : {&t.q, &t.k}) {
        for (float& x : *tensor) {
            x *= factor;
        }
    }
}

void add_outliers(std::vector<float>& tensor, std::mt19937_64& bits, NormalGenerator& normal) {
    for (float& x : tensor) {
        if (uniform(bits) < 0.001) {
            x += 10 * normal();
        }
    }
}

// Every key of a head becomes the head's first.
void repeat_first_key(const Problem& p, std::vector<float>& k) {
    const auto head_size = p.kv_len * p.head_dim;
    for (auto head = k.begin(); head != k.end(); head += head_size) {
        for (auto key = head; key != head + head_size; key += p.head_dim) {
            std::copy(head, head + p.head_dim, key);
        }
    }
}

// Scores between -6e4 and -5e4: all elements of Q nearly one number, all of K nearly its negative,
// within 3%.
void make_scores_negative(const Problem& p, Tensors& t, double score, std::mt19937_64& bits) {
    const double size =
        std::sqrt(score / (static_cast<double>(p.scale) * static_cast<double>(p.head_dim)));
    for (float& x : t.q) {
        x = static_cast<float>(size * (0.97 + 0.06 * uniform(bits)));
    }
    for (float& x : t.k) {
        x = static_cast<float>(-size * (0.97 + 0.06 * uniform(bits)));
    }
}

// Every row of scores gets `at(j)` on top for key j: the first element of every query is the same,
// that of key j follows `at`. `most` is the largest |at(j)|; it is spread over both, so that fp16
// can hold them.
template <class At> void add_along_keys(const Problem& p, Tensors& t, double most, At at) {
    const double q = std::sqrt(most / static_cast<double>(p.scale));
    for (size_t i = 0; i < t.q.size(); i += static_cast<size_t>(p.head_dim)) {
        t.q[i] = static_cast<float>(q);
    }
    for (int64_t j = 0; j < p.batch * p.kv_heads * p.kv_len; ++j) {
        t.k[static_cast<size_t>(j * p.head_dim)] =
            static_cast<float>(at(j % p.kv_len) / (static_cast<double>(p.scale) * q));
    }
}

void rise(const Problem& p, Tensors& t, double total) {
    add_along_keys(p, t, total, [&](int64_t j) {
        return total * static_cast<double>(j + 1) / static_cast<double>(p.kv_len);
    });
}

void tower(const Problem& p, Tensors& t, int64_t key) {
    constexpr double height = 200; // exp of it is infinite in fp32
    add_along_keys(p, t, height, [&](int64_t j) { return j == key ? height : 0.0; });
}

// One number in all of Q and K. It has few digits, so that every product and every sum of them is
// exact in fp32, in whatever order; and scale times the sum is not.
void fill_with_huge(const Case& c, Tensors& t) {
    // squares of 1e18 are near the end of fp32, and gradients multiply by them once more
    const float of_fp32 = c.backward ? 3 * 0x1p28f : 3 * 0x1p58f;
    const float huge = c.dtype == DType::fp32   ? of_fp32
                       : c.dtype == DType::fp16 ? 15360.0f
                                                : 133120.0f;
    std::ranges::fill(t.q, huge);
    std::ranges::fill(t.k, huge);
}

// One size, and a sign for each column: every average of a column is the column's own number.
void fill_V(const Problem& p, Tensors& t, float size) {
    for (size_t n = 0; n < t.v.size(); ++n) {
        const size_t x = n % static_cast<size_t>(p.v_dim());
        t.v[n] = x % 2 == 0 ? size : -size;
    }
}

// The first key has the weight 1 and all others p, which lies just above the middle of two fp16
// numbers, 0.5 and the next. So P, rounded up, adds up to more than it did before. The first two
// columns of Q and K make the score, the second with what rounding leaves of the first.
void let_P_round_up(const Problem& p, DType dtype, Tensors& t) {
    const double weight = 0.5 * (1 + 1.05 * 0x1p-11);
    const double product = -std::log(weight) / static_cast<double>(p.scale);
    const float coarse = round_to(dtype, static_cast<float>(product / 4));
    const double rest = product - 4 * static_cast<double>(coarse);
    const auto d = static_cast<size_t>(p.head_dim);
    for (size_t row = 0; row < t.q.size(); row += d) {
        t.q[row] = 4;
        if (d > 1) {
            t.q[row + 1] = 1;
        }
    }
    std::ranges::fill(t.k, 0.0f);
    for (size_t head = 0; head < t.k.size(); head += static_cast<size_t>(p.kv_len) * d) {
        t.k[head] = coarse;
        if (d > 1) {
            t.k[head + 1] = static_cast<float>(rest);
        }
    }
}

// The row that spoil_row spoils: in the middle of those that see a key.
int64_t spoilt_row(const Problem& p) {
    // the first rows, which see nothing
    const int64_t blind = p.causal ? std::max<int64_t>(0, p.q_len - p.kv_len) : 0;
    return blind + (p.q_len - blind) / 2;
}

// Scores rise in every 8th row, counted from the one that will be spoilt, and in no other. On
// tensor cores they share lanes with it: whoever asks all rows of a lane together must hear them
// beside its NaN.
void rise_beside_spoilt_row(const Problem& p, Tensors& t) {
    rise(p, t, 200);
    for (int64_t row = 0; row < p.lse_size(); ++row) {
        if ((row % p.q_len - spoilt_row(p)) % 8 != 0) {
            t.q[static_cast<size_t>(row * p.head_dim)] = 0;
        }
    }
}

// NaN or infinity at one element of Q, in a head in the middle.
void spoil_row(const Problem& p, Tensors& t, bool infinite) {
    const int64_t b = p.batch / 2, h = p.heads / 2, i = spoilt_row(p), x = p.head_dim / 2;
    float& q = t.q[static_cast<size_t>(p.q_offset(b, h) + i * p.head_dim + x)];
    // with key 0's sign, so that its score is +inf: a row of -inf alone looks like one that sees
    // nothing
    if (infinite) {
        const float key = t.k[static_cast<size_t>(p.kv_offset(b, h) + x)];
        q = std::copysign(std::numeric_limits<float>::infinity(), key);
    } else {
        q = std::numeric_limits<float>::quiet_NaN();
    }
    t.spoilt.assign(static_cast<size_t>(p.lse_size()), false);
    t.spoilt[static_cast<size_t>(p.q_offset(b, h) / p.head_dim + i)] = true;
}

// K and V of one K/V head in the middle become NaN, and with them every row of the heads that read
// it.
void spoil_head(const Problem& p, Tensors& t) {
    const int64_t b = p.batch / 2, h = p.heads / 2;
    const auto spoil = [&](std::vector<float>& tensor, int64_t from, int64_t d) {
        const auto head = tensor.begin() + from;
        std::fill(head, head + p.kv_len * d, std::numeric_limits<float>::quiet_NaN());
    };
    spoil(t.k, p.kv_offset(b, h), p.head_dim);
    spoil(t.v, p.v_offset(b, h), p.v_dim());
    t.spoilt.assign(static_cast<size_t>(p.lse_size()), false);
    for (int64_t other = 0; other < p.heads; ++other) {
        if (p.kv_head(other) == p.kv_head(h)) {
            const auto row = t.spoilt.begin() + p.q_offset(b, other) / p.head_dim;
            std::fill(row, row + p.q_len, true);
        }
    }
}

void make_extreme_sinks(const Problem& p, Tensors& t) {
    constexpr float infinity = std::numeric_limits<float>::infinity();
    for (int64_t h = 0; h < p.heads; ++h) {
        const int64_t i = p.q_len / 2, keys = p.visible_keys(i) - p.first_key(i);
        const Eigen::Map<const Matrix> q(t.q.data() + p.q_offset(0, h) + i * p.head_dim, 1,
                                         p.head_dim),
            K(t.k.data() + p.kv_offset(0, h) + p.first_key(i) * p.head_dim, keys, p.head_dim);
        const float highest =
            keys > 0 ? p.scale * reference::product_transposed(q, K).maxCoeff() : 0.0f;
        const std::array sinks = {highest, -infinity, 1e30f, -1e30f, highest + 80, highest - 80};
        t.sink[static_cast<size_t>(h)] = sinks[static_cast<size_t>(h) % sinks.size()];
    }
}

void read_real_text(const Problem& p, Tensors& t) {
    SafetensorsReader file(FLASH_REAL_TEXT);
    for (const auto& [name, tensor] : {std::pair{"q", &t.q}, {"k", &t.k}, {"v", &t.v}}) {
        if (file.info(name).shape != std::vector{p.batch, p.heads, p.q_len, p.head_dim}) {
            throw Error(std::string(FLASH_REAL_TEXT) + ": the suite expects another shape");
        }
        *tensor = file.read(name);
    }
}

} // namespace

Tensors make_inputs(const Case& c) {
    const Problem& p = c.problem;
    const std::string again = c.seed == 0 ? "" : " " + std::to_string(c.seed);
    const uint64_t seed = seed_of(c.group() + " " + c.name() + again);
    NormalGenerator normal(seed);
    std::mt19937_64 bits(seed + 1);
    Tensors t;
    const auto fill = [&](std::vector<float>& tensor, int64_t size) {
        tensor.resize(static_cast<size_t>(size));
        std::ranges::generate(tensor, [&] { return normal(); });
    };
    fill(t.q, p.q_size());
    fill(t.k, p.kv_size());
    fill(t.v, p.v_size());

    if (p.sink) {
        fill(t.sink, p.heads);
    }

    switch (c.kind) {
    case Kind::outliers:
        add_outliers(t.q, bits, normal);
        add_outliers(t.k, bits, normal);
        add_outliers(t.v, bits, normal);
        break;
    case Kind::one_sign:
        std::ranges::transform(t.v, t.v.begin(), [](float x) { return x + 4; });
        break;
    case Kind::equal_keys:
        repeat_first_key(p, t.k);
        break;
    case Kind::logits_1e4:
        grow_scores(p, t, 1e4);
        break;
    case Kind::logits_6e4:
        grow_scores(p, t, 6e4);
        break;
    case Kind::real_text:
        read_real_text(p, t);
        break;
    case Kind::logits_negative:
        make_scores_negative(p, t, 5.5e4, bits);
        break;
    case Kind::negative_scores:
        make_scores_negative(p, t, 130, bits);
        break;
    case Kind::spread_16:
    case Kind::spread_24: // with the default scale, N(0,1) has scores of deviation 1
        std::ranges::transform(t.q, t.q.begin(),
                               [&](float x) { return x * (c.kind == Kind::spread_16 ? 16 : 24); });
        break;
    case Kind::rises_50:
        rise(p, t, 50);
        break;
    case Kind::nan_row:
        rise_beside_spoilt_row(p, t);
        break;
    case Kind::rises_200:
        rise(p, t, 200);
        break;
    case Kind::rises_2000:
        rise(p, t, 2000);
        break;
    case Kind::towering_first:
        tower(p, t, 0);
        break;
    case Kind::towering_middle:
        tower(p, t, p.kv_len / 2);
        break;
    case Kind::towering_last:
        tower(p, t, p.kv_len - 1);
        break;
    case Kind::huge_equal:
        fill_with_huge(c, t);
        break;
    case Kind::large_values:
        let_P_round_up(p, c.dtype, t);
        fill_V(p, t, c.dtype == DType::fp32 ? 1e30f : c.dtype == DType::fp16 ? 65504.0f : 1e12f);
        break;
    case Kind::small_values:
        std::ranges::transform(t.v, t.v.begin(), [&](float x) {
            return x * (c.dtype == DType::fp16 ? 1e-4f : 1e-30f);
        });
        break;
    default:
        break;
    }
    for (std::vector<float>* tensor : {&t.q, &t.k, &t.v}) {
        std::ranges::transform(*tensor, tensor->begin(),
                               [&](float x) { return round_to(c.dtype, x); });
    }
    if (c.kind == Kind::extreme_sinks) {
        make_extreme_sinks(p, t);
    }
    if (c.backward) {
        NormalGenerator upstream(seed + 2);
        t.d_o.resize(static_cast<size_t>(p.q_size()));
        std::ranges::generate(t.d_o, [&] { return round_to(c.dtype, upstream()); });
    }
    if (c.kind == Kind::nan_row || c.kind == Kind::inf_row) {
        spoil_row(p, t, c.kind == Kind::inf_row);
    } else if (c.kind == Kind::nan_head) {
        spoil_head(p, t);
    }
    if (c.backward) {
        ForwardResult forward = reference::forward(p, t.view(c.dtype), {});
        t.o = std::move(forward.o);
        t.lse = std::move(forward.lse);
    }
    return t;
}

std::vector<bool> Tensors::spoilt_heads(const Problem& p) const {
    std::vector<bool> heads(spoilt.empty() ? 0 : static_cast<size_t>(p.batch * p.kv_heads));
    for (size_t row = 0; row < spoilt.size(); ++row) {
        const int64_t head = static_cast<int64_t>(row) / p.q_len;
        if (spoilt[row]) {
            heads[static_cast<size_t>(head / p.heads * p.kv_heads + p.kv_head(head % p.heads))] =
                true;
        }
    }
    return heads;
}

} // namespace flash::conformance
