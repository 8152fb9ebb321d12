// attention() and its gradients as operators of PyTorch: docs/from_pytorch.md. In C++, because a
// call from a model should cost the host no more than a call of PyTorch's own attention.
//
// What a rung is, which one fits, and how it is built, Python knows: flash_steps/operator.py. It is
// asked once for each kind of tensors, and answers with the addresses of the rung's functions.
#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/DeviceGuard.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <array>
#include <cmath>
#include <map>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <tuple>
#include <vector>

#ifdef FLASH_WITH_CUDA
#include <c10/cuda/CUDAStream.h>
#endif

namespace {

using at::Tensor;
using Text = c10::string_view;

// ---- The rungs.

/// A rung, as Python describes it. The functions are those of common/torch/entry/rung_entry.cu.
struct Found {
    int (*attention)(int bf16, const int64_t* sizes, float scale, int causal, void* const* tensors,
                     void* workspace, int device, void* stream, char* message, size_t message_size);
    int (*attention_paged)(int bf16, const int64_t* sizes, float scale, int causal,
                           const int64_t* cache, void* const* tensors, void* workspace, int device,
                           void* stream, char* message, size_t message_size);
    int (*attention_window)(int bf16, const int64_t* sizes, float scale, int causal, int64_t window,
                            void* const* tensors, void* workspace, int device, void* stream,
                            char* message, size_t message_size);
    int (*attention_packed)(int bf16, const int64_t* sizes, float scale, int causal,
                            const int64_t* totals, void* const* tensors, void* workspace,
                            int device, void* stream, char* message, size_t message_size);
    int64_t (*workspace_bytes)(const int64_t* sizes, int causal);
    int emulated;  // by the SIMT backend, whose kernels take turns
    int unordered; // it adds to dQ in the order in which blocks come
    char name[100];
    char message[1000]; // where there is no such rung: why
};

/// Of which kind the tensors are, and which rung the caller wants: "" is any.
struct Wanted {
    std::string rung;
    bool backward, ordered; // ordered: with the same bits in every run
    at::ScalarType type;
    int64_t head_dim;
    int64_t head_dim_v = 0; // of V and O; 0: as head_dim
    bool few_queries;       // 16 or fewer for each K/V head, those of its heads together
    int device;             // of a GPU, -1: the CPU
    auto operator<=>(const Wanted&) const = default;
};

/// Fills in `found`. Returns 0; 1 when nothing fits, 2 when it cannot be built. Python sets it.
using Find = int (*)(const char* rung, int backward, int ordered, const char* type,
                     int64_t head_dim, int64_t head_dim_v, int few_queries, int device,
                     Found* found);
Find find_in_python = nullptr;

const char* name_of(at::ScalarType type) {
    return type == at::kHalf ? "fp16" : type == at::kBFloat16 ? "bf16" : "fp32";
}

/// The rung, from a table, or from Python the first time.
const Found& find(const Wanted& wanted) {
    static std::map<Wanted, Found> known;
    static std::shared_mutex mutex;
    {
        const std::shared_lock lock(mutex);
        if (const auto at = known.find(wanted); at != known.end()) {
            return at->second;
        }
    }
    // no lock is held while Python runs, or somebody who has Python's might wait for it
    Found found{};
    const int failed = find_in_python(wanted.rung.c_str(), wanted.backward, wanted.ordered,
                                      name_of(wanted.type), wanted.head_dim, wanted.head_dim_v,
                                      wanted.few_queries, wanted.device, &found);
    TORCH_CHECK_VALUE(failed != 1, found.message);
    TORCH_CHECK(failed == 0 && found.attention != nullptr, found.message);
    const std::unique_lock lock(mutex);
    return known.emplace(wanted, found).first->second;
}

/// The stream on which PyTorch works on this GPU now.
void* current_stream([[maybe_unused]] int device) {
#ifdef FLASH_WITH_CUDA
    return c10::cuda::getCurrentCUDAStream(static_cast<c10::DeviceIndex>(device)).stream();
#else
    TORCH_CHECK(false, "the operator was built without CUDA's headers; start Python anew now that "
                       "there is an nvcc");
#endif
}

/// Runs a rung on these tensors, inputs and outputs in the order of its C entry. `six` are B, H,
/// H_kv, N_q, N_kv and d; `cache` those of a cache in pages, or null; `totals` the tokens on lines
/// of queries and of keys, or null. With a window, 0 for none, the tensors may have a sink among
/// them.
void run(const Wanted& wanted, const Tensor& q, const int64_t (&six)[6], bool causal, double scale,
         std::initializer_list<Tensor> tensors, const int64_t* cache = nullptr,
         std::optional<int64_t> window = {}, const int64_t* totals = nullptr) {
    const auto factor = static_cast<float>(scale);
    TORCH_CHECK_VALUE(std::isfinite(factor) && factor > 0, "scale is ", scale,
                      "; as an fp32 number it must be finite and > 0");
    const Found& rung = find(wanted);
    const int64_t sizes[] = {six[0], six[1], six[2], six[3], six[4], six[5], wanted.head_dim_v};
    if (rung.unordered != 0) {
        // refuses, if the caller has asked PyTorch to
        at::globalContext().alertNotDeterministic(rung.name);
    }
    std::vector<void*> pointers;
    for (const Tensor& tensor : tensors) {
        pointers.push_back(tensor.defined() ? tensor.data_ptr() : nullptr);
    }
    // Freed on return, though the rung may still run: PyTorch gives the memory to later work on
    // this stream alone.
    Tensor workspace;
    if (const int64_t bytes = rung.workspace_bytes(sizes, causal); bytes > 0) {
        workspace = at::empty({bytes}, q.options().dtype(at::kByte));
    }
    static std::mutex one_kernel;
    const auto turn =
        rung.emulated != 0 ? std::unique_lock(one_kernel) : std::unique_lock<std::mutex>();
    char message[1000];
    const int bf16 = wanted.type == at::kBFloat16;
    void* const memory = workspace.defined() ? workspace.data_ptr() : nullptr;
    const int device = wanted.device >= 0 ? wanted.device : 0;
    void* const stream = wanted.device >= 0 ? current_stream(wanted.device) : nullptr;
    const int failed =
        window ? rung.attention_window(bf16, sizes, factor, causal, *window, pointers.data(),
                                       memory, device, stream, message, sizeof message)
        : totals != nullptr
            ? rung.attention_packed(bf16, sizes, factor, causal, totals, pointers.data(), memory,
                                    device, stream, message, sizeof message)
        : cache == nullptr
            ? rung.attention(bf16, sizes, factor, causal, pointers.data(), memory, device, stream,
                             message, sizeof message)
            : rung.attention_paged(bf16, sizes, factor, causal, cache, pointers.data(), memory,
                                   device, stream, message, sizeof message);
    TORCH_CHECK_VALUE(failed != 2, rung.name, ": ", message);
    TORCH_CHECK(failed == 0, rung.name, ": ", message);
}

void run(const Wanted& wanted, const Tensor& q, const Tensor& k, bool causal, double scale,
         std::initializer_list<Tensor> tensors) {
    const int64_t sizes[] = {q.size(0), q.size(1), k.size(1), q.size(2), k.size(2), q.size(3)};
    run(wanted, q, sizes, causal, scale, tensors);
}

int gpu_of(const Tensor& q) { return q.is_cuda() ? q.device().index() : -1; }

// ---- What a caller is told.

/// As Python writes it: "(1, 4, 100, 64)".
std::string shape(const Tensor& tensor) {
    std::string text = "(";
    for (const int64_t size : tensor.sizes()) {
        text += (text.size() > 1 ? ", " : "") + std::to_string(size);
    }
    return text + ")";
}

std::string type(const Tensor& tensor) {
    const std::map<at::ScalarType, std::string> as_in_python = {
        {at::kFloat, "float32"},  {at::kHalf, "float16"}, {at::kBFloat16, "bfloat16"},
        {at::kDouble, "float64"}, {at::kLong, "int64"},   {at::kInt, "int32"},
        {at::kShort, "int16"},    {at::kChar, "int8"},    {at::kByte, "uint8"},
        {at::kBool, "bool"}};
    const auto known = as_in_python.find(tensor.scalar_type());
    return "torch." + (known != as_in_python.end() ? known->second
                                                   : std::string(toString(tensor.scalar_type())));
}

void check_device(const char* name, const Tensor& x, const Tensor& q) {
    TORCH_CHECK_VALUE(x.device() == q.device(), "q is on ", q.device(), " and ", name, " is on ",
                      x.device(), "; they must be on the same device");
}

using Named = std::pair<const char*, const Tensor&>;

/// Throws unless these are of a rung's type, on q's device, with so many dimensions, and not empty.
void check_kind(std::initializer_list<Named> all, const Tensor& q, int64_t dimensions,
                const char* names) {
    for (const auto& [name, x] : all) {
        TORCH_CHECK_TYPE(x.scalar_type() == at::kFloat || x.scalar_type() == at::kHalf ||
                             x.scalar_type() == at::kBFloat16,
                         name, " is ", type(x),
                         "; the rungs compute in float32, float16 or bfloat16");
        TORCH_CHECK_TYPE(x.scalar_type() == q.scalar_type(), "q is ", type(q), " and ", name,
                         " is ", type(x), "; they must be the same");
        check_device(name, x, q);
        TORCH_CHECK_VALUE(x.dim() == dimensions, name, " has ", x.dim(), " dimensions; ", names,
                          " is expected");
        TORCH_CHECK_VALUE(x.numel() > 0, name, " is empty: its shape is ", shape(x));
    }
}

/// Throws unless the rows are where a rung can read them.
void check_rows(std::initializer_list<Named> all) {
    for (const auto& [name, x] : all) {
        TORCH_CHECK_VALUE(
            x.is_contiguous(), name,
            " is not contiguous; a rung reads rows that lie one after the other: pass ", name,
            ".contiguous()");
        TORCH_CHECK_VALUE(reinterpret_cast<uintptr_t>(x.data_ptr()) % 16 == 0, name,
                          " does not begin at a multiple of 16 bytes; pass ", name, ".clone()");
    }
}

/// Throws unless these are Q, K and V of a problem, where a rung can read them.
void check(const Tensor& q, const Tensor& k, const Tensor& v) {
    check_kind({{"q", q}, {"k", k}, {"v", v}}, q, 4, "(batch, heads, length, head dim)");
    TORCH_CHECK_VALUE(k.sizes().slice(0, 3) == v.sizes().slice(0, 3), "k is ", shape(k),
                      " and v is ", shape(v), "; all but the head dim must be the same");
    TORCH_CHECK_VALUE(q.size(0) == k.size(0) && q.size(3) == k.size(3), "q is ", shape(q),
                      " and k is ", shape(k), "; batch and head dim must be the same");
    TORCH_CHECK_VALUE(q.size(1) % k.size(1) == 0, "q has ", q.size(1), " heads and k has ",
                      k.size(1), "; the first must be a multiple of the second");
    check_rows({{"q", q}, {"k", k}, {"v", v}});
}

/// Throws unless these are Q, K and V of sequences on a line. What cu_seqlens hold nobody looks at:
/// on a GPU the host would have to wait for it.
void check_packed(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& cu_seqlens_q,
                  const Tensor& cu_seqlens_kv) {
    check_kind({{"q", q}, {"k", k}, {"v", v}}, q, 3, "(tokens, heads, head dim)");
    TORCH_CHECK_VALUE(k.sizes() == v.sizes() && q.size(2) == k.size(2), "q is ", shape(q),
                      ", k is ", shape(k), " and v is ", shape(v),
                      "; k and v must have the same shape, and q their head dim");
    TORCH_CHECK_VALUE(q.size(1) % k.size(1) == 0, "q has ", q.size(1), " heads and k has ",
                      k.size(1), "; the first must be a multiple of the second");
    check_rows({{"q", q}, {"k", k}, {"v", v}});
    for (const auto& [name, x] :
         {Named{"cu_seqlens_q", cu_seqlens_q}, Named{"cu_seqlens_kv", cu_seqlens_kv}}) {
        TORCH_CHECK_TYPE(x.scalar_type() == at::kInt, name, " is ", type(x),
                         "; torch.int32 is expected");
        check_device(name, x, q);
        TORCH_CHECK_VALUE(x.dim() == 1 && x.size(0) > 1 && x.size(0) == cu_seqlens_q.size(0) &&
                              x.is_contiguous(),
                          name, " is ", shape(x), " and cu_seqlens_q ", shape(cu_seqlens_q),
                          "; both are expected to have a number more than there are sequences");
    }
}

/// Strides of pages, heads and keys. Where there is but one, nothing is ever multiplied by its
/// stride, and PyTorch lets it be any number: 0 here.
std::array<int64_t, 3> strides_of(const Tensor& pages) {
    std::array<int64_t, 3> strides{};
    for (int64_t side = 0; side < 3; ++side) {
        strides[side] = pages.size(side) > 1 ? pages.stride(side) : 0;
    }
    return strides;
}

/// Throws unless these are Q, and K and V in pages. What table and lengths hold nobody looks at:
/// on a GPU the host would have to wait for it.
void check_paged(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& table,
                 const Tensor& lengths) {
    check(q, q, q);
    const std::pair<const char*, const Tensor&> pages[] = {{"k_pages", k}, {"v_pages", v}};
    for (const auto& [name, x] : pages) {
        TORCH_CHECK_TYPE(x.scalar_type() == q.scalar_type(), "q is ", type(q), " and ", name,
                         " is ", type(x), "; they must be the same");
        check_device(name, x, q);
        TORCH_CHECK_VALUE(x.dim() == 4 && x.numel() > 0 && x.size(3) == q.size(3), name, " is ",
                          shape(x), "; (pages, heads, keys in a page, head dim ", q.size(3),
                          ") is expected");
        TORCH_CHECK_VALUE(
            x.stride(3) == 1 && reinterpret_cast<uintptr_t>(x.data_ptr()) % 16 == 0, name,
            " must have rows that lie in one piece and begin at multiples of 16 bytes");
    }
    TORCH_CHECK_VALUE(k.sizes() == v.sizes() && strides_of(k) == strides_of(v), "k_pages is ",
                      shape(k), " and v_pages is ", shape(v),
                      "; shapes and strides must be the same");
    TORCH_CHECK_VALUE(k.size(2) % 16 == 0, "k_pages has ", k.size(2),
                      " keys in a page; a multiple of 16 is expected");
    for (const int64_t stride : strides_of(k)) {
        TORCH_CHECK_VALUE(stride % 8 == 0, "k_pages has strides ", k.strides(),
                          "; multiples of 8 elements are expected");
    }
    TORCH_CHECK_VALUE(q.size(1) % k.size(1) == 0, "q has ", q.size(1), " heads and k_pages has ",
                      k.size(1), "; the first must be a multiple of the second");
    const std::pair<const char*, const Tensor&> numbers[] = {{"table", table},
                                                             {"lengths", lengths}};
    for (const auto& [name, x] : numbers) {
        TORCH_CHECK_TYPE(x.scalar_type() == at::kInt, name, " is ", type(x),
                         "; torch.int32 is expected");
        check_device(name, x, q);
        TORCH_CHECK_VALUE(x.is_contiguous(), name, " is not contiguous; pass ", name,
                          ".contiguous()");
    }
    TORCH_CHECK_VALUE(table.dim() == 2 && table.size(0) == q.size(0) && table.size(1) > 0,
                      "table is ", shape(table), "; (batch ", q.size(0),
                      ", most pages of a sequence) is expected");
    TORCH_CHECK_VALUE(lengths.dim() == 1 && lengths.size(0) == q.size(0), "lengths is ",
                      shape(lengths), "; (batch ", q.size(0), ",) is expected");
}

// ---- The operators.

using Forward = std::tuple<Tensor, Tensor>(const Tensor&, const Tensor&, const Tensor&, bool,
                                           double, Text, Text);
using Paged = std::tuple<Tensor, Tensor>(const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                                         const Tensor&, bool, double);
using Window = std::tuple<Tensor, Tensor>(const Tensor&, const Tensor&, const Tensor&,
                                          const std::optional<Tensor>&, int64_t, bool, double, Text,
                                          Text);
using Packed = std::tuple<Tensor, Tensor>(const Tensor&, const Tensor&, const Tensor&,
                                          const Tensor&, const Tensor&, int64_t, int64_t, bool,
                                          double);
using Backward = std::tuple<Tensor, Tensor, Tensor>(const Tensor&, const Tensor&, const Tensor&,
                                                    const Tensor&, const Tensor&, const Tensor&,
                                                    bool, double, Text);

using WindowBackward = std::tuple<Tensor, Tensor, Tensor, Tensor>(
    const Tensor&, const Tensor&, const Tensor&, const std::optional<Tensor>&, const Tensor&,
    const Tensor&, const Tensor&, int64_t, bool, double, Text);

template <class Function> c10::TypedOperatorHandle<Function> operator_named(const char* name) {
    return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Function>();
}

/// O and LSE.
std::tuple<Tensor, Tensor> attention(const Tensor& q, const Tensor& k, const Tensor& v, bool causal,
                                     double scale, Text rung, Text /*backward_rung*/) {
    check(q, k, v);
    const c10::OptionalDeviceGuard guard(q.device());
    Tensor o = at::empty({q.size(0), q.size(1), q.size(2), v.size(3)}, q.options());
    Tensor lse = at::empty({q.size(0), q.size(1), q.size(2)}, q.options().dtype(at::kFloat));
    const bool few_queries = k.size(1) > 0 && q.size(1) / k.size(1) * q.size(2) <= 16;
    const Wanted wanted{.rung = {rung.data(), rung.size()},
                        .backward = false,
                        .ordered = false,
                        .type = q.scalar_type(),
                        .head_dim = q.size(3),
                        .head_dim_v = v.size(3),
                        .few_queries = few_queries,
                        .device = gpu_of(q)};
    run(wanted, q, k, causal, scale, {q, k, v, o, lse});
    return {o, lse};
}

/// O and LSE from K and V in pages.
std::tuple<Tensor, Tensor> attention_paged(const Tensor& q, const Tensor& k, const Tensor& v,
                                           const Tensor& table, const Tensor& lengths, bool causal,
                                           double scale) {
    check_paged(q, k, v, table, lengths);
    const c10::OptionalDeviceGuard guard(q.device());
    Tensor o = at::empty_like(q);
    Tensor lse = at::empty({q.size(0), q.size(1), q.size(2)}, q.options().dtype(at::kFloat));
    const Wanted wanted{.rung = "paged_kv",
                        .backward = false,
                        .ordered = false,
                        .type = q.scalar_type(),
                        .head_dim = q.size(3),
                        .few_queries = true,
                        .device = gpu_of(q)};
    const int64_t sizes[] = {q.size(0), q.size(1), k.size(1), q.size(2), table.size(1) * k.size(2),
                             q.size(3)};
    const auto [page_stride, head_stride, row_stride] = strides_of(k);
    const int64_t cache[] = {k.size(0),  page_stride, head_stride,
                             row_stride, k.size(2),   table.size(1)};
    run(wanted, q, sizes, causal, scale, {q, k, v, table, lengths, o, lse}, cache);
    return {o, lse};
}

/// O (total_q, H, d) and LSE (H, total_q) of sequences on a line, none of them longer than max_q
/// and max_kv.
std::tuple<Tensor, Tensor> attention_packed(const Tensor& q, const Tensor& k, const Tensor& v,
                                            const Tensor& cu_seqlens_q, const Tensor& cu_seqlens_kv,
                                            int64_t max_q, int64_t max_kv, bool causal,
                                            double scale) {
    check_packed(q, k, v, cu_seqlens_q, cu_seqlens_kv);
    const c10::OptionalDeviceGuard guard(q.device());
    Tensor o = at::empty_like(q);
    Tensor lse = at::empty({q.size(1), q.size(0)}, q.options().dtype(at::kFloat));
    const Wanted wanted{.rung = "packed_sequences",
                        .backward = false,
                        .ordered = false,
                        .type = q.scalar_type(),
                        .head_dim = q.size(2),
                        .few_queries = false,
                        .device = gpu_of(q)};
    const int64_t sizes[] = {
        cu_seqlens_q.size(0) - 1, q.size(1), k.size(1), max_q, max_kv, q.size(2)};
    const int64_t totals[] = {q.size(0), k.size(0)};
    run(wanted, q, sizes, causal, scale, {q, k, v, cu_seqlens_q, cu_seqlens_kv, o, lse}, nullptr,
        {}, totals);
    return {o, lse};
}

/// O and LSE with a window, 0 for none, and a sink or none.
std::tuple<Tensor, Tensor> attention_window(const Tensor& q, const Tensor& k, const Tensor& v,
                                            const std::optional<Tensor>& sink, int64_t window,
                                            bool causal, double scale, Text rung,
                                            Text /*backward_rung*/) {
    check(q, k, v);
    if (sink) {
        TORCH_CHECK_TYPE(sink->scalar_type() == at::kFloat, "sink is ", type(*sink),
                         "; torch.float32 is expected");
        check_device("sink", *sink, q);
        TORCH_CHECK_VALUE(sink->dim() == 1 && sink->size(0) == q.size(1) && sink->is_contiguous(),
                          "sink is ", shape(*sink), "; a logit for each of the ", q.size(1),
                          " heads of q is expected");
    }
    const c10::OptionalDeviceGuard guard(q.device());
    Tensor o = at::empty_like(q);
    Tensor lse = at::empty({q.size(0), q.size(1), q.size(2)}, q.options().dtype(at::kFloat));
    const Wanted wanted{.rung = {rung.data(), rung.size()},
                        .backward = false,
                        .ordered = false,
                        .type = q.scalar_type(),
                        .head_dim = q.size(3),
                        .head_dim_v = v.size(3),
                        .few_queries = false,
                        .device = gpu_of(q)};
    const int64_t sizes[] = {q.size(0), q.size(1), k.size(1), q.size(2), k.size(2), q.size(3)};
    run(wanted, q, sizes, causal, scale, {q, k, v, sink.value_or(Tensor()), o, lse}, nullptr,
        window);
    return {o, lse};
}

/// dO, autograd's and often a view of one number, as rows that a rung can read.
Tensor rows_of(const Tensor& d_o) {
    const Tensor rows = d_o.contiguous();
    return reinterpret_cast<uintptr_t>(rows.data_ptr()) % 16 != 0 ? rows.clone() : rows;
}

/// dQ, dK and dV. By the fastest rung that fits, or, where PyTorch is to be deterministic, by one
/// that gives the same bits in every run.
std::tuple<Tensor, Tensor, Tensor> attention_backward(const Tensor& q, const Tensor& k,
                                                      const Tensor& v, const Tensor& o,
                                                      const Tensor& lse, const Tensor& d_o,
                                                      bool causal, double scale, Text rung) {
    const c10::OptionalDeviceGuard guard(q.device());
    Tensor dq = at::empty_like(q), dk = at::empty_like(k), dv = at::empty_like(v);
    const bool ordered = rung.empty() && at::globalContext().deterministicAlgorithms();
    const Wanted wanted{.rung = {rung.data(), rung.size()},
                        .backward = true,
                        .ordered = ordered,
                        .type = q.scalar_type(),
                        .head_dim = q.size(3),
                        .head_dim_v = v.size(3),
                        .few_queries = false,
                        .device = gpu_of(q)};
    run(wanted, q, k, causal, scale, {q, k, v, o, lse, rows_of(d_o), dq, dk, dv});
    return {dq, dk, dv};
}

/// dQ, dK, dV and dsink, which is empty without a sink.
std::tuple<Tensor, Tensor, Tensor, Tensor>
attention_window_backward(const Tensor& q, const Tensor& k, const Tensor& v,
                          const std::optional<Tensor>& sink, const Tensor& o, const Tensor& lse,
                          const Tensor& d_o, int64_t window, bool causal, double scale, Text rung) {
    const c10::OptionalDeviceGuard guard(q.device());
    Tensor dq = at::empty_like(q), dk = at::empty_like(k), dv = at::empty_like(v);
    Tensor dsink = at::empty({sink ? q.size(1) : 0}, q.options().dtype(at::kFloat));
    const Wanted wanted{.rung = {rung.data(), rung.size()},
                        .backward = true,
                        .ordered = false,
                        .type = q.scalar_type(),
                        .head_dim = q.size(3),
                        .few_queries = false,
                        .device = gpu_of(q)};
    const int64_t sizes[] = {q.size(0), q.size(1), k.size(1), q.size(2), k.size(2), q.size(3)};
    run(wanted, q, sizes, causal, scale,
        {q, k, v, sink.value_or(Tensor()), o, lse, rows_of(d_o), dq, dk, dv, dsink}, nullptr,
        window);
    return {dq, dk, dv, dsink};
}

/// What the outputs look like, from tensors that have a shape and a type but no numbers.
std::tuple<Tensor, Tensor> attention_shapes(const Tensor& q, const Tensor& k, const Tensor& v, bool,
                                            double, Text, Text) {
    check_device("k", k, q);
    check_device("v", v, q);
    return {
        at::empty_symint({q.sym_size(0), q.sym_size(1), q.sym_size(2), v.sym_size(3)}, q.options()),
        at::empty_symint(q.sym_sizes().slice(0, 3), q.options().dtype(at::kFloat))};
}

std::tuple<Tensor, Tensor> attention_paged_shapes(const Tensor& q, const Tensor&, const Tensor&,
                                                  const Tensor&, const Tensor&, bool, double) {
    return {at::empty_like(q),
            at::empty_symint(q.sym_sizes().slice(0, 3), q.options().dtype(at::kFloat))};
}

std::tuple<Tensor, Tensor> attention_packed_shapes(const Tensor& q, const Tensor& k,
                                                   const Tensor& v, const Tensor& cu_seqlens_q,
                                                   const Tensor& cu_seqlens_kv, int64_t, int64_t,
                                                   bool, double) {
    check_device("k", k, q);
    check_device("v", v, q);
    check_device("cu_seqlens_q", cu_seqlens_q, q);
    check_device("cu_seqlens_kv", cu_seqlens_kv, q);
    return {at::empty_like(q),
            at::empty_symint({q.sym_size(1), q.sym_size(0)}, q.options().dtype(at::kFloat))};
}

std::tuple<Tensor, Tensor> attention_window_shapes(const Tensor& q, const Tensor&, const Tensor&,
                                                   const std::optional<Tensor>&, int64_t, bool,
                                                   double, Text, Text) {
    return {at::empty_like(q),
            at::empty_symint(q.sym_sizes().slice(0, 3), q.options().dtype(at::kFloat))};
}

std::tuple<Tensor, Tensor, Tensor> attention_backward_shapes(const Tensor& q, const Tensor& k,
                                                             const Tensor& v, const Tensor&,
                                                             const Tensor&, const Tensor&, bool,
                                                             double, Text) {
    return {at::empty_like(q), at::empty_like(k), at::empty_like(v)};
}

std::tuple<Tensor, Tensor, Tensor, Tensor>
attention_window_backward_shapes(const Tensor& q, const Tensor& k, const Tensor& v,
                                 const std::optional<Tensor>& sink, const Tensor&, const Tensor&,
                                 const Tensor&, int64_t, bool, double, Text) {
    const c10::SymInt logits = sink ? q.sym_size(1) : c10::SymInt(0);
    return {at::empty_like(q), at::empty_like(k), at::empty_like(v),
            at::empty_symint({logits}, q.options().dtype(at::kFloat))};
}

/// What autograd has to know: which tensors to keep, and how gradients come from them.
class Attention : public torch::autograd::Function<Attention> {
  public:
    static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context,
                                                  const Tensor& q, const Tensor& k, const Tensor& v,
                                                  bool causal, double scale,
                                                  const std::string& rung,
                                                  const std::string& backward_rung) {
        const at::AutoDispatchBelowADInplaceOrView below; // to the functions above
        static const auto attention = operator_named<Forward>("flash_steps::attention");
        auto [o, lse] = attention.call(q, k, v, causal, scale, rung, backward_rung);
        context->mark_non_differentiable({lse});
        context->save_for_backward({q, k, v, o, lse});
        context->saved_data["causal"] = causal;
        context->saved_data["scale"] = scale;
        context->saved_data["rung"] = backward_rung;
        return {o, lse};
    }

    static torch::autograd::variable_list
    backward(torch::autograd::AutogradContext* context,
             const torch::autograd::variable_list& gradients) {
        static const auto attention_backward =
            operator_named<Backward>("flash_steps::attention_backward");
        const auto kept = context->get_saved_variables();
        const std::string rung = context->saved_data["rung"].toStringRef();
        auto [dq, dk, dv] = attention_backward.call(
            kept[0], kept[1], kept[2], kept[3], kept[4], gradients[0],
            context->saved_data["causal"].toBool(), context->saved_data["scale"].toDouble(), rung);
        return {dq, dk, dv, Tensor(), Tensor(), Tensor(), Tensor()};
    }
};

/// The same with a window, 0 for none, and a sink or none.
class AttentionInWindow : public torch::autograd::Function<AttentionInWindow> {
  public:
    static torch::autograd::variable_list
    forward(torch::autograd::AutogradContext* context, const Tensor& q, const Tensor& k,
            const Tensor& v, const std::optional<Tensor>& sink, int64_t window, bool causal,
            double scale, const std::string& rung, const std::string& backward_rung) {
        const at::AutoDispatchBelowADInplaceOrView below;
        static const auto attention = operator_named<Window>("flash_steps::attention_window");
        auto [o, lse] = attention.call(q, k, v, sink, window, causal, scale, rung, backward_rung);
        context->mark_non_differentiable({lse});
        context->save_for_backward({q, k, v, sink.value_or(Tensor()), o, lse});
        context->saved_data["window"] = window;
        context->saved_data["causal"] = causal;
        context->saved_data["scale"] = scale;
        context->saved_data["rung"] = backward_rung;
        return {o, lse};
    }

    static torch::autograd::variable_list
    backward(torch::autograd::AutogradContext* context,
             const torch::autograd::variable_list& gradients) {
        static const auto attention_backward =
            operator_named<WindowBackward>("flash_steps::attention_window_backward");
        const auto kept = context->get_saved_variables();
        const bool has_sink = kept[3].defined();
        const std::string rung = context->saved_data["rung"].toStringRef();
        auto [dq, dk, dv, dsink] = attention_backward.call(
            kept[0], kept[1], kept[2], has_sink ? std::optional(kept[3]) : std::nullopt, kept[4],
            kept[5], gradients[0], context->saved_data["window"].toInt(),
            context->saved_data["causal"].toBool(), context->saved_data["scale"].toDouble(), rung);
        return {dq,       dk,       dv,      has_sink ? dsink : Tensor(), Tensor(), Tensor(),
                Tensor(), Tensor(), Tensor()};
    }
};

/// Whether autograd has to know. Unnoticed, a forward-mode derivative would be 0.
bool needs_gradients(std::initializer_list<Tensor> tensors) {
    bool any = false;
    for (const Tensor& x : tensors) {
        TORCH_CHECK_NOT_IMPLEMENTED(!x.defined() || !x._fw_grad(/*level=*/0).defined(),
                                    "attention has no forward-mode derivative; in reverse mode, "
                                    "torch.autograd.grad or torch.func.jacrev, it has one");
        any = any || (x.defined() && x.requires_grad());
    }
    return at::GradMode::is_enabled() && any;
}

std::tuple<Tensor, Tensor> attention_with_autograd(const Tensor& q, const Tensor& k,
                                                   const Tensor& v, bool causal, double scale,
                                                   Text rung, Text backward_rung) {
    if (needs_gradients({q, k, v})) {
        const auto results =
            Attention::apply(q, k, v, causal, scale, std::string(rung.data(), rung.size()),
                             std::string(backward_rung.data(), backward_rung.size()));
        return {results[0], results[1]};
    }
    const at::AutoDispatchBelowADInplaceOrView below;
    static const auto attention = operator_named<Forward>("flash_steps::attention");
    return attention.call(q, k, v, causal, scale, rung, backward_rung);
}

std::tuple<Tensor, Tensor> attention_window_with_autograd(const Tensor& q, const Tensor& k,
                                                          const Tensor& v,
                                                          const std::optional<Tensor>& sink,
                                                          int64_t window, bool causal, double scale,
                                                          Text rung, Text backward_rung) {
    if (needs_gradients({q, k, v, sink.value_or(Tensor())})) {
        const auto results = AttentionInWindow::apply(
            q, k, v, sink, window, causal, scale, std::string(rung.data(), rung.size()),
            std::string(backward_rung.data(), backward_rung.size()));
        return {results[0], results[1]};
    }
    const at::AutoDispatchBelowADInplaceOrView below;
    static const auto attention = operator_named<Window>("flash_steps::attention_window");
    return attention.call(q, k, v, sink, window, causal, scale, rung, backward_rung);
}

// ---- Under torch.autocast, tensors get its type, as those of PyTorch's own attention do.

class InTypeOfAutocast {
  public:
    explicit InTypeOfAutocast(const Tensor& q) : device_(q.device().type()) {}
    Tensor operator()(const Tensor& x) const {
        return at::autocast::cached_cast(at::autocast::get_autocast_dtype(device_), x, device_);
    }

  private:
    c10::DeviceType device_;
    // what is called below is not cast again
    c10::impl::ExcludeDispatchKeyGuard below_{c10::autocast_dispatch_keyset};
};

std::tuple<Tensor, Tensor> attention_with_autocast(const Tensor& q, const Tensor& k,
                                                   const Tensor& v, bool causal, double scale,
                                                   Text rung, Text backward_rung) {
    const InTypeOfAutocast cast(q);
    static const auto attention = operator_named<Forward>("flash_steps::attention");
    return attention.call(cast(q), cast(k), cast(v), causal, scale, rung, backward_rung);
}

/// The pages stay as they are: they are too large to be copied at each call.
std::tuple<Tensor, Tensor> attention_paged_with_autocast(const Tensor& q, const Tensor& k,
                                                         const Tensor& v, const Tensor& table,
                                                         const Tensor& lengths, bool causal,
                                                         double scale) {
    const InTypeOfAutocast cast(q);
    static const auto attention = operator_named<Paged>("flash_steps::attention_paged");
    return attention.call(cast(q), k, v, table, lengths, causal, scale);
}

std::tuple<Tensor, Tensor>
attention_packed_with_autocast(const Tensor& q, const Tensor& k, const Tensor& v,
                               const Tensor& cu_seqlens_q, const Tensor& cu_seqlens_kv,
                               int64_t max_q, int64_t max_kv, bool causal, double scale) {
    const InTypeOfAutocast cast(q);
    static const auto attention = operator_named<Packed>("flash_steps::attention_packed");
    return attention.call(cast(q), cast(k), cast(v), cu_seqlens_q, cu_seqlens_kv, max_q, max_kv,
                          causal, scale);
}

std::tuple<Tensor, Tensor> attention_window_with_autocast(const Tensor& q, const Tensor& k,
                                                          const Tensor& v,
                                                          const std::optional<Tensor>& sink,
                                                          int64_t window, bool causal, double scale,
                                                          Text rung, Text backward_rung) {
    const InTypeOfAutocast cast(q);
    static const auto attention = operator_named<Window>("flash_steps::attention_window");
    return attention.call(cast(q), cast(k), cast(v), sink, window, causal, scale, rung,
                          backward_rung);
}

} // namespace

TORCH_LIBRARY(flash_steps, library) {
    const std::vector<at::Tag> tags = {at::Tag::pt2_compliant_tag,
                                       at::Tag::needs_fixed_stride_order};
    library.def("attention(Tensor q, Tensor k, Tensor v, bool causal, float scale, str rung, str "
                "backward_rung)"
                " -> (Tensor o, Tensor lse)",
                tags);
    library.def("attention_paged(Tensor q, Tensor k_pages, Tensor v_pages, Tensor table, Tensor "
                "lengths, bool causal, float scale) -> (Tensor o, Tensor lse)",
                tags);
    library.def("attention_window(Tensor q, Tensor k, Tensor v, Tensor? sink, int window, bool "
                "causal, float scale, str rung, str backward_rung) -> (Tensor o, Tensor lse)",
                tags);
    library.def("attention_window_backward(Tensor q, Tensor k, Tensor v, Tensor? sink, Tensor o, "
                "Tensor lse, Tensor do, int window, bool causal, float scale, str rung)"
                " -> (Tensor dq, Tensor dk, Tensor dv, Tensor dsink)",
                tags);
    library.def("attention_packed(Tensor q, Tensor k, Tensor v, Tensor cu_seqlens_q, Tensor "
                "cu_seqlens_kv, int max_q, int max_kv, bool causal, float scale) -> (Tensor o, "
                "Tensor lse)",
                tags);
    library.def("attention_backward(Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse, Tensor do, "
                "bool causal, "
                "float scale, str rung) -> (Tensor dq, Tensor dk, Tensor dv)",
                tags);
}
TORCH_LIBRARY_IMPL(flash_steps, CPU, library) {
    library.impl("attention", attention);
    library.impl("attention_paged", attention_paged);
    library.impl("attention_window", attention_window);
    library.impl("attention_window_backward", attention_window_backward);
    library.impl("attention_packed", attention_packed);
    library.impl("attention_backward", attention_backward);
}
TORCH_LIBRARY_IMPL(flash_steps, CUDA, library) {
    library.impl("attention", attention);
    library.impl("attention_paged", attention_paged);
    library.impl("attention_window", attention_window);
    library.impl("attention_window_backward", attention_window_backward);
    library.impl("attention_packed", attention_packed);
    library.impl("attention_backward", attention_backward);
}
TORCH_LIBRARY_IMPL(flash_steps, Meta, library) {
    library.impl("attention", attention_shapes);
    library.impl("attention_paged", attention_paged_shapes);
    library.impl("attention_window", attention_window_shapes);
    library.impl("attention_window_backward", attention_window_backward_shapes);
    library.impl("attention_packed", attention_packed_shapes);
    library.impl("attention_backward", attention_backward_shapes);
}
TORCH_LIBRARY_IMPL(flash_steps, Autograd, library) {
    library.impl("attention", attention_with_autograd);
    library.impl("attention_paged", torch::autograd::autogradNotImplementedFallback());
    library.impl("attention_window", attention_window_with_autograd);
    library.impl("attention_window_backward", torch::autograd::autogradNotImplementedFallback());
    library.impl("attention_packed", torch::autograd::autogradNotImplementedFallback());
    library.impl("attention_backward", torch::autograd::autogradNotImplementedFallback());
}
TORCH_LIBRARY_IMPL(flash_steps, AutocastCPU, library) {
    library.impl("attention", attention_with_autocast);
    library.impl("attention_paged", attention_paged_with_autocast);
    library.impl("attention_window", attention_window_with_autocast);
    library.impl("attention_packed", attention_packed_with_autocast);
}
TORCH_LIBRARY_IMPL(flash_steps, AutocastCUDA, library) {
    library.impl("attention", attention_with_autocast);
    library.impl("attention_paged", attention_paged_with_autocast);
    library.impl("attention_window", attention_window_with_autocast);
    library.impl("attention_packed", attention_packed_with_autocast);
}

extern "C" void flash_steps_find_with(Find find) { find_in_python = find; }
