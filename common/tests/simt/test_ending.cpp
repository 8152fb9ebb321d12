// What is said of a run, and how it ends.
#undef NDEBUG
#include <cassert>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <sys/wait.h>

#include "common/simt/machine/run_log.hpp"
#include "common/tests/simt/support.hpp"

using namespace simt_test;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::EndsWith;
using simt::run_log;

namespace {

constexpr int threads = 64;

__global__ void beyond(int* data, int* seen) {
    const int i = static_cast<int>(threadIdx.x) + 60;
    seen[threadIdx.x] = data[i]; // reads beyond the end
    data[i] = 7;                 // writes beyond the end
}

__global__ void nowhere(int* seen) {
    if (threadIdx.x == 1) {
        *reinterpret_cast<volatile int*>(16) = 1; // no memory can be there
        seen[0] = 1;
    }
    __syncwarp();
    seen[threadIdx.x + 1] = 2;
}

__global__ void read_unwritten(int* seen) {
    __shared__ int tile[threads];
    if (threadIdx.x < 2) {
        seen[threadIdx.x] = tile[threadIdx.x]; // nobody has written that
    }
    tile[threadIdx.x] = 1;
}

__global__ void write_one_place(int* data, int step) {
    data[0] = 5 + step * static_cast<int>(threadIdx.x); // all write
}

__global__ void read_and_write(int* data, int* seen) {
    if (threadIdx.x == 0) {
        data[0] = 9; // first
    } else {
        seen[threadIdx.x] = data[0] + 1; // not ordered
    }
}

__device__ __attribute__((noinline)) void store(int* to, int value) {
    *to = value; // in store
}

__device__ inline void store_twice(int* to, int value) {
    store(to, value);
    store(to + 1, value); // calls store
}

__global__ void store_by_calls(int* data) {
    store_twice(data, static_cast<int>(threadIdx.x)); // calls store_twice
}

__global__ void sum_too_early(int* sum) {
    __shared__ int part[threads];
    part[threadIdx.x] = 1; // written late
    if (threadIdx.x == 0) {
        *sum = part[0] + part[threads - 1]; // read early
    }
}

__global__ void write_atomically_or_not(int* data) {
    if (threadIdx.x == 0) {
        data[0] = 1;
    } else {
        atomicAdd(data, 1); // meets a write
    }
}

template <int Number> __global__ void clean(int* data) { data[threadIdx.x] = Number; }

__global__ void assert_below(int limit) {
    assert(static_cast<int>(threadIdx.x) < limit); // assertion
}

__global__ void give_up(int* seen) {
    if (threadIdx.x == 3) {
        __trap(); // trap
    }
    seen[threadIdx.x] = 1;
}

__global__ void spin(const volatile int* flag) {
    if (threadIdx.x == 40) {
        while (*flag == 0) { // spins
        }
    }
    __syncthreads(); // others wait
}

__global__ void meet_for_ever() {
    for (int step = 16; step >= 0; step /= 2) { // stays at 0
        __syncthreads();
    }
}

/// The log of this test alone.
struct OwnLog {
    OwnLog() { run_log().clear(); }
    ~OwnLog() { run_log().clear(); }
};

int line(const char* tag) { return line_of(__FILE__, tag); }

/// What a watched program printed, on both streams, and its exit code.
struct Ended {
    std::string text;
    int code;
};

Ended run_program(const std::string& what, const std::string& settings = "",
                  const std::string& before = "") {
    const std::string command =
        before + "env " + settings + " " FLASH_WATCHED_PROGRAM " '" + what + "' 2>&1";
    FILE* const pipe = popen(command.c_str(), "r");
    REQUIRE(pipe != nullptr);
    Ended ended{"", 0};
    for (int byte = std::fgetc(pipe); byte != EOF; byte = std::fgetc(pipe)) {
        ended.text += static_cast<char>(byte);
    }
    const int status = pclose(pipe);
    ended.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return ended;
}

} // namespace

TEST_CASE("keep going: accesses out of bounds do nothing and are told once") {
    const OwnLog log;
    const With chosen({.detect = true, .keep_going = true});
    const Buffer<int> data(std::vector<int>(threads, 1)), seen(threads);
    launch(beyond, 1, threads, 0, data.data(), seen.data());
    REQUIRE(run_log().faults().size() == 2);
    CHECK(run_log().faults()[0].where.line.line == line("reads beyond the end"));
    CHECK(run_log().faults()[1].where.line.line == line("writes beyond the end"));
    CHECK(run_log().faults()[0].where.thread.x == 4);
    CHECK(seen.values()[3] == 1);
    CHECK(seen.values()[4] == 0);
    CHECK(data.values()[63] == 7);
    launch(beyond, 1, threads, 0, data.data(), seen.data());
    CHECK(run_log().faults().size() == 2);
}

TEST_CASE("keep going: a thread stops where no memory can be, and the others go on") {
    const OwnLog log;
    const With chosen({.detect = true, .keep_going = true});
    const Buffer<int> seen(threads);
    launch(nowhere, 2, 32, 0, seen.data());
    REQUIRE(run_log().faults().size() == 1);
    CHECK(run_log().faults()[0].where.line.line == line("no memory can be there"));
    CHECK(seen.values()[0] == 0);
    CHECK(seen.values()[1] == 2);
    CHECK(seen.values()[2] == 0);
    CHECK(seen.values()[3] == 2);
}

TEST_CASE("keep going: what nobody has written is zero, and a racing access does nothing") {
    const OwnLog log;
    const With chosen({.detect = true, .keep_going = true});
    const Buffer<int> data(std::vector<int>{1, 1}), seen(std::vector<int>(threads, 1));
    { // an access that is ignored takes place, and no other one
        const With ignoring({.detect = true, .ignore = {{"test_ending.cpp", line("all write")}}});
        launch(write_one_place, 1, threads, 0, seen.data(), 1);
    }
    launch(read_unwritten, 1, threads, 0, seen.data());
    CHECK(seen.values()[0] == 0);
    CHECK(seen.values()[1] == 0);
    launch(read_and_write, 1, 2, 0, data.data(), seen.data());
    CHECK(seen.values()[1] == 1);
    CHECK(data.values()[0] == 9);
    launch(write_one_place, 1, threads, 0, data.data(), 1);
    CHECK(data.values()[0] == 5);
    launch(write_atomically_or_not, 1, threads, 0, data.data());
    CHECK(data.values()[0] == 1);
    REQUIRE(run_log().faults().size() == 4);
    CHECK(run_log().faults()[0].kind == FaultKind::uninitialised);
    CHECK(run_log().faults()[1].where.line.line == line("not ordered"));
    CHECK(run_log().faults()[2].where.line.line == line("all write"));
    CHECK(run_log().faults()[3].where.line.line == line("meets a write"));
}

TEST_CASE("keep going: a race says more than that its first access found nothing") {
    const OwnLog log;
    const With chosen({.detect = true, .keep_going = true});
    const Buffer<int> sum(1);
    launch(sum_too_early, 1, threads, 0, sum.data());
    CHECK(sum.values()[0] == 1);
    REQUIRE(run_log().faults().size() == 1);
    CHECK(run_log().faults()[0].kind == FaultKind::race);
    CHECK(run_log().faults()[0].where.line.line == line("written late"));
    CHECK(run_log().faults()[0].other.line.line == line("read early"));
}

TEST_CASE("a fault on a line that is to be ignored does not end the run") {
    const OwnLog log;
    const Buffer<int> data(2), seen(threads);
    const auto ignoring = [](const char* tag) {
        return With({.detect = true, .ignore = {{"test_ending.cpp", line(tag)}}});
    };
    {
        const With chosen = ignoring("all write");
        launch(write_one_place, 1, threads, 0, data.data(), 1);
        CHECK(data.values()[0] == 5 + threads - 1); // as if nothing was wrong
    }
    {
        const With chosen = ignoring("first"); // the other access
        launch(read_and_write, 1, 2, 0, data.data(), seen.data());
        CHECK(seen.values()[1] == 10);
    }
    {
        const With chosen = ignoring("nobody has written that");
        launch(read_unwritten, 1, threads, 0, seen.data());
    }
    CHECK(run_log().faults().empty());
    const With chosen = ignoring("first");
    fault_at("all write", FaultKind::race,
             [&] { launch(write_one_place, 1, threads, 0, data.data(), 1); });
}

TEST_CASE("the same value written by several threads is a warning, and a fault if strict") {
    const OwnLog log;
    const Buffer<int> data(2);
    const auto write = [&] { launch(write_one_place, 1, threads, 0, data.data(), 0); };
    {
        const With chosen({.detect = true});
        write();
        write();
    }
    REQUIRE(run_log().warnings().size() == 1);
    CHECK(run_log().warnings()[0].name == "same_value");
    CHECK(run_log().warnings()[0].where.line.line == line("all write"));
    CHECK(run_log().faults().empty());
    const With chosen({.detect = true, .strict = true});
    fault_at("all write", FaultKind::same_value, write);
    const With not_strict({.detect = true});
    fault_at("all write", FaultKind::race,
             [&] { launch(write_one_place, 1, threads, 0, data.data(), 1); });
}

TEST_CASE("the detector watches the first launches of each kernel, or one kernel") {
    const OwnLog log;
    const Buffer<int> data(threads);
    {
        const With chosen({.detect = true, .launches = 2});
        for (int i = 0; i < 3; ++i) {
            launch(clean<1>, 1, threads, 0, data.data());
        }
        launch(clean<2>, 1, threads, 0, data.data());
    }
    REQUIRE(run_log().kernels().size() == 2);
    CHECK(run_log().kernels()[0].watched == 2);
    CHECK(run_log().kernels()[1].watched == 1);
    CHECK(run_log().launches() == 4);
    const With chosen({.detect = true, .kernel = "write_one_place"});
    launch(read_and_write, 1, 2, 0, data.data(), data.data() + 8);
    fault_of([&] { launch(write_one_place, 1, threads, 0, data.data(), 1); });
}

TEST_CASE("both accesses come with the device functions that they were called through") {
    const OwnLog log;
    const With chosen({.detect = true});
    const Buffer<int> data(2);
    const Fault fault = fault_of([&] { launch(store_by_calls, 1, 2, 0, data.data()); });
    CAPTURE(fault.what());
    CHECK(fault.where.line.line == line("in store"));
    for (const simt::ThreadAction* const one : {&fault.where, &fault.other}) {
        REQUIRE(one->calls.size() == 2);
        CHECK(one->calls[0].function == "store");
        CHECK(one->calls[0].called_at.line == line("calls store") - 1);
        CHECK(one->calls[1].function == "store_twice");
        CHECK(one->calls[1].called_at.line == line("calls store_twice"));
    }
    CHECK_THAT(fault.what(), ContainsSubstring("\n    in store_twice, called at "));
}

TEST_CASE("assert and __trap name their thread") {
    const OwnLog log;
    const Buffer<int> seen(threads);
    for (const bool detect : {false, true}) {
        const With chosen({.detect = detect});
        const Fault fault = fault_at("assertion", FaultKind::assertion,
                                     [] { launch(assert_below, 2, threads, 0, 33); });
        CHECK(fault.where.thread.x == 33);
        CHECK_THAT(fault.what(), ContainsSubstring("static_cast<int>(threadIdx.x) < limit"));
        CHECK_THAT(fault.what(), ContainsSubstring("in (anonymous namespace)::assert_below") ||
                                     ContainsSubstring("in assert_below"));
        fault_at("trap", FaultKind::trap, [&] { launch(give_up, 1, threads, 0, seen.data()); });
    }
    const With chosen({.detect = true, .keep_going = true});
    launch(give_up, 1, threads, 0, seen.data());
    CHECK(seen.values()[2] == 1);
    CHECK(seen.values()[3] == 0);
    CHECK(seen.values()[4] == 1);
}

TEST_CASE("a launch without progress ends, and says where its threads are") {
    const OwnLog log;
    const Buffer<int> flag(1);
    for (const bool detect : {false, true}) {
        const With chosen({.detect = detect, .timeout = 1});
        const Fault fault = fault_at("spins", FaultKind::timeout,
                                     [&] { launch(spin, 1, threads, 0, flag.data()); });
        CHECK(fault.where.thread.x == 40);
        CHECK_THAT(fault.what(), ContainsSubstring("warps 0, 1 (31 lanes): ") &&
                                     ContainsSubstring(std::to_string(line("others wait")) +
                                                       ", at __syncthreads"));
    }
}

TEST_CASE("a launch whose threads only meet again and again ends, too") {
    const OwnLog log;
    const With chosen({.timeout = 1});
    const Fault fault = fault_of([] { launch(meet_for_ever, 1, threads, 0); });
    CHECK(fault.kind == FaultKind::timeout);
    CHECK_THAT(fault.what(), ContainsSubstring("none leaves the kernel"));
}

TEST_CASE("a watched program that is clean keeps its exit code") {
    const Ended ended = run_program("clean", "FLASH_SIMT_LAUNCHES=2");
    CHECK(ended.code == 3);
    CHECK_THAT(ended.text, ContainsSubstring("before\nthread 0\nthread 1\nafter\n") &&
                               ContainsSubstring("no fault found: 2 kernels, 4 launches "
                                                 "(3 watched)"));
}

TEST_CASE("a watched program with a fault ends with its code, whatever it does about it") {
    for (const char* const what : {"race", "race in a thread", "race caught"}) {
        const Ended ended = run_program(what);
        CAPTURE(what, ended.text);
        CHECK(ended.code == 86);
        CHECK_THAT(ended.text, ContainsSubstring("before\nrace: two threads"));
        CHECK_THAT(ended.text, EndsWith("1 fault: 1 kernel, 1 launch\n"));
    }
    CHECK(run_program("race", "FLASH_SIMT_KEEP_GOING=1").code == 86);
    CHECK(run_program("race", "FLASH_SIMT_DETECT=0").code == 3);
    CHECK(run_program("same value").code == 3);
    CHECK(run_program("same value", "FLASH_SIMT_STRICT=1").code == 86);
    CHECK(run_program("clean", "FLASH_SIMT_TIMEOUT=soon").code == 2);
}

TEST_CASE("what a watched program prints is not lost, and comes in order") {
    CHECK_THAT(run_program("assert").text,
               ContainsSubstring("thread 0\nthread 1\nthread 2\nassertion failed"));
    CHECK_THAT(run_program("abort").text, ContainsSubstring("before\n"));
    const Ended ended = run_program("last word");
    CHECK(ended.code == 4);
    CHECK_THAT(ended.text, ContainsSubstring("the last word\n"));
}

TEST_CASE("a watched program that aborts has the verdict on its kernels") {
    const Ended asserted = run_program("own assert");
    CHECK(asserted.code == 134);
    CHECK_THAT(asserted.text, ContainsSubstring("no fault found: 1 kernel, 1 launch\n") &&
                                  ContainsSubstring("Assertion `what.empty()' failed"));
    const Ended thrown = run_program("own exception", "FLASH_SIMT_KEEP_GOING=1");
    CHECK(thrown.code == 86);
    CHECK_THAT(thrown.text, ContainsSubstring("1 fault, 1 warning: 1 kernel, 1 launch\n") &&
                                ContainsSubstring("what():  own"));
}

TEST_CASE("a watched program that spins ends with the timeout's code") {
    const Ended ended = run_program("spin", "FLASH_SIMT_TIMEOUT=1");
    CHECK(ended.code == 87);
    CHECK_THAT(ended.text, ContainsSubstring("spinning\nno progress for 1 second:") &&
                               ContainsSubstring("1 kernel, 1 launch"));
}

TEST_CASE("a watched program whose time is over ends with the timeout's code") {
    const Ended ended = run_program("spin", "FLASH_SIMT_SECONDS=1");
    CHECK(ended.code == 87);
    CHECK_THAT(ended.text,
               ContainsSubstring("out of time: the program was given 1 second (--seconds)") &&
                   ContainsSubstring("warp 1 (1 lane)") &&
                   ContainsSubstring("\ntimeout: 1 kernel"));
}

TEST_CASE("Ctrl-C says where each warp stands") {
    // once: without --foreground it tells the program, and then all its group
    const Ended ended = run_program("spin", "", "timeout --foreground --preserve-status -s INT 2 ");
    CHECK(ended.code == 130);
    CHECK_THAT(ended.text, ContainsSubstring("warps 0, 1 (31 lanes): ") &&
                               ContainsSubstring("at __syncthreads") &&
                               (ContainsSubstring("running\n") ||
                                ContainsSubstring("waiting for a value to change\n")) &&
                               ContainsSubstring("interrupted"));
}

TEST_CASE("the verdict for programs that grade") {
    const auto verdict_of = [](const std::string& what, const std::string& settings = "") {
        const std::string text = run_program(what, settings + " FLASH_SIMT_JSON=-").text;
        return nlohmann::json::parse(text.substr(text.find("\n{") + 1));
    };
    const auto clean_run = verdict_of("clean");
    CHECK(clean_run["version"] == 1);
    CHECK(clean_run["verdict"] == "clean");
    CHECK(clean_run["exit_code"] == 3);
    CHECK(clean_run["launches"] == 4);
    CHECK(clean_run["kernels"].size() == 2);
    const auto race = verdict_of("race");
    CHECK(race["verdict"] == "fault");
    CHECK(race["exit_code"] == 86);
    REQUIRE(race["faults"].size() == 1);
    const auto fault = race["faults"][0];
    CHECK(fault["kind"] == "race");
    CHECK(fault["kernel"].get<std::string>().ends_with("count_in_one_place"));
    CHECK(fault["thread"] == nlohmann::json({1, 0, 0}));
    CHECK(fault["block"] == nlohmann::json({0, 0, 0}));
    CHECK(fault["line"] == fault["other"]["line"]);
    CHECK(fault["file"].get<std::string>().ends_with("observed_program.cu"));
    CHECK(verdict_of("same value")["verdict"] == "warning");
    CHECK(verdict_of("same value")["warnings"].size() == 1);
    CHECK(verdict_of("spin", "FLASH_SIMT_TIMEOUT=1")["verdict"] == "timeout");
    CHECK(verdict_of("spin", "FLASH_SIMT_SECONDS=1")["verdict"] == "timeout");
}
