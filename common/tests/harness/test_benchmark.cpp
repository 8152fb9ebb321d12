#include <catch2/catch_test_macros.hpp>

#include "common/harness/forward/forward.hpp"
#include "common/harness/program/benchmark.hpp"
#include "common/harness/program/rung.hpp"

using namespace flash;

namespace {

/// The host, except that every run takes as long as it says, and that it counts what happens.
class FakeClock final : public Backend {
  public:
    double seconds = 1;
    int flushes = 0, timed = 0;

    std::string name() const override { return "fake"; }
    std::string description() const override { return "fake"; }
    size_t available_bytes() const override { return size_t{1} << 40; }
    std::unique_ptr<Memory> allocate(size_t bytes) override {
        return host_backend().allocate(bytes);
    }
    void flush_caches() override { ++flushes; }
    double time(const std::function<void()>& work) override {
        work();
        ++timed;
        return seconds;
    }
};

FakeClock fake_clock;
int runs = 0;

void forward(const Problem&, const float*, const float*, const float*, float*, float*) { ++runs; }

Benchmark bench(double seconds, std::optional<int> repetitions = {}) {
    fake_clock = {};
    fake_clock.seconds = seconds;
    runs = 0;
    const ForwardRung rung{.name = "test",
                           .fp32 = forward,
                           .head_dims = {},
                           .backend = []() -> Backend& { return fake_clock; }};
    const Problem problem{.head_dim = 2};
    const std::vector<float> x(2);
    const auto run = rung_of(rung).on(problem, {DType::fp32, x, x, x});
    return benchmark(
        *run, fake_clock, [](double) {}, repetitions);
}

} // namespace

TEST_CASE("twenty repetitions or more, each with cold caches") {
    const Benchmark quick = bench(1e-6);
    CHECK(quick.seconds.size() == 100);
    CHECK(fake_clock.flushes == 100);
    CHECK(fake_clock.timed == 100);
    CHECK(quick.warm_ups == runs - 100);
    CHECK(quick.warm_ups >= 1);

    CHECK(bench(0.02).seconds.size() == 50); // until a second has been timed
    CHECK(bench(1).seconds.size() == 20);
    CHECK_FALSE(bench(2.9).cut_short());
}

TEST_CASE("as many repetitions as asked for") {
    CHECK(bench(1e-6, 3).seconds.size() == 3);
    CHECK(bench(1e-6, 3).cut_short());
    CHECK(bench(100, 1).seconds.size() == 1);
    CHECK(bench(1e-6, 150).seconds.size() == 150);
}

TEST_CASE("fewer repetitions when they would take minutes") {
    CHECK(bench(7).seconds.size() == 9);
    CHECK(bench(7).cut_short());
    CHECK(bench(1000).seconds.size() == 3);
}

TEST_CASE("median, minimum and maximum") {
    Benchmark b;
    b.seconds = {5, 1, 9};
    CHECK(b.median() == 5);
    b.seconds = {5, 1, 9, 6};
    CHECK(b.median() == 5.5);
    CHECK(b.minimum() == 1);
    CHECK(b.maximum() == 9);
    CHECK(b.seconds.front() == 5);
}
