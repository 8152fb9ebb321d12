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

/// Of a rung that reads Q, K and V and writes O and LSE.
Call call_on(Backend& backend, const Problem& p) {
    const std::vector<int64_t> q = {p.batch, p.heads, p.q_len, p.head_dim},
                               kv = {p.batch, p.kv_heads, p.kv_len, p.head_dim};
    return {.rung = "test",
            .backend = &backend,
            .inputs = {{"Q", DType::fp32, q}, {"K", DType::fp32, kv}, {"V", DType::fp32, kv}},
            .outputs = {{"O", DType::fp32, q}, {"LSE", DType::fp32, {p.batch, p.heads, p.q_len}}},
            .workspace_bytes = {},
            .takes_workspace = false,
            .function = {}};
}

std::string refusal(const Call& call, size_t margin, double host_bytes) {
    try {
        require_memory(call, margin, host_bytes);
    } catch (const Error& error) {
        return error.what();
    }
    return "accepted";
}

} // namespace

TEST_CASE("tensors and margins must fit the device") {
    // Q, K, V and O of 60,000 floats each, LSE of 1,000: 964,000 bytes.
    Problem problem{.q_len = 1000, .kv_len = 1000, .head_dim = 60};
    CHECK(refusal(call_on(instance<SmallDevice>(), problem), 0, 0) == "accepted");
    CHECK(refusal(call_on(instance<SmallDevice>(), problem), 3584, 0) ==
          "accepted"); // ten margins: 999,840
    CHECK_THAT(refusal(call_on(instance<SmallDevice>(), problem), 3840, 0),
               ContainsSubstring("not enough memory on the device"));
    problem.q_len = 1100;
    CHECK_THAT(refusal(call_on(instance<SmallDevice>(), problem), 0, 0),
               ContainsSubstring("this problem needs 988.7 KiB, 976.6 KiB is available"));
}

TEST_CASE("what the host needs is apart from the device, or added to it") {
    const Problem problem{.q_len = 1000, .kv_len = 1000, .head_dim = 60};
    CHECK(refusal(call_on(instance<SmallDevice>(), problem), 0, 36'001) == "accepted");
    CHECK_THAT(refusal(call_on(instance<SmallDevice>(), problem), 0, 1e18),
               ContainsSubstring("not enough memory on the host"));
    CHECK(refusal(call_on(instance<SmallHost>(), problem), 0, 36'000) == "accepted");
    CHECK_THAT(refusal(call_on(instance<SmallHost>(), problem), 0, 36'001),
               ContainsSubstring("not enough memory: "));
}

TEST_CASE("a workspace counts") {
    const Problem problem{.q_len = 1000, .kv_len = 1000, .head_dim = 60};
    Call call = call_on(instance<SmallDevice>(), problem);
    call.workspace_bytes = [] { return int64_t{36'000}; };
    CHECK(refusal(call, 0, 0) == "accepted");
    call.workspace_bytes = [] { return int64_t{36'001}; };
    CHECK_THAT(refusal(call, 0, 0), ContainsSubstring("35.2 KiB of it is workspace of test"));
}

TEST_CASE("sizes beyond all memory are compared without an overflow") {
    const Problem problem{
        .batch = 1 << 20, .heads = 1 << 20, .q_len = 1 << 18, .kv_len = 1, .head_dim = 2};
    CHECK_THAT(refusal(call_on(instance<SmallDevice>(), problem), 0, 0), ContainsSubstring("EiB"));
}
