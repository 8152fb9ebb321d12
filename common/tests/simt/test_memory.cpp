// Memory that CUDA programs use beside cudaMalloc's: __shared__ variables of any type and place,
// variables of the device, memory that both sides reach.
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstring>
#include <exception>

#include "common/tests/simt/support.hpp"

using namespace simt_test;
using Catch::Matchers::ContainsSubstring;

namespace {

// ---- __shared__ variables

struct Pair {
    float first, second;
    Pair() {} // so that g++ notes whether the array has been constructed
    Pair(float a, float b) : first(a), second(b) {}
};

__global__ void shared_objects(float* out) {
    __shared__ Pair pairs[32];
    __shared__ float2 vectors[32];
    pairs[threadIdx.x] = Pair(static_cast<float>(threadIdx.x), 1);
    vectors[threadIdx.x] = make_float2(2, static_cast<float>(threadIdx.x));
    __syncthreads();
    out[blockIdx.x * 32 + threadIdx.x] =
        pairs[31 - threadIdx.x].first + vectors[31 - threadIdx.x].y;
}

__global__ void shared_objects_unordered(float* out) {
    __shared__ Pair pairs[32];
    pairs[threadIdx.x].first = static_cast<float>(threadIdx.x); // object written
    out[threadIdx.x] = pairs[31 - threadIdx.x].first;           // object read
}

// Sizes that leave gaps: an overrun into the next variable is none.
__shared__ int of_file[59];
static __shared__ int of_file_too[59];
__shared__ Pair object_of_file[4];

__global__ void use_file(int* out, int offset) {
    of_file[threadIdx.x] = static_cast<int>(threadIdx.x);
    of_file_too[threadIdx.x + offset] = 1; // write of a file's
    object_of_file[0 * offset].first = 1;
    __syncthreads();
    out[blockIdx.x * 59 + threadIdx.x] = of_file[58 - threadIdx.x] + of_file_too[threadIdx.x];
}

__global__ void use_file_unordered(int* out) {
    of_file[threadIdx.x] = static_cast<int>(threadIdx.x); // file's written
    out[threadIdx.x] = of_file[58 - threadIdx.x];         // file's read
}

__global__ void use_file_unwritten(int* out) {
    if (blockIdx.x == 0) {
        of_file[threadIdx.x] = 1;
    }
    __syncthreads();
    out[blockIdx.x * 59 + threadIdx.x] = of_file[threadIdx.x]; // file's of another block
}

__global__ void static_shared(float* out) {
    static __shared__ float tile[32];
    tile[threadIdx.x] = 1;                     // static written
    out[threadIdx.x] = tile[31 - threadIdx.x]; // static read
}

template <class T> __device__ T exchange(T value, int offset) {
    __shared__ T mailbox[30];
    mailbox[threadIdx.x + offset] = value; // to the mailbox
    __syncthreads();
    return mailbox[29 - threadIdx.x];
}

__global__ void use_mailbox(float* out, int offset) {
    __shared__ float own[30];
    own[threadIdx.x] = exchange(static_cast<float>(threadIdx.x), offset);
    out[threadIdx.x] = own[threadIdx.x];
}

// ---- variables of the device

__device__ int counter;
__device__ int numbers[15];
static __device__ float of_this_file[4];
__constant__ float coefficients[3];
__constant__ int limit = 7;
__device__ __managed__ int both = 1;
struct Settings {
    int first, second;
};
__constant__ Settings settings;
static float table_of_host[64];

__global__ void count_up() {
    counter = counter + 1; // unordered count
}

__global__ void count_atomically() { atomicAdd(&counter, 1); }

__global__ void write_numbers(int index) {
    numbers[index] = 1; // to the numbers
}

__global__ void use_constants(float* out) {
    out[threadIdx.x] = coefficients[threadIdx.x] * static_cast<float>(limit + settings.second) +
                       of_this_file[threadIdx.x];
    both = 2;
}

__global__ void write_constant() {
    coefficients[threadIdx.x] = 1; // to a constant
}

__device__ int calls_so_far() {
    static int calls;
    return atomicAdd(&calls, 1);
}

__global__ void count_calls(int* out) { out[threadIdx.x] = calls_so_far(); }

__global__ void copy(const float* in, float* out) {
    out[threadIdx.x] = in[threadIdx.x]; // copied
}

// ---- memcpy and memset

struct Row {
    float values[24];
};

__global__ void copy_unordered(float* data) {
    __shared__ float tile[8 * 32];
    memcpy(&tile[8 * threadIdx.x], &data[8 * threadIdx.x], 32);        // bytes written
    memcpy(&data[8 * threadIdx.x], &tile[8 * (31 - threadIdx.x)], 32); // bytes read
}

__global__ void copy_to_end(float* out, const float* in, int size) {
    memcpy(out, in, size * sizeof(float)); // copy of some size
}

__global__ void clear_to_end(float* out, int size) {
    memset(out, 0, size * sizeof(float)); // clearing
}

__global__ void move_by_one(float* data, int size) {
    memmove(data + 1, data, size * sizeof(float)); // move
}

__global__ void copy_rows(Row* out, const Row* in) {
    out[threadIdx.x] = in[threadIdx.x]; // row
}

__global__ void clear_shared(float* out) {
    __shared__ float tile[64];
    if (threadIdx.x == 0) {
        std::memset(tile, 0, sizeof tile);
    }
    __syncthreads();
    out[threadIdx.x] = tile[threadIdx.x];
}

__global__ void from_bytes(const unsigned char* in, float* out) {
    float value;
    memcpy(&value, in + 1 + 4 * threadIdx.x, sizeof value); // not aligned, and right
    out[threadIdx.x] = value;
}

// ---- malloc and new in kernels

struct Node {
    int value;
    Node* next;
};

__global__ void build_lists(Node** lists) {
    Node* first = nullptr;
    for (int i = 0; i < 3; ++i) {
        first = new Node{i, first};
    }
    lists[threadIdx.x] = first;
}

__global__ void sum_lists(Node** lists, int* sums) {
    int sum = 0;
    for (Node* node = lists[threadIdx.x]; node != nullptr;) {
        sum += node->value; // of a node
        Node* const next = node->next;
        delete node;
        node = next;
    }
    sums[threadIdx.x] = sum;
}

__global__ void use_heap(int* out, int index) {
    int* const memory = static_cast<int*>(malloc(10 * sizeof(int)));
    memory[index] = 5;            // to the heap
    out[threadIdx.x] = memory[0]; // from the heap
    int* volatile freed = memory; // volatile, or g++ 14 sees what is wrong here
    free(memory);
    freed[index] = 6; // after free
}

__global__ void free_twice() {
    int* volatile memory = new int[4]; // volatile, or g++ leaves it all out
    delete[] memory;
    delete[] memory; // once more
}

__global__ void free_argument(float* argument) {
    free(argument); // not a kernel's
}

__global__ void fill_heap(char** out, bool with_new) {
    while (true) {
        if (with_new) {
            out[0] = new char[1 << 16]; // too much
        } else if (malloc(1 << 16) == nullptr) {
            return;
        }
    }
}

// ---- launches in kernels, large locals

__global__ void add_one(int* sum, int depth) {
    if (threadIdx.x == 0) {
        *sum += 1; // inner add
        if (depth > 0) {
            launch(add_one, 2, 32, 0, sum, depth - 1);
        }
    }
}
__global__ void launch_in_turn(int* sum, int wait) {
    if (threadIdx.x < 3) {
        launch(add_one, 1, 32, 0, sum, 0);
    }
    if (threadIdx.x == 0 && *sum == 0 && wait == 1) {
        cudaDeviceSynchronize(); // inner wait
    }
}

__global__ void large_locals(float* out) {
    volatile float local[60 << 10];
    for (int i = 0; i < 60 << 10; i += 256) {
        local[i] = static_cast<float>(i);
    }
    out[threadIdx.x] = local[256 * (threadIdx.x % 200)];
}

// ---- global memory that nobody wrote

__global__ void accumulate(float* sums, const float* in, int size) {
    if (static_cast<int>(threadIdx.x) < size) {
        sums[threadIdx.x] += in[threadIdx.x]; // sum
    }
}

__global__ void fill(int* out, int value) { out[threadIdx.x] = value; }

__global__ void read_ints(const int* in, int* out) { out[threadIdx.x] = in[threadIdx.x]; }

template <class T> T* device_memory(size_t size) {
    T* pointer = nullptr;
    REQUIRE(cudaMalloc(&pointer, size * sizeof(T)) == cudaSuccess);
    return pointer;
}

/// What the program would say at its end if it did this. Nothing is launched there.
template <class Use> std::string last_words(Use use) {
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    if (const pid_t child = fork(); child == 0) {
        static int to = ends[1];
        std::set_terminate([] {
            try {
                throw;
            } catch (const std::exception& error) {
                [[maybe_unused]] const auto written = write(to, error.what(), strlen(error.what()));
            }
            _exit(1);
        });
        use();
        _exit(0);
    } else {
        close(ends[1]);
        std::string text(2000, ' ');
        const ssize_t size = read(ends[0], text.data(), text.size());
        close(ends[0]);
        waitpid(child, nullptr, 0);
        return text.substr(0, size < 0 ? 0 : static_cast<size_t>(size));
    }
}

} // namespace

/// Of no namespace: g++ leaves tags out of the names of such templates.
template <class T> __global__ void template_of_file(T* out, int offset) {
    __shared__ T tile[30];
    tile[threadIdx.x + offset] = 1; // to the template's
    __syncthreads();
    out[threadIdx.x] = tile[29 - threadIdx.x];
}

TEST_CASE(
    "__shared__ variables whose type has a constructor are shared memory, no more and no less") {
    const Buffer<float> out(64);
    in_every_way([&] {
        launch(shared_objects, 2, 32, 0, out.data());
        CHECK(out.values()[0] == 62);
        const Fault fault =
            fault_of([&] { launch(shared_objects_unordered, 1, 32, 0, out.data()); });
        CHECK(fault.kind == FaultKind::race);
        check_lines(fault, "object written", "object read");
    });
}

TEST_CASE("a __shared__ variable of a file belongs to each block") {
    const Buffer<int> out(256);
    in_every_way([&] { launch(use_file, 4, 59, 0, out.data(), 0); });
    CHECK(out.values()[177] == 59);
    const With watched({.detect = true});
    const Fault outside = fault_at("write of a file's", FaultKind::out_of_bounds,
                                   [&] { launch(use_file, 1, 59, 0, out.data(), 1); });
    CHECK_THAT(outside.what(), ContainsSubstring("past the end of of_file_too (236 bytes)"));
    const Fault race = fault_of([&] { launch(use_file_unordered, 1, 59, 0, out.data()); });
    CHECK(race.kind == FaultKind::race);
    check_lines(race, "file's written", "file's read");
    fault_at("file's of another block", FaultKind::uninitialised,
             [&] { launch(use_file_unwritten, 2, 59, 0, out.data()); });
}

TEST_CASE("static __shared__ is __shared__") {
    const Buffer<float> out(32);
    const With watched({.detect = true});
    const Fault fault = fault_of([&] { launch(static_shared, 1, 32, 0, out.data()); });
    CHECK(fault.kind == FaultKind::race);
    CHECK_THAT(fault.what(), ContainsSubstring(" of tile"));
}

TEST_CASE("__shared__ variables of templates and device functions have their names and sizes") {
    const Buffer<float> out(32);
    simt::clear_profile();
    {
        const With counted({.detect = true, .count = true});
        launch(use_mailbox, 1, 30, 0, out.data(), 0);
        launch(template_of_file<float>, 1, 30, 0, out.data(), 0);
    }
    const std::vector<simt::KernelProfile> profile = simt::profile();
    REQUIRE(profile.size() == 2);
    CHECK(profile[0].shared_bytes == 240);
    CHECK(profile[1].shared_bytes == 120);
    const With watched({.detect = true});
    const Fault of_function = fault_at("to the mailbox", FaultKind::out_of_bounds,
                                       [&] { launch(use_mailbox, 1, 30, 0, out.data(), 1); });
    CHECK_THAT(of_function.what(), ContainsSubstring("past the end of mailbox (120 bytes)"));
    const Fault of_template = fault_at("to the template's", FaultKind::out_of_bounds, [&] {
        launch(template_of_file<float>, 1, 30, 0, out.data(), 1);
    });
    CHECK_THAT(of_template.what(), ContainsSubstring("past the end of tile (120 bytes)"));
}

TEST_CASE("variables of the device are global memory") {
    const With watched({.detect = true});
    const int zero = 0;
    REQUIRE(cudaMemcpyToSymbol(counter, &zero, sizeof zero) == cudaSuccess);
    const Fault race = fault_of([] { launch(count_up, 1, 64, 0); });
    CHECK(race.kind == FaultKind::race);
    CHECK_THAT(race.what(), ContainsSubstring("at byte 0 of counter"));
    check_lines(race, "unordered count", "unordered count");
    REQUIRE(cudaMemcpyToSymbol(counter, &zero, sizeof zero) == cudaSuccess);
    launch(count_atomically, 2, 64, 0);
    int count = 0;
    REQUIRE(cudaMemcpyFromSymbol(&count, counter, sizeof count) == cudaSuccess);
    CHECK(count == 128);

    launch(write_numbers, 1, 1, 0, 14);
    const Fault outside = fault_at("to the numbers", FaultKind::out_of_bounds,
                                   [] { launch(write_numbers, 1, 1, 0, 15); });
    CHECK_THAT(outside.what(),
               ContainsSubstring("4 bytes, just past the end of numbers (60 bytes)"));
    const Buffer<int> calls(32);
    launch(count_calls, 1, 32, 0, calls.data());
}

TEST_CASE("constant memory is the host's to write") {
    const With watched({.detect = true});
    const Buffer<float> out(3);
    const float values[] = {1, 2, 3};
    const Settings chosen{1, 3};
    REQUIRE(cudaMemcpyToSymbol(coefficients, values, sizeof values) == cudaSuccess);
    REQUIRE(cudaMemcpyToSymbol(settings, &chosen, sizeof chosen) == cudaSuccess);
    REQUIRE(cudaMemcpyToSymbol(of_this_file, values, 4, 8) == cudaSuccess);
    const int before = both;
    launch(use_constants, 1, 1, 0, out.data());
    CHECK(out.values()[0] == 10);
    CHECK(before == 1);
    CHECK(both == 2);
    float* second = nullptr;
    REQUIRE(cudaGetSymbolAddress((void**)&second, of_this_file) == cudaSuccess);
    launch(copy, 1, 3, 0, second, out.data());
    CHECK(out.values()[2] == 1);
    const Fault fault = fault_at("to a constant", FaultKind::invalid_access,
                                 [] { launch(write_constant, 1, 1, 0); });
    CHECK_THAT(fault.what(), ContainsSubstring("constant memory is written by a kernel, at byte 0 "
                                               "of coefficients"));
}

TEST_CASE("what is the host's is no memory of the device") {
    const With watched({.detect = true});
    const Buffer<float> out(32);
    const Fault of_table = fault_at("copied", FaultKind::out_of_bounds,
                                    [&] { launch(copy, 1, 32, 0, table_of_host, out.data()); });
    CHECK_THAT(of_table.what(), ContainsSubstring("4 bytes of table_of_host, a variable of the "
                                                  "host, which is no memory of the device"));
    const std::vector<float> on_heap(32);
    const float on_stack[32] = {};
    for (const float* const pointer : {on_heap.data(), &on_stack[0]}) {
        CHECK_THAT(fault_at("copied", FaultKind::out_of_bounds,
                            [&] { launch(copy, 1, 32, 0, pointer, out.data()); })
                       .what(),
                   ContainsSubstring("the host's memory is not the device's"));
    }
    CHECK_THAT(
        fault_at("copied", FaultKind::out_of_bounds,
                 [&] { launch(copy, 1, 32, 0, static_cast<const float*>(nullptr), out.data()); })
            .what(),
        ContainsSubstring("it comes from a null pointer"));
}

TEST_CASE("copies and clearing of bytes are accesses, inlined or not") {
    const With watched({.detect = true});
    const Buffer<float> data(256), other(256);
    const Fault race = fault_of([&] { launch(copy_unordered, 1, 32, 0, data.data()); });
    CHECK(race.kind == FaultKind::race);
    check_lines(race, "bytes written", "bytes read");
    launch(copy_to_end, 1, 1, 0, data.data(), other.data(), 256);
    for (const int size : {257, 300}) {
        fault_at("copy of some size", FaultKind::out_of_bounds,
                 [&] { launch(copy_to_end, 1, 1, 0, data.data(), other.data(), size); });
        fault_at("clearing", FaultKind::out_of_bounds,
                 [&] { launch(clear_to_end, 1, 1, 0, data.data(), size); });
        fault_at("move", FaultKind::out_of_bounds,
                 [&] { launch(move_by_one, 1, 1, 0, data.data(), size - 1); });
    }
    fault_at("row", FaultKind::out_of_bounds, [&] {
        launch(copy_rows, 1, 11, 0, reinterpret_cast<Row*>(data.data()),
               reinterpret_cast<const Row*>(other.data()));
    });
    launch(clear_shared, 1, 64, 0, data.data());
    CHECK(data.values()[63] == 0);
    const Buffer<unsigned char> bytes(129);
    launch(from_bytes, 1, 32, 0, bytes.data(), data.data());
}

TEST_CASE("copies and clearing of bytes are counted") {
    const Buffer<float> data(256), other(256);
    simt::clear_profile();
    {
        const With counted({.count = true});
        launch(copy_to_end, 1, 1, 0, data.data(), other.data(), 64);
        launch(clear_to_end, 1, 1, 0, data.data(), 8);
    }
    const std::vector<simt::KernelProfile> kernels = simt::profile();
    REQUIRE(kernels.size() == 2);
    CHECK(kernels[0].total.global_load.bytes == 256);
    CHECK(kernels[0].total.global_store.bytes == 256);
    CHECK(kernels[1].total.global_store.bytes == 32);
}

TEST_CASE("global memory that nobody wrote is reported when a kernel reads it") {
    const With watched({.detect = true});
    float* const sums = device_memory<float>(64);
    float* const in = device_memory<float>(64);
    int* const ones = device_memory<int>(64);
    const std::vector<float> values(64, 1);
    REQUIRE(cudaMemcpy(in, values.data(), 256, cudaMemcpyHostToDevice) == cudaSuccess);
    const Fault fault = fault_at("sum", FaultKind::uninitialised,
                                 [&] { launch(accumulate, 1, 64, 0, sums, in, 64); });
    CHECK_THAT(fault.what(), ContainsSubstring("read of global memory that neither the host nor a "
                                               "kernel has written, at byte 0 of pointer"));
    REQUIRE(cudaMemset(sums, 0, 128) == cudaSuccess);
    launch(accumulate, 1, 32, 0, sums, in, 64);
    CHECK(fault_at("sum", FaultKind::uninitialised, [&] {
              launch(accumulate, 1, 64, 0, sums, in, 64);
          }).where.thread.x == 32);
    // what looks like fresh memory, but was written: by a kernel, by the host
    launch(fill, 1, 64, 0, ones, -1);
    launch(read_ints, 1, 64, 0, ones, reinterpret_cast<int*>(in));
    REQUIRE(cudaMemset(sums, 0xff, 256) == cudaSuccess);
    launch(read_ints, 1, 64, 0, reinterpret_cast<int*>(sums), ones);
    // a copy of what nobody wrote
    REQUIRE(cudaFree(ones) == cudaSuccess);
    int* const fresh = device_memory<int>(64);
    REQUIRE(cudaMemcpy(sums, fresh, 256, cudaMemcpyDeviceToDevice) == cudaSuccess);
    CHECK(fault_of([&] { launch(accumulate, 1, 32, 0, in, sums, 64); }).kind ==
          FaultKind::uninitialised);
    // nobody has seen what this one writes
    {
        const With unwatched({});
        launch(fill, 1, 64, 0, fresh, -1);
    }
    launch(read_ints, 1, 64, 0, fresh, reinterpret_cast<int*>(in));
    for (void* const memory : {(void*)sums, (void*)in, (void*)fresh}) {
        REQUIRE(cudaFree(memory) == cudaSuccess);
    }
}

TEST_CASE("calls with wrong pointers or sizes are refused in one line") {
    float* const data = device_memory<float>(16);
    float* const large = device_memory<float>(128);
    std::vector<float> host(64);
    const auto refusal = [](auto call) {
        const Fault fault = fault_of(call);
        CHECK(fault.kind == FaultKind::host_misuse);
        CHECK_THAT(fault.what(), ContainsSubstring(" at common/tests/simt/test_memory.cpp:") ||
                                     ContainsSubstring("/common/tests/simt/test_memory.cpp:"));
        CHECK(std::string(fault.what()).find('\n') == std::string::npos);
        return std::string(fault.what());
    };
    CHECK_THAT(refusal([&] { cudaMemcpy(host.data(), data, 64, cudaMemcpyHostToDevice); }),
               ContainsSubstring("its destination must be device memory, but it is host memory "
                                 "(malloc, new or a local variable)"));
    CHECK_THAT(refusal([&] { cudaMemcpy(data, host.data(), 64, cudaMemcpyDeviceToHost); }),
               ContainsSubstring("its destination must be memory of the host, but it is pointer, "
                                 "device memory"));
    CHECK_THAT(refusal([&] { cudaMemcpy(data, host.data(), 68, cudaMemcpyHostToDevice); }),
               ContainsSubstring("68 bytes are more than its destination has from there on: "
                                 "pointer, device memory, ends after 64 bytes"));
    CHECK_THAT(refusal([&] { cudaMemcpy(host.data(), data + 4, 64, cudaMemcpyDeviceToHost); }),
               ContainsSubstring("ends after 48 bytes"));
    CHECK_THAT(refusal([&] { cudaMemcpy(large, table_of_host, 260, cudaMemcpyHostToDevice); }),
               ContainsSubstring("table_of_host, a variable of the host"));
    CHECK_THAT(refusal([&] { cudaMemset(data, 0, 100); }), ContainsSubstring("100 bytes are more"));
    CHECK_THAT(refusal([&] { cudaMemset(host.data(), 0, 4); }), ContainsSubstring("host memory"));
    CHECK_THAT(refusal([&] { cudaMemcpy(nullptr, host.data(), 4, cudaMemcpyHostToDevice); }),
               ContainsSubstring("a null pointer"));
    CHECK_THAT(refusal([&] { cudaMemcpyToSymbol(numbers, host.data(), 64); }),
               ContainsSubstring("numbers, a variable of the device, ends after 60 bytes"));
    CHECK_THAT(refusal([&] { cudaMemcpyToSymbol(table_of_host, host.data(), 64); }),
               ContainsSubstring("must be a __device__ or __constant__ variable"));
    CHECK_THAT(refusal([&] { cudaFree(host.data()); }),
               ContainsSubstring("it frees host memory (malloc, new or a local variable)"));
    CHECK_THAT(
        refusal([&] { cudaFree(data + 1); }),
        ContainsSubstring("its pointer is not the beginning of pointer, device memory, but 4 "
                          "bytes after it"));
    CHECK_THAT(refusal([&] { cudaFreeHost(data); }), ContainsSubstring("is freed by cudaFree"));
    REQUIRE(cudaFree(data) == cudaSuccess);
    CHECK_THAT(refusal([&] { cudaFree(data); }),
               ContainsSubstring("pointer has been freed before"));
    CHECK_THAT(refusal([&] { cudaMemset(data, 0, 4); }),
               ContainsSubstring("device memory that has been freed"));
    REQUIRE(cudaMemcpy(data, host.data(), 0, cudaMemcpyHostToDevice) == cudaSuccess);
    REQUIRE(cudaFree(large) == cudaSuccess);
}

TEST_CASE("the host's own accesses to device memory end the program") {
    float* const data = device_memory<float>(16);
    const auto line_said = [](const char* tag) {
        return "test_memory.cpp:" + std::to_string(line_of(__FILE__, tag)) + ": it ";
    };
    std::vector<float> host(16);
    const auto writes = [&] {
        data[3] = 1; // host writes
    };
    const auto reads = [&] {
        host[1] = data[3]; // host reads
    };
    const auto copies = [&] { std::copy(host.begin(), host.end(), data); };
    const auto sets = [&] {
        counter = static_cast<int>(host[1]); // host sets a variable
    };
    CHECK_THAT(last_words(writes),
               ContainsSubstring(line_said("host writes") + "writes 4 bytes of pointer, device "
                                                            "memory; only kernels may touch it"));
    CHECK_THAT(last_words(reads),
               ContainsSubstring(line_said("host reads") + "reads 4 bytes of pointer"));
    CHECK_THAT(last_words(copies), ContainsSubstring("writes 64 bytes of pointer, device memory"));
    CHECK_THAT(last_words(sets),
               ContainsSubstring(line_said("host sets a variable") +
                                 "writes 4 bytes of counter, a variable of the device"));
    REQUIRE(cudaFree(data) == cudaSuccess);
    CHECK_THAT(last_words([&] { data[0] = 1; }),
               ContainsSubstring("device memory that has been freed"));
    CHECK(last_words([&] { both = host[0] > 0 ? 3 : 4; }).empty());
}

TEST_CASE("managed and pinned memory is of both sides") {
    const With watched({.detect = true});
    float* managed = nullptr;
    float* pinned = nullptr;
    float* mapped = nullptr;
    REQUIRE(cudaMallocManaged(&managed, 32 * sizeof(float)) == cudaSuccess);
    REQUIRE(cudaMallocHost((void**)&pinned, 32 * sizeof(float)) == cudaSuccess);
    REQUIRE(cudaHostAlloc(&mapped, 32 * sizeof(float), cudaHostAllocMapped) == cudaSuccess);
    for (int i = 0; i < 32; ++i) {
        pinned[i] = static_cast<float>(i);
    }
    REQUIRE(cudaMemcpy(mapped, pinned, 128, cudaMemcpyHostToHost) == cudaSuccess);
    float* on_device = nullptr;
    REQUIRE(cudaHostGetDevicePointer(&on_device, mapped, 0) == cudaSuccess);
    launch(copy, 1, 32, 0, on_device, managed);
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
    CHECK(managed[31] == 31);
    CHECK_THAT(fault_of([&] { launch(copy, 1, 33, 0, pinned, managed); }).what(),
               ContainsSubstring("past the end of pinned (128 bytes)"));
    CHECK_THAT(fault_of([&] { cudaFree(pinned); }).what(),
               ContainsSubstring("pinned memory of the host, is freed by cudaFreeHost"));
    REQUIRE(cudaFree(managed) == cudaSuccess);
    REQUIRE(cudaFreeHost(pinned) == cudaSuccess);
    REQUIRE(cudaFreeHost(mapped) == cudaSuccess);
}

TEST_CASE("malloc and new in kernels give memory that is watched") {
    const With watched({.detect = true});
    const Buffer<Node*> lists(64);
    const Buffer<int> sums(64);
    launch(build_lists, 1, 64, 0, lists.data());
    launch(sum_lists, 1, 64, 0, lists.data(), sums.data());
    CHECK(sums.values()[63] == 3);
    CHECK_THAT(fault_at("of a node", FaultKind::out_of_bounds,
                        [&] { launch(sum_lists, 1, 64, 0, lists.data(), sums.data()); })
                   .what(),
               ContainsSubstring("at byte 0 of 16 bytes that a kernel asked for and has freed"));
    CHECK_THAT(fault_at("to the heap", FaultKind::out_of_bounds,
                        [&] { launch(use_heap, 1, 1, 0, sums.data(), 10); })
                   .what(),
               ContainsSubstring("4 bytes, 0 bytes past the end of 40 bytes that a kernel"));
    fault_at("from the heap", FaultKind::uninitialised,
             [&] { launch(use_heap, 1, 1, 0, sums.data(), 1); });
    fault_at("after free", FaultKind::out_of_bounds,
             [&] { launch(use_heap, 1, 1, 0, sums.data(), 0); });
    fault_at("once more", FaultKind::invalid_access, [&] { launch(free_twice, 1, 1, 0); });
    const Buffer<float> data(4);
    CHECK_THAT(fault_at("not a kernel's", FaultKind::invalid_access,
                        [&] { launch(free_argument, 1, 1, 0, data.data()); })
                   .what(),
               ContainsSubstring("free or delete of data, which is not from malloc"));
    const Buffer<char*> last(1);
    launch(fill_heap, 1, 1, 0, last.data(), false);
    CHECK_THAT(fault_at("too much", FaultKind::invalid_access,
                        [&] { launch(fill_heap, 1, 1, 0, last.data(), true); })
                   .what(),
               ContainsSubstring("the device heap is full: kernels hold 8 MiB"));
}

TEST_CASE("a kernel's launches follow it, one after the other") {
    for (const bool detect : {true, false}) {
        const With chosen({.detect = detect});
        const Buffer<int> sum(1);
        launch(launch_in_turn, 1, 32, 0, sum.data(), 0);
        CHECK(sum.values()[0] == 3);
        CHECK_THAT(fault_at("inner wait", FaultKind::launch,
                            [&] { launch(launch_in_turn, 1, 32, 0, Buffer<int>(1).data(), 1); })
                       .what(),
                   ContainsSubstring("a kernel waits for its launches"));
        launch(launch_in_turn, 1, 32, 0, sum.data(), 0);
        CHECK(sum.values()[0] == 6);
    }
    const With watched({.detect = true});
    const Buffer<int> sum(1);
    fault_at("inner add", FaultKind::race, // of the two blocks that the first one launches
             [&] { launch(add_one, 1, 32, 0, sum.data(), 1); });
}

TEST_CASE("1024 threads have 240 KB of local variables each") {
    const With watched({.detect = true});
    const Buffer<float> out(1024);
    launch(large_locals, 1, 1024, 0, out.data());
    CHECK(out.values()[1] == 256);
}
