#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <thread>

#include "common/harness/forward/forward.hpp"
#include "common/harness/program/device_run.hpp"
#include "common/harness/program/rung.hpp"

using namespace flash;
using Catch::Matchers::ContainsSubstring;

namespace {

enum class Deed {
    nothing,
    copy_q,
    before_o,
    scale_after_o,
    after_lse,
    write_q,
    before_k,
    after_v,
    last_margin_byte,
    read_outside
};
Deed deed = Deed::copy_q;

template <class T>
void forward(const Problem& p, const T* Q, const T* K, const T* V, T* O, float* LSE) {
    const auto change = [](const T* at) { const_cast<T*>(at)[0] = from_float<T>(3); };
    if (deed == Deed::nothing) {
        return;
    }
    for (int64_t i = 0; i < p.q_size(); ++i) {
        O[i] = Q[i];
    }
    for (int64_t i = 0; i < p.lse_size(); ++i) {
        LSE[i] = static_cast<float>(i);
    }
    switch (deed) {
    case Deed::before_o:
        return change(O - 1);
    case Deed::scale_after_o:
        return change(O + p.q_size());
    case Deed::after_lse:
        LSE[p.lse_size()] *= 0.5f;
        return;
    case Deed::write_q:
        return change(Q + 3);
    case Deed::before_k:
        return change(K - 1);
    case Deed::after_v:
        return change(V + p.kv_size() + 2);
    case Deed::last_margin_byte:
        reinterpret_cast<unsigned char*>(O + p.q_size())[DeviceRun::default_margin - 1] ^= 1;
        return;
    case Deed::read_outside:
        O[0] = Q[-1];
        O[1] = K[p.kv_size()];
        O[2] = V[-1];
        return;
    default:
        return;
    }
}

const ForwardRung rung{.name = "test",
                       .fp32 = forward<float>,
                       .fp16 = forward<Half>,
                       .bf16 = forward<Bfloat16>,
                       .head_dims = {}};

struct Case {
    Problem problem{.batch = 2, .heads = 4, .kv_heads = 2, .q_len = 3, .kv_len = 5, .head_dim = 8};
    std::vector<float> q = std::vector<float>(static_cast<size_t>(problem.q_size()), 1.5f);
    std::vector<float> k = std::vector<float>(static_cast<size_t>(problem.kv_size()), -2.0f);
    std::vector<float> v = std::vector<float>(static_cast<size_t>(problem.kv_size()), 0.25f);

    Inputs inputs(DType type) const { return {type, q, k, v}; }
};

/// What DeviceRun says after the deed with fp32; the other types must agree that there is something
/// to say.
std::string damage_of(Deed what) {
    deed = what;
    std::string said[3];
    for (const DType type : {DType::fp32, DType::fp16, DType::bf16}) {
        const Case c;
        const auto run = rung_of(rung).on(c.problem, c.inputs(type));
        run->run();
        said[static_cast<int>(type)] = run->damage();
    }
    CHECK(said[0].empty() == said[1].empty());
    CHECK(said[1].empty() == said[2].empty());
    return said[0];
}

} // namespace

TEST_CASE("outputs are poisoned before a run") {
    for (const DType type : {DType::fp32, DType::fp16, DType::bf16}) {
        const Case c;
        const auto run = rung_of(rung).on(c.problem, c.inputs(type));
        deed = Deed::copy_q;
        run->run();
        CHECK(run->o() == c.q);
        CHECK(run->lse()[5] == 5);
        run->poison();
        deed = Deed::nothing;
        run->run();
        for (const float x : run->o()) {
            CHECK(std::isnan(x));
        }
        for (const float x : run->lse()) {
            CHECK(std::isnan(x));
        }
    }
}

TEST_CASE("every write outside O and LSE is found") {
    CHECK(damage_of(Deed::copy_q).empty());
    CHECK(damage_of(Deed::nothing).empty());
    CHECK_THAT(damage_of(Deed::before_o), ContainsSubstring("memory before O was overwritten"));
    CHECK_THAT(damage_of(Deed::scale_after_o),
               ContainsSubstring("memory after O was overwritten, at byte"));
    CHECK_THAT(damage_of(Deed::after_lse),
               ContainsSubstring("memory after LSE was overwritten, at byte"));
    CHECK_THAT(damage_of(Deed::write_q), ContainsSubstring("Q, an input, was overwritten at byte"));
    CHECK_THAT(damage_of(Deed::before_k), ContainsSubstring("memory before K was overwritten"));
    CHECK_THAT(damage_of(Deed::after_v),
               ContainsSubstring("memory after V was overwritten, at byte"));
    CHECK_THAT(damage_of(Deed::last_margin_byte),
               ContainsSubstring("memory after O was overwritten, at byte 4095"));
}

TEST_CASE("poison repairs the canaries") {
    const Case c;
    const auto run = rung_of(rung).on(c.problem, c.inputs(DType::fp16));
    deed = Deed::before_o;
    run->run();
    CHECK_FALSE(run->damage().empty());
    run->poison();
    CHECK(run->damage().empty());
}

TEST_CASE("a read outside the inputs meets NaN") {
    for (const DType type : {DType::fp32, DType::fp16, DType::bf16}) {
        const Case c;
        const auto run = rung_of(rung).on(c.problem, c.inputs(type));
        deed = Deed::read_outside;
        run->run();
        for (size_t i = 0; i < 3; ++i) {
            CHECK(std::isnan(run->o()[i]));
        }
    }
}

TEST_CASE("a rung that takes a workspace gets one, with garbage that is another one after each "
          "poisoning") {
    static uint32_t found;
    static int64_t write_at; // floats
    ForwardRung working = rung;
    working.fp16 = nullptr;
    working.bf16 = nullptr;
    working.fp32 = +[](const Problem&, const float*, const float*, const float*, float*, float*,
                       void* workspace) {
        CHECK(reinterpret_cast<uintptr_t>(workspace) % 256 == 0);
        std::memcpy(&found, static_cast<float*>(workspace) + 2, sizeof found);
        static_cast<float*>(workspace)[write_at] = 1;
    };
    const Case c;
    // how large?
    CHECK_THROWS_AS(rung_of(working).on(c.problem, c.inputs(DType::fp32)), std::invalid_argument);
    working.workspace_bytes = [](const Problem& p) { return 3 * p.q_len * int64_t{sizeof(float)}; };
    const auto run = rung_of(working).on(c.problem, c.inputs(DType::fp32));
    CHECK(run->workspace_bytes() == 9 * sizeof(float));
    write_at = 8; // the last one
    run->run();
    CHECK(run->damage().empty());
    CHECK(found == 0x7fc00000); // NaN
    run->poison();
    run->run();
    CHECK(found == 3);
    write_at = 9;
    run->run();
    CHECK_THAT(
        run->damage(),
        ContainsSubstring("memory after the workspace was overwritten, at byte 0 past its end"));
}

TEST_CASE("tensors are aligned to 256 bytes with any margin that is allowed") {
    static bool aligned;
    const auto note = [](const Problem&, const float* Q, const float* K, const float* V, float* O,
                         float* LSE) {
        aligned = true;
        for (const void* pointer :
             {static_cast<const void*>(Q), static_cast<const void*>(K), static_cast<const void*>(V),
              static_cast<const void*>(O), static_cast<const void*>(LSE)}) {
            aligned = aligned && reinterpret_cast<uintptr_t>(pointer) % 256 == 0;
        }
    };
    ForwardRung noting = rung;
    noting.fp32 = +note;
    const Case c;
    for (const size_t margin : {size_t{0}, size_t{256}, DeviceRun::default_margin}) {
        aligned = false;
        rung_of(noting).on(c.problem, c.inputs(DType::fp32), margin)->run();
        CHECK(aligned);
    }
    CHECK_THROWS_AS(rung_of(rung).on(c.problem, c.inputs(DType::fp32), 100), std::invalid_argument);
}

TEST_CASE("a device run refuses what cannot run") {
    Case c;
    ForwardRung narrow = rung;
    static constexpr int head_dims[] = {64, 128};
    narrow.head_dims = head_dims;
    CHECK_THROWS_AS(rung_of(narrow).on(c.problem, c.inputs(DType::fp32)), Error);
    narrow = rung;
    narrow.bf16 = nullptr;
    CHECK_THROWS_AS(rung_of(narrow).on(c.problem, c.inputs(DType::bf16)), Error);
    CHECK(rung_of(narrow).dtypes == std::vector{DType::fp32, DType::fp16});
    Case short_k;
    short_k.k.pop_back();
    CHECK_THROWS_AS(rung_of(rung).on(c.problem, short_k.inputs(DType::fp32)), Error);
    c.problem.scale = 0;
    CHECK_THROWS_AS(rung_of(rung).on(c.problem, c.inputs(DType::fp32)), Error);
}

TEST_CASE("the clock of the host counts the whole of the work") {
    const double seconds =
        host_backend().time([] { std::this_thread::sleep_for(std::chrono::milliseconds(30)); });
    CHECK(seconds >= 0.03);
    CHECK(seconds < 3);
}

TEST_CASE("the host's memory is aligned, and refused when there is none left") {
    Backend& host = host_backend();
    CHECK(host.name() == "cpu");
    CHECK_THAT(host.description(), ContainsSubstring(" thread"));
    for (const size_t bytes : {size_t{1}, size_t{1000}, size_t{1} << 20}) {
        const auto memory = host.allocate(bytes);
        CHECK(memory->bytes() == bytes);
        CHECK(reinterpret_cast<uintptr_t>(memory->data()) % 256 == 0);
    }
    CHECK(host.available_bytes() > size_t{1} << 20);
    CHECK_THROWS_AS(host.allocate(size_t{1} << 60), Error);
    // More than is available, less than there is in all: the kernel would promise it.
    const size_t all =
        static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
    CHECK_THROWS_AS(host.allocate(host.available_bytes() / 2 + all / 2), Error);
    host.flush_caches();
}
