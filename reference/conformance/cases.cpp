#include "reference/conformance/cases.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <span>

namespace flash::conformance {
namespace {

struct Shape {
    int64_t q_len, kv_len;
    int64_t longer() const { return std::max(q_len, kv_len); }
};

// Small, ragged and lopsided: most mistakes show where a tile is cut short.
constexpr std::array shapes = {
    Shape{1, 1},     Shape{1, 239},   Shape{239, 1},     Shape{3, 799},     Shape{799, 3},
    Shape{64, 128},  Shape{128, 64},  Shape{97, 97},     Shape{113, 203},   Shape{203, 113},
    Shape{127, 512}, Shape{512, 127}, Shape{128, 217},   Shape{217, 128},   Shape{200, 200},
    Shape{256, 512}, Shape{512, 256}, Shape{1023, 1024}, Shape{1024, 1023}, Shape{201, 2113}};

// Where kinds of input other than N(0,1) are tried: a single query, tiles that fit and tiles that
// do not, many keys, and more queries than keys, so that with a mask whole tiles see nothing.
constexpr std::array some_shapes = {Shape{1, 239}, Shape{64, 128}, Shape{97, 97}, Shape{127, 512},
                                    Shape{512, 127}};

// The lists for detectors: what is tried on a shape beside N(0,1), and whether orders of threads
// and landings of copies are tried on it.
struct DetectShape {
    Shape shape;
    bool other_inputs = false; // on shapes of their own
    bool six_heads = false;    // where few blocks run at once, waves of heads are full and smaller
    bool masked = false;       // several tiles of keys and a mask, at the largest head dim
    bool in_schedules = false;
};
// The third has more than 128 queries that see no key when causal: a whole block of the tensor-core
// rungs. The one with many keys is for kernels that take other tiles on a long way.
constexpr std::array detect_shapes = {
    DetectShape{.shape = {1, 1}},
    DetectShape{.shape = {5, 71}, .other_inputs = true, .in_schedules = true},
    DetectShape{.shape = {200, 5}, .six_heads = true, .in_schedules = true},
    DetectShape{.shape = {64, 128}},
    DetectShape{.shape = {128, 64}},
    DetectShape{.shape = {97, 97}},
    DetectShape{.shape = {3, 2113}},
    DetectShape{.shape = {136, 200}, .masked = true, .in_schedules = true}};

constexpr std::array other_kinds = {Kind::outliers,   Kind::one_sign,   Kind::equal_keys,
                                    Kind::logits_1e4, Kind::logits_6e4, Kind::logits_negative,
                                    Kind::nan_row,    Kind::inf_row,    Kind::nan_head};

// How scores lie along the keys of a row. A kernel that keeps an old maximum, or limits what may
// lie above it, goes wrong on rows that rise late; how a row with independent scores rises, many
// keys of large spread show best.
constexpr std::array kinds_along_keys = {Kind::rises_50,        Kind::rises_200,
                                         Kind::rises_2000,      Kind::towering_first,
                                         Kind::towering_middle, Kind::towering_last};
constexpr Shape along_keys{127, 512}, many_keys{128, 4096}, many_rows{4096, 4096},
    many_blocks{512, 384};

// Finite inputs at the ends of what a type or the scale may be, on small shapes: one key, one step
// of any rung, or three tiles and a piece.
struct Extreme {
    Kind kind;
    Shape shape;
    float scale = 0; // 0: the default
};
constexpr std::array extremes = {Extreme{Kind::huge_equal, {5, 1}},
                                 Extreme{Kind::huge_equal, {5, 16}},
                                 Extreme{Kind::huge_equal, {33, 194}},
                                 Extreme{Kind::large_scale, {33, 194}, 1e7f},
                                 Extreme{Kind::large_scale, {33, 194}, 1e8f},
                                 Extreme{Kind::large_scale, {33, 194}, 1e30f},
                                 Extreme{Kind::tiny_scale, {33, 194}, 1e-30f},
                                 Extreme{Kind::tiny_scale, {33, 194}, 1e-40f},
                                 Extreme{Kind::large_values, {5, 1}},
                                 Extreme{Kind::large_values, {33, 194}},
                                 Extreme{Kind::small_values, {33, 194}}};

struct Heads {
    int64_t q = 1, kv = 1;
};
constexpr std::array six_heads = {Heads{6, 6}, Heads{6, 2}, Heads{6, 1}};
// On a slow backend: what is grouped by three still is, and heads that all do the same are fewer.
constexpr std::array fewer_heads = {Heads{3, 3}, Heads{6, 2}, Heads{3, 1}};

// The scale when it is not the default: another value than 1/sqrt(d) for every d, and small enough
// that N(0,1) inputs do not overflow naive_attention.
constexpr float other_scale = 0.3f;

// What is left to choose once shape, head dim and type are fixed.
struct Combination {
    bool causal = false;
    Heads heads;
    bool default_scale = true;
};

// All twelve, in such an order that any two in a row, counted around the end, differ in the mask,
// any three in a row have all head groupings, and entry n + 6 is entry n with the other scale.
constexpr std::array combinations = [] {
    std::array<Combination, 12> all{};
    for (size_t n = 0; n < all.size(); ++n) {
        all[n] = {n % 2 == 1, six_heads[n % 3], n < 6};
    }
    return all;
}();

Problem make_problem(Shape shape, int64_t d, const Combination& c) {
    // Two batches for about half of the cases, and of the smaller ones only: they add no new tiles.
    const bool two_batches = !c.default_scale && shape.longer() <= 217;
    return {.batch = two_batches ? 2 : 1,
            .heads = c.heads.q,
            .kv_heads = c.heads.kv,
            .q_len = shape.q_len,
            .kv_len = shape.kv_len,
            .head_dim = d,
            .scale = c.default_scale ? default_scale(d) : other_scale,
            .causal = c.causal};
}

std::string shape_name(Shape shape) {
    return std::to_string(shape.q_len) + "x" + std::to_string(shape.kv_len);
}

} // namespace

std::string kind_name(Kind kind) {
    switch (kind) {
    case Kind::normal:
        return "normal";
    case Kind::outliers:
        return "outliers";
    case Kind::one_sign:
        return "V of one sign";
    case Kind::equal_keys:
        return "equal keys";
    case Kind::logits_1e4:
        return "logits of 1e4";
    case Kind::logits_6e4:
        return "logits of 6e4";
    case Kind::logits_negative:
        return "logits below -5e4";
    case Kind::negative_scores:
        return "scores of -130";
    case Kind::nan_row:
        return "NaN in a row of Q";
    case Kind::inf_row:
        return "infinity in a row of Q";
    case Kind::real_text:
        return "real text";
    case Kind::nan_head:
        return "NaN in a K/V head";
    case Kind::spread_16:
        return "scores of deviation 16";
    case Kind::spread_24:
        return "scores of deviation 24";
    case Kind::rises_50:
        return "scores that rise by 50";
    case Kind::rises_200:
        return "scores that rise by 200";
    case Kind::rises_2000:
        return "scores that rise by 2000";
    case Kind::towering_first:
        return "first key towers";
    case Kind::towering_middle:
        return "middle key towers";
    case Kind::towering_last:
        return "last key towers";
    case Kind::huge_equal:
        return "huge equal scores";
    case Kind::large_scale:
        return "large scale";
    case Kind::tiny_scale:
        return "tiny scale";
    case Kind::large_values:
        return "large V";
    case Kind::small_values:
        return "small V";
    case Kind::extreme_sinks:
        return "extreme sinks";
    }
    return {};
}

std::string Case::group() const {
    const std::string window =
        problem.window > 0 ? ", window " + std::to_string(problem.window) : std::string();
    return kind_name(kind) + " " + shape_name({problem.q_len, problem.kv_len}) + window +
           (problem.sink ? ", sink" : "");
}

std::string Case::name() const {
    char text[160];
    const Problem& p = problem;
    const std::string d_v = p.two_head_dims() ? "/" + std::to_string(p.v_dim()) : "";
    std::snprintf(text, sizeof text, "%s d=%lld%s %s B=%lld H=%lld/%lld scale=%.3g",
                  dtype_name(dtype), static_cast<long long>(p.head_dim), d_v.c_str(),
                  p.causal ? "causal" : "full", static_cast<long long>(p.batch),
                  static_cast<long long>(p.heads), static_cast<long long>(p.kv_heads),
                  static_cast<double>(p.scale));
    return text;
}

Scope scope_of(const Rung& rung) {
    Scope scope{rung.dtypes, {rung.head_dims.begin(), rung.head_dims.end()}};
    if (scope.head_dims.empty()) {
        scope.head_dims = {1, 5, 32, 64, 128, 256};
    }
    if (rung.backend().name() == "simt") {
        scope.longest = rung.has_gradients ? 217 : 512;
    }
    scope.backward = rung.has_gradients;
    scope.window_and_sink = rung.window_and_sink;
    scope.head_dims_v = {rung.head_dims_v.begin(), rung.head_dims_v.end()};
    scope.many_rows = rung.backend().name() == "cuda";
    return scope;
}

namespace {

/// Whether gradients are tried on a kind of input. NaN in one row of Q is in all of dK, so there
/// would be nothing beside it to compare. With scores of 1e4 and more P = exp(S - LSE) is a matter
/// of luck: LSE is an fp32 number, which at 6e4 is known to 0.002, and so P is known to 0.2%,
/// however S was summed up. Of larger scores yet the gradients must at least be finite. In fp16
/// they may not be, as no gradient beyond 65504 is.
bool suits_gradients(const Case& c) {
    switch (c.kind) {
    case Kind::nan_row:
    case Kind::inf_row:
    case Kind::logits_1e4:
    case Kind::logits_6e4:
    case Kind::small_values:
        return false;
    case Kind::large_values: // P is 1 and dS 0, unless a key that pads the tile counts
        return c.problem.kv_len == 1;
    case Kind::huge_equal:
    case Kind::large_scale:
        return c.dtype != DType::fp16;
    default:
        return true;
    }
}

/// The list as it is for gradients.
void turn_backward(List& list) {
    const size_t all = list.cases.size();
    for (Case& c : list.cases) {
        if (c.kind == Kind::logits_negative) {
            c.kind = Kind::negative_scores;
        }
    }
    std::erase_if(list.cases, [](const Case& c) { return !suits_gradients(c); });
    for (Case& c : list.cases) {
        c.backward = true;
    }
    list.left_out.push_back("gradients: " + std::to_string(all - list.cases.size()) +
                            " cases with NaN or infinity in a row of Q, or scores of 1e4 and more");
}

/// The list as it is where V has a head dim of its own.
void narrow_V(List& list, const Scope& scope) {
    for (Case& c : list.cases) {
        const auto k = std::ranges::find(scope.head_dims, c.problem.head_dim);
        const auto nth = static_cast<size_t>(k - scope.head_dims.begin());
        c.problem.head_dim_v = nth < scope.head_dims_v.size() ? scope.head_dims_v[nth] : 0;
    }
}

/// SIMT executes thread by thread: what is cheap elsewhere is cut down there.
bool is_slow(const Scope& scope) { return scope.longest < 1024; }

/// Whether, on a slow backend, it is another type's turn at case `number`. A single type has every
/// second turn, too, but not of gradients: whether sums over the heads of a group are rounded shows
/// where many are added up.
bool is_for_another_type(const Scope& scope, size_t type, size_t number) {
    const size_t turns = std::max<size_t>(scope.backward ? 1 : 2, scope.dtypes.size());
    return is_slow(scope) && (number + type) % turns != 0;
}

/// Entry n of the combinations, counted around the end, as the backend can bear it. Gradients are
/// sums over the heads of a group, and keep those.
Combination combination(const Scope& scope, size_t n) {
    Combination c = combinations[n % combinations.size()];
    if (is_slow(scope) && !(scope.backward && c.heads.kv < c.heads.q)) {
        c.heads = fewer_heads[n % combinations.size() % fewer_heads.size()];
    }
    return c;
}

// N(0,1) on one shape. The usual head dims meet every combination; the others, and all of them on
// large shapes, meet two of the twelve: one mask and one grouping with both scales, and the next
// head dim and shape meet the next two. On a processor large begins earlier, and the largest meet
// one of the scales. On a slow backend each type takes every second case, and a single key is large
// enough.
void add_normal(List& list, const Scope& scope, size_t s) {
    const Shape shape = shapes[s];
    const bool large = scope.many_rows ? shape.longer() > 800 : shape.longer() > 100;
    const bool one_scale = !scope.many_rows && shape.longer() > 800;
    size_t left_out = 0;
    for (size_t t = 0; t < scope.dtypes.size(); ++t) {
        for (size_t k = 0; k < scope.head_dims.size(); ++k) {
            const int64_t d = scope.head_dims[k];
            const bool thin = large || (d != 32 && d != 64 && d != 128) ||
                              (is_slow(scope) && shape.longer() == 1);
            for (size_t n = 0; n < combinations.size(); ++n) {
                if ((thin && n % 6 != (s + k) % 6) || (one_scale && (s + k + n / 6) % 2 != 0) ||
                    is_for_another_type(scope, t, s + k + n / 6)) {
                    ++left_out;
                    continue;
                }
                const Combination c = combination(scope, n);
                const int runs = c.heads.kv != 2   ? 1
                                 : !is_slow(scope) ? (shape.longer() <= 512 ? 3 : 1)
                                                   : (shape.longer() <= 128 ? 2 : 1);
                list.cases.push_back(
                    {Kind::normal, scope.dtypes[t], make_problem(shape, d, c), runs});
            }
        }
    }
    if (left_out > 0) {
        list.left_out.push_back("normal " + shape_name(shape) + ": " + std::to_string(left_out) +
                                " of the combinations of head dim, mask, heads and scale");
    }
}

// Another kind of input on one shape: both masks with every head dim; grouping and scale go round.
// On a slow backend masks and types take turns: each type meets each mask within four shapes.
void add_kind(List& list, const Scope& scope, Kind kind, Shape shape, size_t first) {
    for (size_t t = 0; t < scope.dtypes.size(); ++t) {
        for (size_t k = 0; k < scope.head_dims.size(); ++k) {
            const size_t own = first + k + (is_slow(scope) && k % 2 == 1 ? 6 : 0); // other scale
            for (const size_t n : {own, own + 7}) {
                const bool another_mask = is_slow(scope) && n != own;
                if (another_mask || is_for_another_type(scope, t, first / 2 + k)) {
                    continue;
                }
                Case c{kind, scope.dtypes[t],
                       make_problem(shape, scope.head_dims[k], combination(scope, n))};
                if (kind == Kind::nan_head) { // one without NaN must be beside it
                    c.problem.batch = c.problem.kv_heads == 1 ? 2 : 1;
                }
                list.cases.push_back(c);
            }
        }
    }
}

// Scores that rise or tower, on one shape and one head: every type with every head dim and both
// masks. On a slow backend the masks take turns.
void add_along_keys(List& list, const Scope& scope) {
    for (size_t kind = 0; kind < kinds_along_keys.size() && along_keys.longer() <= scope.longest;
         ++kind) {
        for (const DType dtype : scope.dtypes) {
            for (size_t k = 0; k < scope.head_dims.size(); ++k) {
                for (const bool causal : {false, true}) {
                    if (!is_slow(scope) || causal == ((kind + k) % 2 == 1)) {
                        const Problem problem =
                            make_problem(along_keys, scope.head_dims[k], {causal, {1, 1}, true});
                        list.cases.push_back({kinds_along_keys[kind], dtype, problem});
                    }
                }
            }
        }
    }
    list.left_out.push_back("scores that rise along the keys, and towering keys: all shapes but " +
                            shape_name(along_keys) +
                            (is_slow(scope) ? ", and one mask per head dim" : ""));
}

// Extremes, on one head: every type, with every head dim, and the masks take turns. On a slow
// backend the head dims take turns, too.
void add_extremes(List& list, const Scope& scope) {
    for (size_t n = 0; n < extremes.size(); ++n) {
        for (const DType dtype : scope.dtypes) {
            for (size_t k = 0; k < scope.head_dims.size(); ++k) {
                if (is_slow(scope) && k != n % scope.head_dims.size()) {
                    continue;
                }
                // beside huge scores LSE shows no wrong mask: none where O is compared exactly
                const bool causal = extremes[n].shape.kv_len > 16 && (n + k) % 2 == 1;
                Case c{extremes[n].kind, dtype,
                       make_problem(extremes[n].shape, scope.head_dims[k], {causal, {1, 1}, true})};
                c.problem.scale = extremes[n].scale > 0 ? extremes[n].scale : c.problem.scale;
                list.cases.push_back(c);
            }
        }
    }
    list.left_out.push_back("huge scores, and extremes of scale and V: all shapes but three" +
                            std::string(is_slow(scope) ? ", and one head dim for each" : ""));
}

// Large spread with many keys, one head; every type with every head dim, because a type has limits
// of its own. The masks take turns.
void add_spread(List& list, const Scope& scope) {
    bool any = false;
    for (const Shape shape : {many_keys, many_rows}) {
        if (scope.backward && is_slow(scope)) {
            continue;
        }
        if (shape.q_len > many_keys.q_len && !scope.many_rows) {
            list.left_out.push_back(shape_name(shape) +
                                    " with scores of large spread: on a GPU alone");
            continue;
        }
        for (const Kind kind : {Kind::spread_16, Kind::spread_24}) {
            for (const DType dtype : scope.dtypes) {
                for (const int64_t d : scope.head_dims) {
                    if (d == 64 || d == 128 || d == 192) {
                        const bool causal = (kind == Kind::spread_24) == (d == 64);
                        list.cases.push_back(
                            {kind, dtype, make_problem(shape, d, {causal, {1, 1}, true})});
                        any = true;
                    }
                }
            }
        }
    }
    list.left_out.push_back(
        any ? "scores of large spread: one mask per head dim, and head dims but 64, 128 and 192"
            : "scores of large spread: they are for head dims 64, 128 and 192");
}

// More tiles than a GPU has SMs, so that persistent blocks take a second one. Which one is a matter
// of time: repeated.
void add_many_blocks(List& list, const Scope& scope) {
    if (!scope.many_rows) {
        list.left_out.push_back("more blocks than a GPU has SMs: on a GPU alone");
        return;
    }
    for (const DType dtype : scope.dtypes) {
        for (size_t k = 0; k < scope.head_dims.size(); ++k) {
            Case c{Kind::normal, dtype,
                   make_problem(many_blocks, scope.head_dims[k], {k % 2 == 1, {6, 2}}), 3};
            c.problem.batch = 12;
            list.cases.push_back(c);
        }
    }
}

// Windows and sinks, on shapes whose tiles they cut in every way: below, at and above multiples of
// 16, 32 and 64, one key, all keys and more; windows that end before the first key, because there
// are more queries than keys; whole tiles of keys that no query sees any more; and of 128 keys, the
// last query that sees one is the first of a tile. Every head dim and type meets all of them, with
// sinks and without in turns; on a slow backend the types take turns.
struct WindowShape {
    Shape shape;
    int64_t window; // 0: a sink beside the usual masks
};
constexpr std::array window_shapes = {
    WindowShape{{97, 97}, 1},      WindowShape{{64, 128}, 64},   WindowShape{{113, 203}, 65},
    WindowShape{{203, 113}, 17},   WindowShape{{300, 300}, 128}, WindowShape{{300, 310}, 127},
    WindowShape{{1, 239}, 129},    WindowShape{{1, 5}, 1},       WindowShape{{512, 500}, 200},
    WindowShape{{200, 200}, 1000}, WindowShape{{512, 127}, 63},  WindowShape{{140, 333}, 96},
    WindowShape{{97, 130}, 0},     WindowShape{{300, 40}, 0},    WindowShape{{40, 300}, 33},
    WindowShape{{260, 260}, 130}};

// For detectors: tiles at both edges and between them, tiles that some warpgroups of a block skip,
// a last query that is the first of a tile, keys that no query sees any more, and rows without
// keys.
constexpr std::array detect_window_shapes = {WindowShape{{5, 71}, 20}, WindowShape{{136, 200}, 66},
                                             WindowShape{{97, 97}, 1}, WindowShape{{200, 5}, 3},
                                             WindowShape{{200, 5}, 0}, WindowShape{{20, 200}, 9},
                                             WindowShape{{40, 5}, 3}};

void add_windows(List& list, const Scope& scope, std::span<const WindowShape> some) {
    for (size_t s = 0; s < some.size(); ++s) {
        const auto& [shape, window] = some[s];
        for (const bool sink : {false, true}) {
            const bool extreme = sink && s % 2 == 0; // of six kinds
            for (size_t t = 0; t < scope.dtypes.size(); ++t) {
                for (size_t k = 0; k < scope.head_dims.size(); ++k) {
                    const size_t n = s + k + (sink ? 1 : 0);
                    if ((window == 0 && !sink) || is_for_another_type(scope, t, n)) {
                        continue;
                    }
                    const bool causal = window > 0 || s % 2 == 1;
                    Case c{extreme ? Kind::extreme_sinks : Kind::normal, scope.dtypes[t],
                           make_problem(shape, scope.head_dims[k],
                                        {causal, extreme ? Heads{6, 2} : Heads{2, 1}, true})};
                    c.problem.window = window;
                    c.problem.sink = sink;
                    c.problem.batch = sink && shape.longer() <= 128 ? 2 : 1; // dsink adds them up
                    list.cases.push_back(c);
                }
            }
        }
    }
}

// The shape of reference/data's tensors, as it is and with a mask.
void add_real_text(List& list, const Scope& scope) {
    constexpr int64_t heads = 12, tokens = 176, head_dim = 32;
    if (std::ranges::find(scope.head_dims, head_dim) == scope.head_dims.end()) {
        list.left_out.push_back("real text: its head dim is 32");
        return;
    }
    for (const DType dtype : scope.dtypes) {
        for (const bool causal : {false, true}) {
            list.cases.push_back(
                {Kind::real_text,
                 dtype,
                 {1, heads, heads, tokens, tokens, head_dim, default_scale(head_dim), causal}});
        }
    }
}

} // namespace

List full(const Scope& scope) {
    List list;
    for (size_t s = 0; s < shapes.size(); ++s) {
        if (shapes[s].longer() > scope.longest) {
            list.left_out.push_back(shape_name(shapes[s]) + ": too long for this build");
        } else {
            add_normal(list, scope, s);
        }
    }
    for (size_t kind = 0; kind < other_kinds.size(); ++kind) {
        for (size_t s = 0; s < some_shapes.size(); ++s) {
            if (some_shapes[s].longer() > scope.longest) {
                continue; // said above
            }
            add_kind(list, scope, other_kinds[kind], some_shapes[s], s + kind);
        }
    }
    add_along_keys(list, scope);
    add_extremes(list, scope);
    add_spread(list, scope);
    add_many_blocks(list, scope);
    add_real_text(list, scope);
    if (scope.window_and_sink) {
        add_windows(list, scope, window_shapes);
    }
    list.left_out.push_back(
        "inputs other than N(0,1): " + std::to_string(shapes.size() - some_shapes.size()) +
        " of the " + std::to_string(shapes.size()) +
        " shapes, and 10 of the 12 combinations of mask, heads and " +
        "scale on each of the others");
    if (is_slow(scope)) {
        list.left_out.push_back("these inputs: one mask per head dim and shape");
        list.left_out.push_back(scope.backward ? "of several types, each case is for one"
                                               : "every second case: of two types, each is for "
                                                 "one; and three heads of six that do the same");
    }
    if (scope.backward) {
        turn_backward(list);
    }
    narrow_V(list, scope);
    return list;
}

namespace {

/// Where types take turns, as head dims, shapes and kinds of input do.
bool is_its_types_turn(const Scope& scope, const Case& c) {
    const auto k = std::ranges::find(scope.head_dims, c.problem.head_dim) - scope.head_dims.begin();
    const auto n = static_cast<size_t>(k + c.problem.q_len) + static_cast<size_t>(c.kind);
    return c.dtype == scope.dtypes[n % scope.dtypes.size()];
}

} // namespace

List detect(const Scope& scope) {
    constexpr std::array two_heads = {Heads{2, 2}, Heads{2, 1}};
    List list;
    // Detectors are slow: beyond the small shapes, and for other kinds of input, a head dim meets
    // one of the masks.
    const auto add = [&](Kind kind, Shape shape, size_t s) {
        const bool both_masks = kind == Kind::normal && shape.longer() <= 128;
        for (const DType dtype : scope.dtypes) {
            for (size_t k = 0; k < scope.head_dims.size(); ++k) {
                for (const bool causal : {false, true}) {
                    const size_t n = s + k + (causal ? 1 : 0);
                    if (both_masks || n % 2 == 0) {
                        const Combination c{causal, two_heads[n / (both_masks ? 1 : 2) % 2],
                                            n % 4 < 2};
                        list.cases.push_back(
                            {kind, dtype, make_problem(shape, scope.head_dims[k], c)});
                    }
                }
            }
        }
    };
    for (size_t s = 0; s < detect_shapes.size(); ++s) {
        add(Kind::normal, detect_shapes[s].shape, s);
        if (detect_shapes[s].other_inputs) {
            // Whoever looks for a mistake stops at the first, so what finds many and costs little
            // comes first.
            // Other kinds of input: 33 queries are one tile or two, cut short, and 97 keys two or
            // more.
            for (const Kind kind : {Kind::outliers, Kind::logits_negative, Kind::rises_2000}) {
                add(kind, {33, 97}, static_cast<size_t>(kind));
            }
            // Two or three whole tiles of 64 keys, with and without a mask. From one to the next
            // scores rise by 16 and by 64: a kernel with an old maximum must raise it, in fp16 at
            // both rates, and in bf16 where exp(128) is too large. With a mask the last key of
            // query 31, a warp's last, is the first of a tile. Beside NaN some rows rise, and
            // others do not. A key that towers in the second tile makes weights infinite at once.
            for (const Kind kind :
                 {Kind::rises_50, Kind::rises_200, Kind::towering_middle, Kind::nan_row}) {
                add(kind, {33, 194}, static_cast<size_t>(kind));
            }
            // An exponent that is not exactly 0 where a score is the largest: with scores this
            // large it overflows. And V that fp16 can just hold.
            for (const Kind kind : {Kind::huge_equal, Kind::large_values}) {
                add(kind, {5, 70}, static_cast<size_t>(kind));
            }
        }
        if (detect_shapes[s].masked) {
            // Several tiles of keys and a mask at the largest head dim, where tiles are small: of
            // the warps that share a block's tiles, some see fewer than others.
            for (const DType dtype : scope.dtypes) {
                const Case masked{
                    Kind::normal, dtype,
                    make_problem(detect_shapes[s].shape, scope.head_dims.back(), {true, {2, 1}})};
                const auto same = [&](const Case& c) {
                    return c.group() == masked.group() && c.name() == masked.name();
                };
                if (std::ranges::none_of(list.cases, same)) {
                    list.cases.push_back(masked);
                }
            }
        }
        if (detect_shapes[s].six_heads) {
            for (const DType dtype : scope.dtypes) {
                Case six{
                    Kind::normal, dtype,
                    make_problem(detect_shapes[s].shape, scope.head_dims.back(), {false, {2, 1}})};
                six.problem.batch = 3;
                list.cases.push_back(six);
            }
        }
    }
    if (scope.window_and_sink) {
        add_windows(list, scope, detect_window_shapes);
    }
    if (!scope.head_dims_v.empty()) {
        // Three tiles of 128 keys under a mask: the first 64 rows see two of them, and a warpgroup
        // whose rows are beyond the last sees none. It may be two tiles ahead when it lets one
        // pass.
        for (const DType dtype : scope.dtypes) {
            list.cases.push_back(
                {Kind::normal, dtype,
                 make_problem({136, 328}, scope.head_dims.back(), {true, {2, 1}})});
        }
    }
    if (scope.backward) {
        // Four tiles of 128 keys under a mask: where blocks take turns, the order of more than two
        // tiles is seen.
        for (const DType dtype : scope.dtypes) {
            list.cases.push_back({Kind::normal, dtype,
                                  make_problem({40, 500}, scope.head_dims.back(), {true, {2, 1}})});
        }
        turn_backward(list);
    }
    if (scope.head_dims.size() > 1) { // else each kind of input would be for one type
        std::erase_if(list.cases, [&](const Case& c) { return !is_its_types_turn(scope, c); });
    }
    narrow_V(list, scope);
    return list;
}

List schedules(const Scope& scope) {
    List list = detect(scope);
    std::erase_if(list.cases, [&](const Case& c) {
        const bool several_ways = std::ranges::any_of(detect_shapes, [&](const DetectShape& one) {
            return one.in_schedules && one.shape.q_len == c.problem.q_len;
        });
        return !is_its_types_turn(scope, c) ||
               !(c.kind == Kind::rises_200 || (c.kind == Kind::normal && several_ways));
    });
    return list;
}

} // namespace flash::conformance
