// Kernels that touch memory they must not touch, or too early: each is stopped, and the report
// names the place.
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/matchers/catch_matchers_string.hpp>
#include <filesystem>

#include "common/cuda/ptx/cp_async.hpp"
#include "common/cuda/ptx/ldmatrix.hpp"
#include "common/simt/machine/device_memory.hpp"
#include "common/simt/machine/program.hpp"
#include "common/tests/simt/support.hpp"

// This file is watched, and the linker keeps its copy of vector's functions for the runtime, too.
template class std::vector<uint32_t>;

using namespace simt_test;
using Catch::Matchers::ContainsSubstring;

namespace {

int line(const char* tag) { return line_of(__FILE__, tag); }

__global__ void read_global(const float* in, float* out, int size) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= size) {    // the fault: one too many
        out[i] = in[i]; // global read
    }
}

__global__ void write_global(float* out, int offset) {
    out[static_cast<int>(threadIdx.x) + offset] = 1; // global write
}

__global__ void read_dynamic(float* out, int offset) {
    float* smem = flash::dynamic_shared<float>();
    smem[threadIdx.x] = 1;
    __syncthreads();
    out[threadIdx.x] = smem[static_cast<int>(threadIdx.x) + offset]; // dynamic read
}

__global__ void write_dynamic(int offset) {
    float* smem = flash::dynamic_shared<float>();
    smem[static_cast<int>(threadIdx.x) + offset] = 1; // dynamic write
}

__global__ void write_static(float* out, int index) {
    __shared__ float tile[32];
    tile[threadIdx.x] = 1;
    if (threadIdx.x == 7) {
        tile[index] = 2; // static write
    }
    __syncthreads();
    out[threadIdx.x] = tile[31 - threadIdx.x];
}

__global__ void follow(float* const* pointer) {
    **pointer = 1; // wild write
}

__global__ void misaligned_load(const float* in, float4* out) {
    // misaligned load
    out[threadIdx.x] = *reinterpret_cast<const float4*>(in + 4 * threadIdx.x + 1);
}

__global__ void misaligned_store(float* out) {
    *reinterpret_cast<float2*>(out + 3 * threadIdx.x) = make_float2(1, 2); // misaligned store
}

__global__ void uninitialised(float* out) {
    __shared__ float tile[64];
    tile[threadIdx.x] = 1;
    __syncthreads();
    out[threadIdx.x] = tile[2 * threadIdx.x]; // uninitialised read
}

__global__ void uninitialised_in_second_block(float* out) {
    __shared__ float total[1];
    if (threadIdx.x == 0 && blockIdx.x == 0) {
        total[threadIdx.x] = 1;
    }
    __syncthreads();
    out[blockIdx.x] = total[0 * threadIdx.x]; // stale read
}

template <bool wait> __global__ void leave_without_wait(const float* in) {
    // copy left alone
    cp_async_16(flash::dynamic_shared<float>() + 4 * threadIdx.x, in + 4 * threadIdx.x);
    cp_async_commit();
    if constexpr (wait) {
        cp_async_wait<0>();
    }
}

template <bool Wait> __global__ void copy_without(const float* in, float* out) {
    float* smem = flash::dynamic_shared<float>();
    flash::cp_async_16(smem + 4 * threadIdx.x, in + 4 * threadIdx.x); // copy
    flash::cp_async_commit();
    if (Wait) {
        flash::cp_async_wait<0>();
    }
    out[threadIdx.x] = smem[4 * threadIdx.x]; // use
}

__global__ void copy_with_wrong_count(const float* in, float* out) {
    float* smem = flash::dynamic_shared<float>();
    flash::cp_async_16(smem + 4 * threadIdx.x, in + 4 * threadIdx.x);
    flash::cp_async_commit();
    flash::cp_async_16(smem + 128 + 4 * threadIdx.x, in + 128 + 4 * threadIdx.x); // second copy
    flash::cp_async_commit();
    flash::cp_async_wait<1>();
    out[threadIdx.x] = smem[4 * threadIdx.x];
    out[32 + threadIdx.x] = smem[128 + 4 * threadIdx.x]; // second use
}

__global__ void copy_read_by_others(const float* in, float* out) {
    float* smem = flash::dynamic_shared<float>();
    flash::cp_async_16(smem + 4 * threadIdx.x, in + 4 * threadIdx.x); // copy for others
    flash::cp_async_commit();
    flash::cp_async_wait<0>();
    out[threadIdx.x] = smem[4 * (threadIdx.x ^ 1)]; // no barrier
}

__global__ void ldmatrix_of_copy(const float* in, uint32_t* out) {
    float* smem = flash::dynamic_shared<float>();
    flash::cp_async_16(smem + 4 * threadIdx.x, in + 4 * threadIdx.x);
    flash::cp_async_commit();
    uint32_t r[4];
    flash::ldmatrix_x4(r, smem + 4 * threadIdx.x); // matrix of a copy
    out[threadIdx.x] = r[0];
}

__global__ void many_commits(float* out) {
    for (int i = 0; i < 100; ++i) {
        flash::cp_async_commit(); // an empty group
    }
    out[threadIdx.x] = 1;
}

__global__ void deep(float* out) {
    volatile float local[160 << 10];
    local[threadIdx.x] = 1; // stack
    out[threadIdx.x] = local[threadIdx.x];
}

} // namespace

TEST_CASE("a read past the end of global memory is reported") {
    const With watched({.detect = true});
    const Buffer<float> in(100), out(101);
    const Fault fault = fault_at("global read", FaultKind::out_of_bounds, [&] {
        launch(read_global, 2, 64, 0, in.data(), out.data(), 100);
    });
    CHECK_THAT(fault.kernel, ContainsSubstring("read_global"));
    CHECK(fault.where.block.x == 1);
    CHECK(fault.where.thread.x == 36);
    CHECK_THAT(fault.where.line.file, ContainsSubstring("test_faults_memory.cpp"));
    CHECK_THAT(fault.what(), ContainsSubstring("4 bytes, just past the end of data (400 bytes)"));
    CHECK_THAT(fault.what(),
               ContainsSubstring("thread (36,0,0) of block (1,0,0) reads 4 bytes at "));
}

TEST_CASE("a write before or past global memory is reported") {
    const With watched({.detect = true});
    const Buffer<float> out(32);
    for (const int offset : {1, -1, 5000, -5000}) {
        CAPTURE(offset);
        const Fault fault = fault_at("global write", FaultKind::out_of_bounds,
                                     [&] { launch(write_global, 1, 32, 0, out.data(), offset); });
        CHECK(fault.where.action == "writes 4 bytes");
    }
}

TEST_CASE("memory that the harness declares off limits is reported") {
    const With watched({.detect = true});
    simt::DeviceMemory memory(64 * sizeof(float));
    memory.declare(16 * sizeof(float), 32 * sizeof(float), "O");
    const auto data = reinterpret_cast<float*>(memory.data());
    launch(write_global, 1, 32, 0, data, 16);
    CHECK_THAT(fault_of([&] { launch(write_global, 1, 32, 0, data, 15); }).what(),
               ContainsSubstring("4 bytes before the start of O (128 bytes)"));
    CHECK_THAT(fault_of([&] { launch(write_global, 1, 32, 0, data, 17); }).what(),
               ContainsSubstring("just past the end of O (128 bytes)"));
}

TEST_CASE("each part of a workspace has a name and bounds") {
    const With watched({.detect = true});
    const int64_t bytes = part_bytes<float>(32) + part_bytes<float>(64);
    const DeviceBuffer<char> memory(bytes, "the workspace");
    Workspace workspace(memory.data());
    float* const l = workspace.part<float>(32, "l");
    float* const m = workspace.part<float>(64, "m");
    CHECK(reinterpret_cast<uintptr_t>(m) % workspace_alignment == 0);
    launch(write_global, 1, 32, 0, l, 0);
    launch(write_global, 1, 64, 0, m, 0);
    const auto fault_of_write = [](float* part, int offset) {
        return std::string(fault_of([&] { launch(write_global, 1, 1, 0, part, offset); }).what());
    };
    CHECK_THAT(fault_of_write(l, 32),
               ContainsSubstring("4 bytes, just past the end of l (128 bytes)"));
    CHECK_THAT(fault_of_write(l, 1000),
               ContainsSubstring("3872 bytes past the end of l (128 bytes)"));
    CHECK_THAT(fault_of_write(l, -1),
               ContainsSubstring("4 bytes before the start of l (128 bytes)"));
    CHECK_THAT(fault_of_write(m, 64),
               ContainsSubstring("4 bytes, just past the end of m (256 bytes)"));

    // of another call: the parts of the one before are no longer there
    Workspace again(memory.data());
    CHECK_THAT(fault_of_write(m, 0),
               ContainsSubstring("no buffer of global memory is at this address"));
    again.part<float>(64, "dQ");
    CHECK_THAT(fault_of_write(l, 64), ContainsSubstring("just past the end of dQ (256 bytes)"));
    CHECK_THROWS_WITH(again.part<float>(bytes / 4, "turns"),
                      ContainsSubstring("is too small: turns ends after"));
}

TEST_CASE("memory that was freed is reported") {
    const With watched({.detect = true});
    float* dangling = nullptr;
    {
        const Buffer<float> out(32);
        dangling = out.data();
    }
    CHECK(fault_of([&] { launch(write_global, 1, 32, 0, dangling, 0); }).kind ==
          FaultKind::out_of_bounds);
}

TEST_CASE("a pointer into the host's memory is reported") {
    const With watched({.detect = true});
    std::vector<float> host(1);
    const Buffer<float*> pointer({host.data()});
    fault_at("wild write", FaultKind::out_of_bounds,
             [&] { launch(follow, 1, 1, 0, pointer.data()); });
}

TEST_CASE("an access outside the dynamic shared memory is reported") {
    const With watched({.detect = true});
    const Buffer<float> out(32);
    const Fault read = fault_at("dynamic read", FaultKind::out_of_bounds, [&] {
        launch(read_dynamic, 1, 32, 32 * sizeof(float), out.data(), 1);
    });
    CHECK(read.where.thread.x == 31);
    for (const int offset : {1, -1, 3000}) {
        fault_at("dynamic write", FaultKind::out_of_bounds,
                 [&] { launch(write_dynamic, 1, 32, 32 * sizeof(float), offset); });
    }
    CHECK(fault_of([&] { launch(write_dynamic, 1, 32, 0, 0); }).kind == FaultKind::out_of_bounds);
}

TEST_CASE("an access outside a __shared__ array is reported") {
    const With watched({.detect = true});
    const Buffer<float> out(32);
    // its array may lie behind the other one's: it must not count as inside
    launch(uninitialised, 1, 1, 0, out.data());
    for (const int index : {32, -1}) {
        const Fault fault = fault_at("static write", FaultKind::out_of_bounds,
                                     [&] { launch(write_static, 1, 32, 0, out.data(), index); });
        CHECK(fault.where.thread.x == 7);
    }
}

TEST_CASE("a misaligned vector access is reported") {
    const With watched({.detect = true});
    const Buffer<float> in(256), out(256);
    const Fault load = fault_at("misaligned load", FaultKind::misaligned, [&] {
        launch(misaligned_load, 1, 8, 0, in.data(), reinterpret_cast<float4*>(out.data()));
    });
    CHECK(load.where.action == "reads 16 bytes");
    const Fault store = fault_at("misaligned store", FaultKind::misaligned,
                                 [&] { launch(misaligned_store, 1, 8, 0, out.data()); });
    CHECK(store.where.thread.x == 1);
}

TEST_CASE("a read of shared memory that nobody wrote is reported") {
    const With watched({.detect = true});
    const Buffer<float> out(32);
    const Fault fault = fault_at("uninitialised read", FaultKind::uninitialised,
                                 [&] { launch(uninitialised, 1, 32, 0, out.data()); });
    CHECK(fault.where.thread.x == 16);
    CHECK_THAT(fault.what(), ContainsSubstring("at byte 128 of tile"));
}

TEST_CASE("what an earlier block left in shared memory counts as not written") {
    const With watched({.detect = true});
    const Buffer<float> out(2);
    const Fault fault = fault_at("stale read", FaultKind::uninitialised, [&] {
        launch(uninitialised_in_second_block, 2, 1, 0, out.data());
    });
    CHECK(fault.where.block.x == 1);
}

TEST_CASE("without detectors, uninitialised shared memory holds NaN") {
    const Buffer<float> out(32);
    launch(uninitialised, 1, 32, 0, out.data());
    CHECK(out.values()[15] == 1);
    CHECK(std::isnan(out.values()[16]));
}

TEST_CASE("data of a cp.async is used before its wait is reported, whenever it lands") {
    const Buffer<float> in(256), out(64);
    for (const simt::CpAsync policy : {simt::CpAsync::late, simt::CpAsync::early}) {
        const With watched({.cp_async = policy, .detect = true});
        const Fault fault = fault_at("use", FaultKind::async_copy_in_flight, [&] {
            launch(copy_without<false>, 1, 32, 512, in.data(), out.data());
        });
        CHECK(fault.other.line.line == line("copy"));
        launch(copy_without<true>, 1, 32, 512, in.data(), out.data());

        const Fault second = fault_at("second use", FaultKind::async_copy_in_flight, [&] {
            launch(copy_with_wrong_count, 1, 32, 1024, in.data(), out.data());
        });
        CHECK(second.other.line.line == line("second copy"));

        const Buffer<uint32_t> matrix(32);
        fault_at("matrix of a copy", FaultKind::async_copy_in_flight,
                 [&] { launch(ldmatrix_of_copy, 1, 32, 512, in.data(), matrix.data()); });
    }
}

TEST_CASE("a thread that leaves before its cp.async has landed is reported, whenever it lands") {
    const Buffer<float> in(256);
    for (const simt::CpAsync policy : {simt::CpAsync::late, simt::CpAsync::early}) {
        const With watched({.cp_async = policy, .detect = true});
        const Fault fault = fault_at("copy left alone", FaultKind::async_copy_in_flight, [&] {
            launch(leave_without_wait<false>, 1, 32, 512, in.data());
        });
        CHECK_THAT(fault.what(),
                   ContainsSubstring("a thread leaves the kernel before its cp.async has landed"));
        launch(leave_without_wait<true>, 1, 32, 512, in.data());
    }
}

TEST_CASE("without detectors, cp.async that lands late shows a missing wait as NaN") {
    const Buffer<float> in(std::vector<float>(256, 2)), out(64);
    launch(copy_without<false>, 1, 32, 512, in.data(), out.data());
    CHECK(std::isnan(out.values()[0]));
    const With early({.cp_async = simt::CpAsync::early});
    launch(copy_without<false>, 1, 32, 512, in.data(), out.data());
    CHECK(out.values()[0] == 2);
}

TEST_CASE("a wait covers the thread's own copies alone: others need a barrier") {
    const With watched({.detect = true});
    const Buffer<float> in(256), out(64);
    const Fault fault =
        fault_of([&] { launch(copy_read_by_others, 1, 32, 512, in.data(), out.data()); });
    CHECK(fault.kind == FaultKind::race);
    check_lines(fault, "no barrier", "copy for others");
}

TEST_CASE("without detectors, guard pages report what lies far enough outside") {
    const Buffer<float> out(64);
    for (const int offset : {1 << 18, -(1 << 18)}) {
        const Fault fault = fault_at("global write", FaultKind::out_of_bounds,
                                     [&] { launch(write_global, 1, 32, 0, out.data(), offset); });
        CHECK(fault.where.thread.x == 0);
    }
    CHECK_THAT(fault_of([&] { launch(write_global, 1, 32, 0, out.data(), 64); }).what(),
               ContainsSubstring("an address just past the end of data"));
    const Fault dynamic = fault_of([&] { launch(write_dynamic, 1, 32, 1024, 256); });
    CHECK(dynamic.kind == FaultKind::out_of_bounds);
    CHECK_THAT(dynamic.what(), ContainsSubstring("outside the dynamic shared memory (1024 bytes)"));
    const Buffer<float*> pointer({nullptr});
    CHECK(fault_of([&] { launch(follow, 1, 1, 0, pointer.data()); }).kind ==
          FaultKind::invalid_access);
    const Buffer<float> in(256);
    fault_at("misaligned load", FaultKind::invalid_access, [&] {
        launch(misaligned_load, 1, 8, 0, in.data(), reinterpret_cast<float4*>(out.data()));
    });
}

TEST_CASE("too many local variables are reported") {
    const Buffer<float> out(32);
    const Fault fault = fault_of([&] { launch(deep, 1, 32, 0, out.data()); });
    CHECK_THAT(fault.what(), ContainsSubstring("local variables exceed 512 KiB"));
    CHECK_NOTHROW(launch(write_global, 1, 32, 0, out.data(), 0));
}

TEST_CASE("what the runtime does for cp.async is not taken for an access of the kernel") {
    const Buffer<float> out(32);
    in_every_way([&] { CHECK_NOTHROW(launch(many_commits, 1, 32, 0, out.data())); });
}

TEST_CASE("a program whose path has spaces and quotes knows its source lines") {
    namespace fs = std::filesystem;
    const fs::path folder =
        fs::temp_directory_path() / ("it's a \"test\" " + std::to_string(getpid()));
    fs::create_directory(folder);
    const fs::path copy = folder / "test_simt";
    fs::copy_file(simt::program_file(), copy);
    const pid_t child = fork();
    if (child == 0) {
        execl(copy.c_str(), copy.c_str(), "a read past the end of global memory is reported",
              nullptr);
        _exit(127);
    }
    int status = -1;
    waitpid(child, &status, 0);
    fs::remove_all(folder);
    CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
}
