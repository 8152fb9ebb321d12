#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <stdexcept>

#include "common/harness/program/limits.hpp"

using namespace flash;
using Catch::Matchers::ContainsSubstring;

namespace {

/// A device with a million bytes.
class SmallDevice : public Backend {
  public:
    std::string name() const override { return "small"; }
    std::string description() const override { return ""; }
    bool uses_host_memory() const override { return false; }
    size_t available_bytes() const override { return 1'000'000; }
    std::unique_ptr<Memory> allocate(size_t) override {
        throw std::logic_error("not in this test");
    }
    void flush_caches() override {}
    double time(const std::function<void()>&) override { return 0; }
};

/// A host with as much.
class SmallHost final : public SmallDevice {
  public:
    bool uses_host_memory() const override { return true; }
};

template <class T> Backend& instance() {
    static T backend;
    return backend;
}

void forward(const Problem&, const float*, const float*, const float*, float*, float*) {}

Rung rung_on(Backend& (*backend)()) {
    return {.name = "test", .fp32 = forward, .head_dims = {}, .backend = backend};
}

std::string refusal(const Rung& rung, const Problem& problem, size_t margin, double host_bytes) {
    try {
        require_memory(rung, problem, DType::fp32, margin, host_bytes);
    } catch (const Error& error) {
        return error.what();
    }
    return "accepted";
}

} // namespace

TEST_CASE("tensors and margins must fit the device") {
    const Rung rung = rung_on(instance<SmallDevice>);
    // Q, K, V and O of 60,000 floats each, LSE of 1,000: 964,000 bytes.
    Problem problem{.q_len = 1000, .kv_len = 1000, .head_dim = 60};
    CHECK(refusal(rung, problem, 0, 0) == "accepted");
    CHECK(refusal(rung, problem, 3584, 0) == "accepted"); // ten margins: 999,840
    CHECK_THAT(refusal(rung, problem, 3840, 0),
               ContainsSubstring("not enough memory on the device"));
    problem.q_len = 1100;
    CHECK_THAT(refusal(rung, problem, 0, 0),
               ContainsSubstring("this problem needs 988.7 KiB, 976.6 KiB is available"));
}

TEST_CASE("what the host needs is apart from the device, or added to it") {
    const Problem problem{.q_len = 1000, .kv_len = 1000, .head_dim = 60};
    CHECK(refusal(rung_on(instance<SmallDevice>), problem, 0, 36'001) == "accepted");
    CHECK_THAT(refusal(rung_on(instance<SmallDevice>), problem, 0, 1e18),
               ContainsSubstring("not enough memory on the host"));
    CHECK(refusal(rung_on(instance<SmallHost>), problem, 0, 36'000) == "accepted");
    CHECK_THAT(refusal(rung_on(instance<SmallHost>), problem, 0, 36'001),
               ContainsSubstring("not enough memory: "));
}

TEST_CASE("a workspace counts") {
    Rung rung = rung_on(instance<SmallDevice>);
    const Problem problem{.q_len = 1000, .kv_len = 1000, .head_dim = 60};
    rung.workspace_bytes = [](const Problem&) -> int64_t { return 36'000; };
    CHECK(refusal(rung, problem, 0, 0) == "accepted");
    rung.workspace_bytes = [](const Problem&) -> int64_t { return 36'001; };
    CHECK_THAT(refusal(rung, problem, 0, 0),
               ContainsSubstring("35.2 KiB of it is workspace of test"));
}

TEST_CASE("sizes beyond all memory are compared without an overflow") {
    const Problem problem{
        .batch = 1 << 20, .heads = 1 << 20, .q_len = 1 << 18, .kv_len = 1, .head_dim = 2};
    CHECK_THAT(refusal(rung_on(instance<SmallDevice>), problem, 0, 0), ContainsSubstring("EiB"));
}
