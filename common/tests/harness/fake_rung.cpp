// A rung for the harness's own tests: attention by its definition, or, when the environment
// variable FAKE_RUNG says so, one of several ways to go wrong. FAKE_RUNG_TRACE names a file that is
// created when it runs.
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <unistd.h>

#include "common/harness/backends/backend.hpp"
#include "common/harness/forward/forward.hpp"
#include "common/harness/program/verdict.hpp"

// Each run flushes the caches, and those of a server hold hundreds of megabytes. The linker puts
// this in place of the system's (--wrap), so that their size is unknown, and taken for small.
extern "C" {
long __real_sysconf(int name);
long __wrap_sysconf(int name) {
    return name >= _SC_LEVEL1_ICACHE_SIZE && name <= _SC_LEVEL4_CACHE_LINESIZE
               ? 0
               : __real_sysconf(name);
}
}

namespace {

using namespace flash;

std::string mode() {
    const char* text = std::getenv("FAKE_RUNG");
    return text != nullptr ? text : "";
}

template <class T>
void definition(const Problem& p, const T* Q, const T* K, const T* V, const float* sink, T* O,
                float* LSE) {
    for (int64_t b = 0; b < p.batch; ++b) {
        for (int64_t h = 0; h < p.heads; ++h) {
            for (int64_t i = 0; i < p.q_len; ++i) {
                const int64_t row = p.q_offset(b, h) + i * p.head_dim, keys = p.visible_keys(i),
                              d_v = p.v_dim();
                std::vector<double> P(static_cast<size_t>(keys));
                double sum = sink != nullptr ? std::exp(static_cast<double>(sink[h])) : 0;
                for (int64_t j = p.first_key(i); j < keys; ++j) {
                    double score = 0;
                    for (int64_t x = 0; x < p.head_dim; ++x) {
                        score += static_cast<double>(to_float(Q[row + x])) *
                                 static_cast<double>(
                                     to_float(K[p.kv_offset(b, h) + j * p.head_dim + x]));
                    }
                    sum += P[static_cast<size_t>(j)] =
                        std::exp(score * static_cast<double>(p.scale));
                }
                LSE[row / p.head_dim] = static_cast<float>(std::log(sum));
                for (int64_t x = 0; x < d_v; ++x) {
                    double o = 0;
                    for (int64_t j = 0; j < keys; ++j) {
                        o += P[static_cast<size_t>(j)] / sum *
                             static_cast<double>(to_float(V[p.v_offset(b, h) + j * d_v + x]));
                    }
                    O[p.o_offset(b, h) + i * d_v + x] = from_float<T>(static_cast<float>(o));
                }
            }
        }
    }
}

template <class T>
void forward(const Problem& p, const T* Q, const T* K, const T* V, const float* sink, T* O,
             float* LSE) {
    if (const char* trace = std::getenv("FAKE_RUNG_TRACE")) {
        std::ofstream file(trace);
    }
    if (mode() == "no memory") {
        throw std::bad_alloc();
    }
    if (mode() == "slow") {
        std::this_thread::sleep_for(std::chrono::milliseconds(2300));
    }
    if (mode() == "hungry") { // as the rungs that hold all scores at once
        std::vector<float> S(static_cast<size_t>(p.q_len * p.kv_len), 1.0f);
        LSE[0] = S[S.size() / 2];
    }
    definition(p, Q, K, V, sink, O, LSE);
    if (mode() == "wrong") {
        O[p.q_size() / 2] = from_float<T>(to_float(O[p.q_size() / 2]) + 0.25f);
    }
    if (mode() == "nan") {
        LSE[0] = std::numeric_limits<float>::quiet_NaN();
    }
    if (mode() == "outside") {
        O[p.q_size()] = from_float<T>(7);
    }
}

Verdict check(const Problem& p, const Inputs& inputs, const Outputs& outputs,
              const Progress& progress, int64_t rows_of_head) {
    std::vector<float> o(outputs.o.size()), lse(outputs.lse.size());
    definition(p, inputs.q.data(), inputs.k.data(), inputs.v.data(),
               p.sink ? inputs.sink.data() : nullptr, o.data(), lse.data());
    progress(0.5);
    Verdict verdict{.ok = true,
                    .o_bound = inputs.dtype == DType::fp32 ? 1e-5 : 1e-2,
                    .lse_bound = 1e-5,
                    .rows = rows_of_head > 0 ? p.batch * p.heads * rows_of_head : p.lse_size(),
                    .message = {}};
    const auto compare = [&](const char* name, std::span<const float> got,
                             const std::vector<float>& expected, double bound, double& error) {
        for (size_t i = 0; i < got.size(); ++i) {
            const double distance =
                std::abs(static_cast<double>(got[i]) - static_cast<double>(expected[i]));
            error = std::max(error, distance);
            if (!(got[i] == expected[i] || distance <= bound) && verdict.ok) {
                verdict.ok = false;
                error = distance;
                verdict.message = std::string(name) + " element " + std::to_string(i) + " is " +
                                  std::to_string(got[i]) + ", expected " +
                                  std::to_string(expected[i]);
            }
        }
    };
    compare("O", outputs.o, o, verdict.o_bound, verdict.o_error);
    compare("LSE", outputs.lse, lse, verdict.lse_bound, verdict.lse_error);
    return verdict;
}

int64_t workspace(const Problem& p) { return mode() == "hungry" ? p.q_len * p.kv_len * 4 : 0; }

/// The CPU, pretending to be a machine that lacks a device.
class NoDevice final : public Backend {
  public:
    std::string name() const override { return "none"; }
    std::string description() const override { return "nothing"; }
    void require_device() const override { throw Error("there is no such device\nuse a CPU rung"); }
    size_t available_bytes() const override { return 0; }
    std::unique_ptr<Memory> allocate(size_t) override {
        throw std::logic_error("allocate without a device");
    }
    void flush_caches() override {}
    double time(const std::function<void()>&) override { return 0; }
};

constexpr int head_dims[] = {16, 32, 64}, one_head_dim[] = {16}, head_dim_of_V[] = {32};

Backend& no_device() {
    static NoDevice backend;
    return backend;
}

} // namespace

int main(int argc, char** argv) {
    ForwardRung rung{.name = "fake_rung",
                     .fp32 = forward<float>,
                     .fp16 = forward<Half>,
                     .bf16 = forward<Bfloat16>,
                     .head_dims = head_dims,
                     .workspace_bytes = workspace,
                     .check = check};
    if (mode() == "half only") {
        rung.fp32 = nullptr;
    }
    if (mode() == "no device") {
        rung.backend = no_device;
    }
    if (mode() == "two head dims") {
        rung.head_dims = one_head_dim;
        rung.head_dims_v = head_dim_of_V;
    }
    rung.overflows = mode() == "wrong";
    rung.window_and_sink = mode() != "no window";
    return rung_main(rung, argc, argv);
}
