// A rung as a function of C, so that Python can call it on tensors that are already where the rung
// works. scripts/lab and common/torch compile this file once for each rung: with nvcc for a GPU,
// with g++ for the CPU. They define
//   RUNG_HEADER     "steps/NN_name/name.hpp"
//   RUNG            its namespace, which has its name
//   RUNG_FP32       where it computes in fp32 alone
//   RUNG_BACKWARD   where it computes gradients
//   RUNG_ON_SIMT    where the SIMT backend runs it
#include RUNG_HEADER

#include <cstdint>
#include <cstdio>
#include <exception>
#include <stdexcept>

#include "common/attention.hpp"
#include "common/paged_kv.hpp"
#include "common/rung_function.hpp"
#include "common/types.hpp"
#if defined(__CUDACC__)
#include "common/cuda/launch/error.hpp"
#include "common/cuda/launch/stream.hpp"
#elif defined(RUNG_ON_SIMT)
#include <algorithm>
#include <list>
#include <vector>

#include "common/cuda/launch/device_buffer.hpp"
#else
#include <omp.h>
#include <pthread.h>
#endif

namespace of_no_rung {
/// Is called where the rung has none of its own, since that is no template, and preferred.
template <class Problem> int64_t workspace_bytes(const Problem&) { return 0; }
template <class T> void attention_paged(...) {
    throw flash::Error("it does not read K and V from pages");
}
} // namespace of_no_rung
using namespace of_no_rung;
using namespace RUNG;

namespace {

template <class T> T* at(void* tensor) { return static_cast<T*>(tensor); }

#ifdef RUNG_BACKWARD
template <class T> flash::Backward<T> function() { return RUNG::attention_backward; }
#else
/// A rung for lines of tokens has another one.
template <class T> constexpr bool on_tensors = requires { flash::Forward<T>(RUNG::attention); };
template <class T> flash::Forward<T> function() {
    if constexpr (on_tensors<T>) {
        return RUNG::attention;
    } else {
        throw std::invalid_argument("it takes sequences on a line: attention_packed");
    }
}
#endif

template <class T> void start(const flash::Problem& p, void* const* x, void* workspace) {
#ifdef RUNG_BACKWARD
    function<T>()(p, at<T>(x[0]), at<T>(x[1]), at<T>(x[2]), at<T>(x[3]), at<float>(x[4]),
                  at<T>(x[5]), at<T>(x[6]), at<T>(x[7]), at<T>(x[8]), workspace);
#else
    function<T>()(p, at<T>(x[0]), at<T>(x[1]), at<T>(x[2]), at<T>(x[3]), at<float>(x[4]),
                  workspace);
#endif
}

/// What the caller brings; a CPU rung allocates its workspace itself.
template <class T> int64_t workspace_of(const flash::Problem& p) {
#ifndef RUNG_BACKWARD
    if constexpr (!on_tensors<T>) {
        return workspace_bytes(p);
    }
#endif
    return function<T>().takes_workspace() ? workspace_bytes(p) : 0;
}

#ifdef RUNG_ON_SIMT
/// The emulated GPU has a memory of its own, in which it knows where each tensor ends: copied there
/// and back. It has a workspace of its own, too.
template <size_t tensors, class Start>
void on_device(const char* const (&names)[tensors], const int64_t (&bytes)[tensors], size_t inputs,
               void* const* x, int64_t workspace_bytes, const Start& start) {
    std::list<flash::DeviceBuffer<char>> buffers; // a list, because they do not move
    std::vector<void*> there;
    for (size_t i = 0; i < tensors; ++i) {
        there.push_back(buffers.emplace_back(bytes[i], names[i]).data());
        if (i < inputs) {
            std::copy_n(at<char>(x[i]), bytes[i], at<char>(there[i]));
        }
    }
    const flash::DeviceBuffer<char> workspace(workspace_bytes, "the workspace");
    start(there.data(), workspace.data());
    for (size_t i = inputs; i < tensors; ++i) {
        std::copy_n(at<char>(there[i]), bytes[i], at<char>(x[i]));
    }
}

template <class T> void run(const flash::Problem& p, void* const* x, void*) {
    const int64_t q = p.q_size() * int64_t{sizeof(T)}, kv = p.kv_size() * int64_t{sizeof(T)};
    const int64_t lse = p.lse_size() * int64_t{sizeof(float)};
#ifdef RUNG_BACKWARD
    const char* const names[] = {"Q", "K", "V", "O", "LSE", "dO", "dQ", "dK", "dV"};
    const int64_t bytes[] = {q, kv, kv, q, lse, q, q, kv, kv};
    const size_t inputs = 6;
#else
    const char* const names[] = {"Q", "K", "V", "O", "LSE"};
    const int64_t bytes[] = {q, kv, p.v_size() * int64_t{sizeof(T)},
                             p.o_size() * int64_t{sizeof(T)}, lse};
    const size_t inputs = 3;
#endif
    on_device(names, bytes, inputs, x, workspace_of<T>(p),
              [&](void* const* there, void* memory) { start<T>(p, there, memory); });
}
#else
template <class T> void run(const flash::Problem& p, void* const* x, void* workspace) {
    start<T>(p, x, workspace);
}
#endif

#if !defined(RUNG_FP32) && !defined(RUNG_BACKWARD)
/// `sizes`: pages, page stride, head stride, row stride, keys in a page, most pages of a sequence.
template <class T>
void start_paged(const flash::Problem& p, const int64_t* sizes, void* const* x, void* workspace) {
    const flash::PagedKV<T> cache{.K = at<T>(x[1]),
                                  .V = at<T>(x[2]),
                                  .page_stride = sizes[1],
                                  .head_stride = sizes[2],
                                  .row_stride = sizes[3],
                                  .page = static_cast<int>(sizes[4]),
                                  .table = at<int>(x[3]),
                                  .most_pages = static_cast<int>(sizes[5]),
                                  .lengths = at<int>(x[4])};
    attention_paged<T>(p, cache, at<T>(x[0]), at<T>(x[5]), at<float>(x[6]), workspace);
}

template <class T>
void run_paged(const flash::Problem& p, const int64_t* sizes, void* const* x, void* workspace) {
#ifdef RUNG_ON_SIMT
    (void)workspace;
    const int64_t q = p.q_size() * int64_t{sizeof(T)};
    // from the first element of all pages to the last one
    const int64_t kv = ((sizes[0] - 1) * sizes[1] + (p.kv_heads - 1) * sizes[2] +
                        (sizes[4] - 1) * sizes[3] + p.head_dim) *
                       int64_t{sizeof(T)};
    const char* const names[] = {"Q", "K", "V", "the table", "the lengths", "O", "LSE"};
    const int64_t bytes[] = {q,
                             kv,
                             kv,
                             p.batch * sizes[5] * int64_t{sizeof(int)},
                             p.batch * int64_t{sizeof(int)},
                             q,
                             p.lse_size() * int64_t{sizeof(float)}};
    on_device(names, bytes, 5, x, workspace_of<T>(p),
              [&](void* const* there, void* memory) { start_paged<T>(p, sizes, there, memory); });
#else
    start_paged<T>(p, sizes, x, workspace);
#endif
}
#endif

#if !defined(RUNG_FP32) && !defined(RUNG_BACKWARD)
/// `totals`: rows of Q, rows of K and V.
template <class T>
void run_packed(const flash::Problem& p, const int64_t* totals, void* const* x,
                [[maybe_unused]] void* workspace) {
    const auto start = [&](void* const* there, void* memory) {
        if constexpr (on_tensors<T>) {
            throw std::invalid_argument("it takes no sequences on a line; packed_sequences does");
        } else {
            const flash::PackedSequences line{.total_q = totals[0],
                                              .total_kv = totals[1],
                                              .cu_seqlens_q = at<int>(there[3]),
                                              .cu_seqlens_kv = at<int>(there[4])};
            RUNG::attention(p, line, at<const T>(there[0]), at<const T>(there[1]),
                            at<const T>(there[2]), at<T>(there[5]), at<float>(there[6]), memory);
        }
    };
#ifdef RUNG_ON_SIMT
    const int64_t q = totals[0] * p.heads * p.head_dim * int64_t{sizeof(T)};
    const int64_t kv = totals[1] * p.kv_heads * p.head_dim * int64_t{sizeof(T)};
    const int64_t ends = (p.batch + 1) * int64_t{sizeof(int)};
    const char* const names[] = {"Q", "K", "V", "cu_seqlens_q", "cu_seqlens_kv", "O", "LSE"};
    const int64_t bytes[] = {
        q, kv, kv, ends, ends, q, totals[0] * p.heads * int64_t{sizeof(float)}};
    on_device(names, bytes, 5, x, workspace_of<T>(p), start);
#else
    start(x, workspace);
#endif
}
#endif

[[noreturn]] void knows_no_window() {
#ifdef RUNG_BACKWARD
    throw std::invalid_argument("it knows neither windows nor sinks; backward_window does");
#else
    throw std::invalid_argument("it knows neither windows nor sinks; the rung window does");
#endif
}

#ifndef RUNG_FP32
/// Without a sink it is null, and so is dsink.
template <class T>
void start_window(const flash::Problem& p, void* const* x, float* sink, void* workspace) {
#ifdef RUNG_BACKWARD
    function<T>()(p, at<T>(x[0]), at<T>(x[1]), at<T>(x[2]), sink, at<T>(x[4]), at<float>(x[5]),
                  at<T>(x[6]), at<T>(x[7]), at<T>(x[8]), at<T>(x[9]),
                  p.sink ? at<float>(x[10]) : nullptr, workspace);
#else
    function<T>()(p, at<T>(x[0]), at<T>(x[1]), at<T>(x[2]), sink, at<T>(x[4]), at<float>(x[5]),
                  workspace);
#endif
}

template <class T>
void run_window(const flash::Problem& p, void* const* x, [[maybe_unused]] void* workspace) {
    if (!function<T>().takes_sink()) {
        knows_no_window();
    }
#ifdef RUNG_ON_SIMT
    const int64_t q = p.q_size() * int64_t{sizeof(T)}, kv = p.kv_size() * int64_t{sizeof(T)};
    const int64_t lse = p.lse_size() * int64_t{sizeof(float)},
                  sink = p.sink ? p.heads * int64_t{sizeof(float)} : 0;
#ifdef RUNG_BACKWARD
    const char* const names[] = {"Q",  "K",  "V",  "the sink", "O",    "LSE",
                                 "dO", "dQ", "dK", "dV",       "dsink"};
    const int64_t bytes[] = {q, kv, kv, sink, q, lse, q, q, kv, kv, sink};
    const size_t inputs = 7;
#else
    const char* const names[] = {"Q", "K", "V", "the sink", "O", "LSE"};
    const int64_t bytes[] = {q, kv, kv, sink, q, lse};
    const size_t inputs = 4;
#endif
    on_device(names, bytes, inputs, x, workspace_of<T>(p), [&](void* const* there, void* memory) {
        start_window<T>(p, there, p.sink ? at<float>(there[3]) : nullptr, memory);
    });
#else
    start_window<T>(p, x, at<float>(x[3]), workspace);
#endif
}
#endif

void work_on([[maybe_unused]] int device, [[maybe_unused]] void* stream) {
#ifdef __CUDACC__
    FLASH_CHECK_CUDA(cudaSetDevice(device));
    flash::current_stream = static_cast<cudaStream_t>(stream);
#elif !defined(RUNG_ON_SIMT)
    // OpenMP's threads are missing in a child process, and it would wait for them: one is enough
    static const int in_a_child = pthread_atfork(nullptr, nullptr, [] { omp_set_num_threads(1); });
    static_cast<void>(in_a_child);
#endif
}

flash::Problem problem(const int64_t* sizes, float scale, int causal, int64_t window = 0,
                       bool sink = false) {
    return {.batch = sizes[0],
            .heads = sizes[1],
            .kv_heads = sizes[2],
            .q_len = sizes[3],
            .kv_len = sizes[4],
            .head_dim = sizes[5],
            .scale = scale,
            .causal = causal != 0,
            .window = window,
            .sink = sink,
            .head_dim_v = sizes[6]};
}

/// The same, or std::invalid_argument, which says what is wrong with it.
flash::Problem valid_problem(const int64_t* sizes, float scale, int causal, int64_t window = 0,
                             bool sink = false) {
    const flash::Problem p = problem(sizes, scale, causal, window, sink);
    try {
        flash::validate(p);
    } catch (const flash::Error& error) {
        throw std::invalid_argument(error.what());
    }
    return p;
}

/// What an entry returns when `work` has ended: 0, or 2 for a wrong argument, or 1 for what else it
/// has thrown, with the reason in `message`.
template <class Work> int outcome_of(const Work& work, char* message, size_t message_size) {
    try {
        work();
        return 0;
    } catch (const std::invalid_argument& error) {
        std::snprintf(message, message_size, "%s", error.what());
        return 2;
    } catch (const std::exception& error) {
        std::snprintf(message, message_size, "%s", error.what());
        return 1;
    }
}

} // namespace

/// Bytes of the workspace that the caller brings, 0 if none is needed. `sizes` are B, H, H_kv, N_q,
/// N_kv, d, and d_v or 0.
extern "C" int64_t rung_workspace_bytes([[maybe_unused]] const int64_t* sizes,
                                        [[maybe_unused]] int causal) {
#if defined(RUNG_ON_SIMT)
    return 0;
#elif defined(RUNG_FP32)
    return workspace_of<float>(problem(sizes, 1, causal));
#else
    return workspace_of<flash::Half>(problem(sizes, 1, causal));
#endif
}

/// Starts the rung on a stream of a GPU, and does not wait for its end; on the CPU it has ended on
/// return. `tensors` are Q, K, V, O and LSE, for a backward rung Q, K, V, O, LSE, dO, dQ, dK and
/// dV. `workspace` begins at a multiple of 256 bytes, and belongs to this call until its work has
/// ended. Returns 0, or with the reason in `message` 2 for a wrong argument and 1 for what else may
/// happen.
extern "C" int rung_attention(int bf16, const int64_t* sizes, float scale, int causal,
                              void* const* tensors, void* workspace, int device, void* stream,
                              char* message, size_t message_size) {
    const auto work = [&] {
        const flash::Problem p = valid_problem(sizes, scale, causal);
        work_on(device, stream);
#ifdef RUNG_FP32
        run<float>(p, tensors, workspace);
        (void)bf16;
#else
        bf16 != 0 ? run<flash::Bfloat16>(p, tensors, workspace)
                  : run<flash::Half>(p, tensors, workspace);
#endif
    };
    return outcome_of(work, message, message_size);
}

/// The same with a window, 0 for none, or a sink, where the rung can. `tensors` are Q, K, V, the
/// sink or null, O and LSE; for a backward rung behind these dO, dQ, dK, dV, and dsink or null.
extern "C" int rung_attention_window([[maybe_unused]] int bf16, const int64_t* sizes, float scale,
                                     int causal, int64_t window,
                                     [[maybe_unused]] void* const* tensors,
                                     [[maybe_unused]] void* workspace, int device, void* stream,
                                     char* message, size_t message_size) {
    const auto work = [&] {
        [[maybe_unused]] const flash::Problem p =
            valid_problem(sizes, scale, causal, window, tensors[3] != nullptr);
        work_on(device, stream);
#ifdef RUNG_FP32
        knows_no_window();
#else
        bf16 != 0 ? run_window<flash::Bfloat16>(p, tensors, workspace)
                  : run_window<flash::Half>(p, tensors, workspace);
#endif
    };
    return outcome_of(work, message, message_size);
}

/// The same from K and V in pages (common/paged_kv.hpp), where the rung can. N_kv is the most keys
/// that a sequence may have. `cache`: pages, page stride, head stride, row stride, keys in a page,
/// most pages of a sequence. `tensors` are Q, K, V, the table, the lengths, O and LSE.
extern "C" int rung_attention_paged([[maybe_unused]] int bf16, const int64_t* sizes, float scale,
                                    int causal, [[maybe_unused]] const int64_t* cache,
                                    [[maybe_unused]] void* const* tensors,
                                    [[maybe_unused]] void* workspace, int device, void* stream,
                                    char* message, size_t message_size) {
    const auto work = [&] {
        [[maybe_unused]] const flash::Problem p = valid_problem(sizes, scale, causal);
        work_on(device, stream);
#if defined(RUNG_FP32) || defined(RUNG_BACKWARD)
        attention_paged<float>();
#else
        bf16 != 0 ? run_paged<flash::Bfloat16>(p, cache, tensors, workspace)
                  : run_paged<flash::Half>(p, cache, tensors, workspace);
#endif
    };
    return outcome_of(work, message, message_size);
}

/// The same of sequences on a line (common/packed_sequences.hpp), where the rung can. N_q and N_kv
/// are bounds of their lengths. `totals`: rows of Q, rows of K and V. `tensors` are Q, K, V,
/// cu_seqlens_q, cu_seqlens_kv, O and LSE.
extern "C" int rung_attention_packed([[maybe_unused]] int bf16, const int64_t* sizes, float scale,
                                     int causal, [[maybe_unused]] const int64_t* totals,
                                     [[maybe_unused]] void* const* tensors,
                                     [[maybe_unused]] void* workspace, int device, void* stream,
                                     char* message, size_t message_size) {
    const auto work = [&] {
        [[maybe_unused]] const flash::Problem p = valid_problem(sizes, scale, causal);
        work_on(device, stream);
#if defined(RUNG_FP32) || defined(RUNG_BACKWARD)
        throw std::invalid_argument("it takes no sequences on a line; packed_sequences does");
#else
        bf16 != 0 ? run_packed<flash::Bfloat16>(p, totals, tensors, workspace)
                  : run_packed<flash::Half>(p, totals, tensors, workspace);
#endif
    };
    return outcome_of(work, message, message_size);
}
