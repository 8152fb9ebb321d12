"""scripts/simt on whole programs, as they stand in books. Where the SIMT backend is built."""

import json
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
CUDA = Path(__file__).with_name("cuda")
NO_PYPI = "PyPI does not answer"
PIPES = {"capture_output": True, "text": True, "stdin": subprocess.DEVNULL}

VECTOR_ADD = """#include <stdio.h>
#include <cuda_runtime.h>
#include "check.cuh"
__global__ void add(const float* a, const float* b, float* c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i] + b[i];
}
int main(int argc, char** argv) {
    const int n = 1000;
    float host[n], *a, *b, *c;
    for (int i = 0; i < n; ++i) host[i] = i;
    CHECK(cudaMalloc((void**)&a, sizeof host));
    CHECK(cudaMalloc(&b, sizeof host));
    CHECK(cudaMalloc(&c, sizeof host));
    CHECK(cudaMemcpy(a, host, sizeof host, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(b, host, sizeof host, cudaMemcpyHostToDevice));
    dim3 blockDim(256), gridDim((n + blockDim.x - 1) / blockDim.x);
    add<<<gridDim, blockDim>>>(a, b, c, n + EXTRA);
    CHECK(cudaMemcpy(host, c, sizeof host, cudaMemcpyDeviceToHost));
    printf("%g %s\\n", host[999], argv[1]);
    return 7;
}
"""
SAMPLED = """#include <cstdio>
__global__ void fill(float* x) { x[blockIdx.x * 32 + threadIdx.x] = 1; }
__global__ void sum(const float* x, float* pairs) {
    const int block = gridDim.x - 1 - blockIdx.x; // the other end: fill has not been there
    atomicAdd(&pairs[blockIdx.x / 2], x[block * 32 + threadIdx.x]);
    if (RACE && threadIdx.x == 0) pairs[(gridDim.x + blockIdx.x) / 2] = blockIdx.x;
}
int main() {
    const int blocks = 100000;
    float *x, *pairs, last;
    cudaMalloc(&x, blocks * 32 * sizeof *x);
    cudaMalloc(&pairs, blocks * sizeof *pairs);
    cudaMemset(pairs, 0, blocks * sizeof *pairs);
    fill<<<blocks, 32>>>(x);
    sum<<<blocks, 32>>>(x, pairs);
    cudaMemcpy(&last, pairs + (blocks - 1) / 2, sizeof last, cudaMemcpyDeviceToHost);
    std::printf("%g\\n", last);
}
"""
BY_KERNELS = """#include <cstdio>
template <class T> __global__ void halve(T* x, int n) {
    x[blockIdx.x * blockDim.x + threadIdx.x] += n;
    if (threadIdx.x == 0 && blockIdx.x == 0 && n > 1) {
        halve<T><<<1, n / 2>>>(x, n / 2);
    }
}
int main() {
    int* x;
    cudaMallocManaged(&x, 64 * sizeof *x);
    halve<<<2, 32>>>(x, 64);
    cudaDeviceSynchronize();
    std::printf("%d %d %d\\n", x[0], x[1], x[63]);
}
"""
REPEATED = """#include <cstdio>
__global__ void count(int* blocks) { atomicAdd(blocks, 1); }
int main() {
    int *blocks, seen;
    cudaMalloc(&blocks, sizeof *blocks);
    cudaMemset(blocks, 0, sizeof *blocks);
    for (int i = 0; i < 5; ++i)
        count<<<100, 1>>>(blocks);
    cudaMemcpy(&seen, blocks, sizeof seen, cudaMemcpyDeviceToHost);
    std::printf("%d\\n", seen);
}
"""
CLEARED = """#include <cstdio>
#include "common/cuda/cuda.hpp"
__global__ void add(int* a) { a[threadIdx.x] += threadIdx.x; }
int main() {
    int *a, last;
    cudaMalloc(&a, 32 * sizeof *a);
    flash::clear(a, 32);
    add<<<1, 32>>>(a);
    cudaMemcpy(&last, a + 31, sizeof last, cudaMemcpyDeviceToHost);
    std::printf("%d\\n", last);
}
"""
CUBLAS_OF_A_STREAM = """#include <cublas_v2.h>
#include <cstdio>
__global__ void fill(float* x, float v) { x[threadIdx.x] = v; }
int main() {
    float *a, *b, *c, sum;
    cudaMalloc(&a, 64);
    cudaMalloc(&b, 64);
    cudaMallocManaged(&c, 64);
    cudaStream_t own;
    cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking);
    cublasHandle_t handle;
    cublasCreate(&handle);
    cublasSetStream(handle, own);
    fill<<<1, 16, 0, own>>>(a, 1);
    fill<<<1, 16, 0, own>>>(b, 2);
    const float one = 1, zero = 0;
    cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, 4, 4, 4, &one, a, 4, b, 4, &zero, c, 4);
    cublasSasum(handle, 16, c, 1, &sum);
    fill<<<1, 16, 0, own>>>(a, 1);
    cudaStreamSynchronize(own);
    printf("%g %g\\n", c[3], sum);
}
"""
STREAMS_OF_THREADS = """#include <cstdio>
#include <omp.h>
__global__ void add(int* x) { x[blockIdx.x * 256 + threadIdx.x] += 1; }
int main() {
    const int part = 1 << 16;
    int *a, *b, *host;
    cudaMalloc(&a, 4 * part * sizeof(int));
    cudaMalloc(&b, 4 * part * sizeof(int));
    cudaMallocHost(&host, 4 * part * sizeof(int));
    for (int i = 0; i < 4 * part; ++i) host[i] = i;
    #pragma omp parallel num_threads(3)
    {
        const int at = omp_get_thread_num() * part;
        cudaStream_t own;
        cudaStreamCreate(&own);
        for (int i = 0; i < 200; ++i) {
            cudaMemcpyAsync(a + at, host + at, part * 4, cudaMemcpyHostToDevice, own);
            if (i == 0) add<<<part / 256, 256, 0, own>>>(a + at);
            cudaMemcpyAsync(b + at, a + at, part * 4, cudaMemcpyDeviceToDevice, own);
        }
    }
    cudaDeviceSynchronize();
    puts("done");
}
"""
WITH_OPENMP = """#include <cstdio>
#include <omp.h>
__global__ void add(int* sum, int by) { atomicAdd(sum, by); }
int main() {
    int *sum, host, threads = 0;
    cudaMalloc(&sum, sizeof *sum);
    cudaMemset(sum, 0, sizeof *sum);
    #pragma omp parallel num_threads(4)
    {
        #pragma omp atomic
        threads++;
        #pragma omp for
        for (int i = 0; i < 8; ++i) add<<<1, 1>>>(sum, i);
    }
    cudaMemcpy(&host, sum, sizeof host, cudaMemcpyDeviceToHost);
    printf("%d %d\\n", threads, host);
}
"""
ZEROED = """#include <cstdio>
__global__ void count(int* sum) { atomicAdd(sum, 1); }
int main() {
    int* sum;
    cudaMallocManaged(&sum, sizeof *sum);
    count<<<1, 32>>>(sum);
    cudaDeviceSynchronize();
    printf("%d\\n", *sum);
}
"""
CHECK = """#define CHECK(call) do { if (call != cudaSuccess) return 1; } while (0)
"""
EVERYTHING = """#include <cstdio>
#include "two.h"
#define LAUNCH(k, n) k<<<1, n>>>(numbers)
#define SHAPE(grid, block) <<<grid, block>>>
extern "C" __global__ void square(int* a) { a[threadIdx.x] *= a[threadIdx.x]; }
template <class T> __global__ void reverse(T* a, int n) {
    extern __shared__ __align__(16) T s[];
    s[threadIdx.x] = a[threadIdx.x];
    __syncthreads();
    a[threadIdx.x] = s[n - 1 - threadIdx.x];
}
template <class F> __global__ void each(int n, F f) { if (threadIdx.x < n) f(threadIdx.x); }
extern __shared__ int of_file[];
__global__ void lanes(int* a) {
    static __shared__ alignas(16) int copy[32];
    unsigned lane;
    asm("mov.u32 %0, %%laneid;" : "=r"(lane));
    of_file[lane] = a[lane];
    unsigned to = (unsigned)__cvta_generic_to_shared(&copy[lane]);
    if (lane % 4 == 0)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\\n" :: "r"(to), "l"(a + lane));
    asm volatile("cp.async.wait_all;");
    __syncwarp();
    a[lane] = of_file[lane] + copy[lane];
}
int main() {
    int *numbers, host[32], three = 3;
    cudaMalloc(&numbers, sizeof host);
    for (int i = 0; i < 32; ++i) host[i] = i;
    cudaMemcpy(numbers, host, sizeof host, cudaMemcpyHostToDevice);
    LAUNCH(square, 32);
    reverse<<<1, dim3(32), 32 * sizeof(int), 0>>>(numbers, 32);
    each<<<1, 32>>>(32, [=] __device__ (int i) { numbers[i] += three; });
    lanes<<<1, 32, 128>>>(numbers);
    void (*kernel)(int*) = square;
    kernel SHAPE(1, 32)(numbers);
    two(numbers);
    cudaMemcpy(host, numbers, sizeof host, cudaMemcpyDeviceToHost);
    printf("%d\\n", host[30]);
}
"""
TWO = """#include "two.h"
__global__ void one(int* a) { a[threadIdx.x] += 1; }
void two(int* a) { one<<<1, 32>>>(a); one<<<1, 32>>>(a); }
"""
DEFAULTS = """#include <cstdio>
__global__ void later(int* a, int by = 2);
__global__ void add(int* a, int n = 4) { a[threadIdx.x] += n; }
template <class T, int N = 3> __global__ void times(T* a, const T by = T(N)) {
    a[threadIdx.x] *= by;
}
__global__ void by_reference(int* a, int& by) { a[threadIdx.x] -= by; }
__global__ void with_default(int& a, int n = 1) { a += n; }
int main() {
    int *a, h[4] = {1, 2, 3, 4};
    cudaMalloc(&a, 16);
    cudaMemcpy(a, h, 16, cudaMemcpyHostToDevice);
    add<<<1, 4>>>(a);
    add<<<1, 4, 0, 0>>>(a, 1);
    later<<<1, 4>>>(a);
    times<<<1, 4>>>(a);
    times<int, 2>
        <<<1, 4>>>(a);
    int* four;
    cudaMallocManaged(&four, 4);
    *four = 4;
    by_reference<<<1, 4>>>(a, *four);
    with_default<<<1, 1>>>(*four);
    cudaDeviceSynchronize();
    printf("%d ", *four);
    cudaMemcpy(h, a, 16, cudaMemcpyDeviceToHost);
    printf("%d %d\\n", h[0], h[3]);
}
__global__ void later(int* a, int by) { a[threadIdx.x] += by; }
"""
LIBRARIES = """#include <cstdio>
#include <atomic>
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <nvtx3/nvToolsExt.h>
#include <cublas_v2.h>
#ifdef CUBLAS_API_H_
const char* name(cublasStatus_t) { return "cublas"; }
#endif
void two(int* a);
namespace cg = cooperative_groups;
__constant__ int c[2];
__global__ void k(int* a) {
    auto tile = cg::tiled_partition<32>(cg::this_thread_block());
    uint4 pieces = tile.shfl_xor(make_uint4(threadIdx.x, 0, 0, threadIdx.x), 1);
    int other = pieces.x == pieces.w && pieces.x == (threadIdx.x ^ 1);
    a[threadIdx.x] = cg::reduce(tile, c[1] * other, cg::plus<int>());
}
int main() {
    int *a, h[32], numbers[] = {1, 2};
    nvtxRangePush("x"); nvtxRangePop();
    std::atomic_thread_fence(std::memory_order_seq_cst);
    cudaMemcpyToSymbolAsync(c, numbers, sizeof numbers, 0, cudaMemcpyHostToDevice, 0);
    cudaMalloc(&a, sizeof h);
    k << <1, 32 >> > (a);
    two(a);
    cudaMemcpyPeerAsync(a, 0, a, 0, 4);
    cudaSharedMemConfig config; cudaDeviceGetSharedMemConfig(&config);
    size_t stack; cudaDeviceGetLimit(&stack, cudaLimitStackSize);
    int overlap; cudaDeviceGetAttribute(&overlap, cudaDevAttrGpuOverlap, 0);
    cudaMemcpy(h, a, sizeof h, cudaMemcpyDeviceToHost);
    printf("%d %s %d %d %zu\\n", h[5], name(CUBLAS_STATUS_SUCCESS), config, overlap, stack);
}
"""
OWN_NAMES = """#include <cooperative_groups.h>
using namespace cooperative_groups;
__device__ int reduce(thread_group group, int* a, int value) { return a[0] + value; }
__global__ void add(int* a, int n) {
    a[threadIdx.x] = reduce(this_thread_block(), a + threadIdx.x, n);
}
void add(int* a) { add<<<1, 32>>>(a, 1); }
void two(int* a) { add(a); add(a); }
"""
CUBLAS = """#include <cstdio>
#include <cublas_v2.h>
int main() {
    // columns of 2 numbers, 3 apart on the host
    float host[6] = {1, 2, 0, 3, 4, 0}, vector[4] = {1, 0, 10, 0}, one = 1, zero = 0;
    float *a, *x, *y;
    cudaMalloc(&a, 4 * sizeof(float));
    cudaMalloc(&x, 2 * sizeof(float));
    cudaMalloc(&y, 2 * sizeof(float));
    cublasHandle_t handle;
    cublasCreate(&handle);
    cublasSetMatrix(2, 2, sizeof(float), host, 3, a, 2);
    cublasSetVectorAsync(2, sizeof(float), vector, 2, x, 1, 0);
    cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, 2, 1, 2, &one, a, 2, x, 2, &zero, y, 2);
    cublasGetVector(2, sizeof(float), y, 1, vector, 1);
    printf("%g %g\\n", vector[0], vector[1]);
    cublasDestroy(handle);
}
"""
COPIED = """#include <cuda_pipeline.h>
__global__ void k(int* p, int* out) {
    __shared__ __align__(16) int s[4];
    __pipeline_memcpy_async(s, p + FROM, 16, 12);
    __pipeline_commit();
    __pipeline_wait_prior(WAIT);
    *out = s[0] + s[3];
    __pipeline_wait_prior(0);
}
int main() {
    int *p, *out;
    cudaMalloc(&p, 4 * SIZE);
    cudaMalloc(&out, 4);
    cudaMemset(p, 0, 4 * SIZE);
    k<<<1, 1>>>(p, out);
}
"""
CALLED = """__global__ void fill(int* a) { a[threadIdx.x] = 1; }
template <class Kernel> void call(Kernel kernel, int* a) { kernel(a); }
int main() { int* a; cudaMalloc(&a, 4); fill<<<1, 1>>>(a); call(fill, a); }
"""
CLOCK = """#include <cstdio>
#include <ctime>
#include <unistd.h>
__global__ void wait(clock_t* waited, clock_t cycles) {
    clock_t begin = clock();
    while (clock() - begin < cycles) {}
    *waited = clock() - begin;
}
int main() {
    clock_t *waited, host, start = clock();
    cudaMalloc(&waited, sizeof(clock_t));
    wait<<<1, 1>>>(waited, 50000000);
    cudaMemcpy(&host, waited, sizeof host, cudaMemcpyDeviceToHost);
    sleep(1);
    double seconds = double(clock() - start) / CLOCKS_PER_SEC; // of the processor's
    printf("%d %d\\n", host >= 50000000, seconds < 1);
}
"""
FOURIER = """#include <cufft.h>
int main() { cufftHandle plan; }
"""
MANAGED = """#include <cstdio>
__managed__ __device__ int a;
__device__ __managed__ int b;
static __managed__ int c;
__global__ void k() { a = 1; b = 2; c = 3; }
int main() {
    a = b = c = 0;
    k<<<1, 1>>>();
    cudaDeviceSynchronize();
    printf("%d %d %d\\n", a, b, c);
}
"""
PART = """template <class T> __global__ void scale(T* a, T by) {
    a[blockIdx.x * blockDim.x + threadIdx.x] *= by;
}
static __global__ void sum(const float* a, float* sum) {
    *sum += a[0];
}
"""
ENDLESS = """__global__ void k(int* a) { a[0] = 1; }
int main() { int* a; cudaMalloc(&a, 4); k<<<1, 1>>>(a); for (;;) {} }
"""
HUNGRY = """#include <cstdio>
int main() {
    float* data;
    cudaMalloc(&data, 2 << 20);
    std::puts(cudaGetErrorString(cudaMalloc(&data, 2 << 20)));
}
"""
WRONG = "does_not_compile"
RACE = """__global__ void k(int* a) { a[0] = threadIdx.x; }
int main() { int* a; cudaMalloc(&a, 4); k<<<1, 2>>>(a); }
"""


class Runs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not (ROOT / "build-simt/common/simt/libflash_simt.a").is_file():
            raise unittest.SkipTest("the SIMT backend is not built")
        example = ROOT / "docs/examples/vector_add.cu"
        done = subprocess.run([ROOT / "scripts/simt", "run", example, "--show"], **PIPES)
        if NO_PYPI in done.stderr:
            raise unittest.SkipTest(done.stderr.strip())

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.here = Path(folder.name)

    def simt(self, *words, **files):
        for name, text in files.items():
            (self.here / name.replace("__", ".")).write_text(text)
        if words[0] != "check":
            words = "run", *words
        command = [ROOT / "scripts/simt", *words]
        return subprocess.run(command, cwd=self.here, **PIPES)

    def test_a_beginners_program(self):
        (self.here / "include").mkdir()
        (self.here / "include/check.cuh").write_text(CHECK)
        words = ["add.cu", "-I", "include", "-DEXTRA=0", "--", "done"]
        done = self.simt(*words, add__cu=VECTOR_ADD)
        self.assertEqual((done.returncode, done.stdout[:9]), (7, "1998 done"), done.stderr)
        cached = self.simt(*words)
        self.assertEqual(cached.stdout, done.stdout)

    def test_a_fault_has_the_files_own_line(self):
        words = ["add.cu", "-D", "EXTRA=1"]
        done = self.simt(*words, add__cu=VECTOR_ADD, check__cuh=CHECK)
        self.assertEqual(done.returncode, 86, done.stderr)
        self.assertIn("at add.cu:6", done.stderr)

    def test_everything_that_is_rewritten(self):
        header = "__global__ void one(int* a);\nvoid two(int* a);\n"
        done = self.simt("a.cu", "b.cu", a__cu=EVERYTHING, b__cu=TWO, two__h=header)
        # number 30 of the reversed squares is 1; + 3, twice, squared, + 2
        self.assertEqual((done.returncode, done.stdout[:3]), (0, "66\n"), done.stderr)

    def test_options_reach_the_run(self):
        self.assertEqual(self.simt("race.cu", race__cu=RACE).returncode, 86)
        self.assertEqual(self.simt("race.cu", "--ignore", "race.cu:1").returncode, 0)
        self.assertEqual(self.simt("race.cu", "--launches", "many").returncode, 2)
        unknown = self.simt("race.cu", "--frobnicate")
        self.assertEqual(unknown.returncode, 2)
        self.assertRegex(unknown.stderr, r"\A\S+: neither \S+ nor nvcc knows --frobnicate; .*\n\Z")

    def test_a_run_that_has_checked_nothing_is_not_0(self):
        mistyped = self.simt("race.cu", "--kernel", "other", "--json", "-", race__cu=RACE)
        self.assertEqual(mistyped.returncode, 89)
        self.assertEqual(json.loads(mistyped.stdout)["verdict"], "unchecked")
        self.assertIn("no kernel is called other; there is k", mistyped.stderr)
        for own, code in ((0, 89), (3, 3)):
            text = f"int main() {{ return {own}; }}\n"
            self.assertEqual(self.simt("a.cu", a__cu=text).returncode, code)

    def test_a_verdict_that_cannot_be_written(self):
        for text in (RACE, FOURIER):
            done = self.simt("a.cu", "--json", "no/folder.json", a__cu=text)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn("cannot write no/folder.json", done.stderr)
            self.assertNotIn("Traceback", done.stderr)

    def test_managed_variables_in_either_order(self):
        done = self.simt("a.cu", a__cu=MANAGED)
        self.assertEqual((done.returncode, done.stdout), (0, "1 2 3\n"), done.stderr)

    def test_what_does_not_run(self):
        for text, code, said in (
            (FOURIER, 88, "a.cu:2: not supported: cuFFT;"),
            ("int main() { return x; }\n", 2, "a.cu:1:21: error: 'x' was not declared"),
            ("__global__ void k() {}\n", 2, "none of the files has a main: a.cu"),
        ):
            done = self.simt("a.cu", a__cu=text)
            self.assertEqual((done.returncode, done.stdout), (code, ""), done.stderr)
            self.assertIn(said, done.stderr)

    def test_default_arguments_of_a_kernel(self):
        done = self.simt("a.cu", a__cu=DEFAULTS)
        self.assertEqual((done.returncode, done.stdout), (0, "5 44 62\n"), done.stderr)

    def test_names_of_cuda_and_of_the_program(self):
        done = self.simt("a.cu", "b.cu", a__cu=LIBRARIES, b__cu=OWN_NAMES)
        self.assertEqual(done.stdout, "66 cublas 1 1 524288\n", done.stderr)

    def test_cublas(self):
        done = self.simt("a.cu", a__cu=CUBLAS)
        self.assertEqual(done.stdout, "31 42\n", done.stderr)

    def test_cublas_in_a_stream(self):
        done = self.simt("a.cu", a__cu=CUBLAS_OF_A_STREAM)
        self.assertEqual((done.returncode, done.stdout), (0, "8 128\n"), done.stderr)

    def run_file(self, name, said):
        done = self.simt(CUDA / name)
        self.assertEqual((done.returncode, done.stdout), (0, said), done.stderr)
        self.assertNotIn("warning", done.stderr)

    def test_inline_ptx(self):
        said = (
            "4000300020001 500000001\n4 1 12345678 9 7 1234 abcd 9 ffffffff 8 6\n"
            "1 2 0.300000012 0 1.00000022e-39 2 1\n1 2 1, 2345, 2\n"
        )
        self.run_file("inline_ptx.cu", said)

    def test_inline_ptx_of_several_instructions(self):
        said = (
            "37 6d 1 a 456 ffffffff 12ab5678 def05678 e 0 ffffffff bcdef012 23456781 b00ea4e "
            "fffffffe ff ff 40003c00 3f804000 ffffffff 5678\n"
            "-3221225472 17179869181 -5\n1497 500 f\n42 17 17 5\n"
        )
        self.run_file("ptx_of_several.cu", said)

    def test_inline_ptx_that_orders_nothing_is_a_race(self):
        text = (CUDA / "ptx_of_several.cu").read_text()
        for order in ("acquire", "release"):
            text = text.replace(f"{order}.gpu", "relaxed.gpu")
        done = self.simt("a.cu", a__cu=text)
        self.assertEqual(done.returncode, 86, done.stderr)
        self.assertIn("race: two threads, at byte 0 of i\n", done.stderr)

    def test_streams(self):
        self.run_file("streams.cu", "1024 1025 1 64\n")
        for macro, wanted in (
            ("NO_EVENT", "sum, launched at streams.cu:48, reads bytes of a while add, launched at "
             "streams.cu:40, may still be writing them in another stream"),
            ("NO_SYNC", "the host at streams.cu:53: it reads host while cudaMemcpyAsync at "
             "streams.cu:49 may still be writing it; cudaDeviceSynchronize"),
            ("NO_DEVICE_SYNC", "it reads managed while add, launched at streams.cu:57, may"),
            ("NON_BLOCKING", "add, launched at streams.cu:57, writes bytes of managed while "
             "cudaMemcpyAsync at streams.cu:55 may still be writing them in another stream"),
        ):  # fmt: skip
            text = (CUDA / "streams.cu").read_text()
            done = self.simt("streams.cu", "-D", macro, streams__cu=text)
            self.assertEqual(done.returncode, 86, macro + done.stderr)
            self.assertIn(wanted, done.stderr)

    def test_an_error_in_a_call_has_the_callers_line(self):
        text = "int main() {\n    int* a;\n    cudaMalloc(a, 4);\n}\n"
        done = self.simt("a.cu", a__cu=text)
        self.assertEqual(done.returncode, 2)
        self.assertIn("a.cu:3:5: error: no matching function for call to 'cuda_malloc", done.stderr)
        self.assertNotIn("common/simt", done.stderr)

    def test_graphs(self):
        self.run_file("graphs.cu", "3 0 0\n33 3\n3\n")

    def test_launch_attributes(self):
        self.run_file("launch_attributes.cu", "33 1\n")
        done = self.simt(CUDA / "launch_attributes.cu", "-D", "CLUSTERS")
        self.assertEqual(done.returncode, 88, done.stderr)
        self.assertIn(".cu:35: not supported: thread block clusters", done.stderr)

    def test_random_numbers(self):
        self.run_file("random.cu", "1 1\n1 105 1\n")
        done = self.simt(CUDA / "random.cu", "-D", "TOO_MANY")
        self.assertEqual(done.returncode, 86, done.stderr)
        self.assertIn("curandGenerateUniform at ", done.stderr)
        self.assertIn("numbers, device memory, ends after 1024 bytes", done.stderr)

    def test_thrust(self):
        said = "3 19 100\n9900\n198\n99\n8 1200\n100 4950\n50 100\n199 5 -500\n300\n"
        done = self.simt(CUDA / "thrust.cu", "-D", "MORE=0")
        self.assertEqual((done.returncode, done.stdout), (0, said), done.stderr)
        done = self.simt(CUDA / "thrust.cu", "-D", "MORE=1")  # in a functor
        self.assertEqual(done.returncode, 86, done.stderr)
        self.assertIn("just past the end of raw (400 bytes)\n  in thrust", done.stderr)
        text = "#include <thrust/shuffle.h>\nint main() { thrust::shuffle(0, 0, 1); }\n"
        done = self.simt("a.cu", a__cu=text)
        self.assertEqual(done.returncode, 88, done.stderr)
        self.assertIn("a.cu:2: not supported: this part of Thrust;", done.stderr)

    def test_openmp(self):
        done = self.simt("a.cu", a__cu=WITH_OPENMP)
        self.assertEqual((done.returncode, done.stdout), (0, "4 28\n"), done.stderr)
        done = self.simt("b.cu", b__cu=STREAMS_OF_THREADS)
        self.assertEqual((done.returncode, done.stdout), (0, "done\n"), done.stderr)

    def test_managed_memory_begins_as_zeros(self):
        done = self.simt("a.cu", a__cu=ZEROED)
        self.assertEqual((done.returncode, done.stdout), (0, "32\n"), done.stderr)

    def test_arch_is_the_devices(self):
        self.run_file("arch.cu", "1 800 11 4 21 1 800 | 0 5 10 3 22 2 9\n")
        alone = "#if __CUDA_ARCH__ >= 800\nconst int n = 3;\n#endif\nint main() { return n; }\n"
        done = self.simt("a.cu", a__cu=alone)
        self.assertIn("a.cu:1: warning: __CUDA_ARCH__ outside of functions", done.stderr)

    def test_names_macros_and_launches(self):
        self.run_file("front_door.cu", "5\n")

    def test_a_byte_order_mark(self):
        done = self.simt("race.cu", race__cu="\ufeff" + RACE)
        self.assertEqual(done.returncode, 86, done.stderr)

    def test_headers_that_are_not_used(self):
        self.run_file("unused_headers.cu", "11 2 2004\n")
        text = (CUDA / "unused_headers.cu").read_text()
        for used, what in (
            ("__nv_fp8_e4m3 x;", "fp8"),
            ("cuda::pipeline<> x;", "this part of libcu++"),
            ("using namespace cub;", "CUB"),
            ("MPI_Init(0, 0);", "several GPUs"),
        ):
            done = self.simt("a.cu", a__cu=text.replace("int main() {", f"int main() {{ {used}"))
            self.assertEqual(done.returncode, 88, done.stderr)
            self.assertRegex(done.stderr, rf"a\.cu:\d+: not supported: {re.escape(what)}")

    def test_a_part_of_a_copy(self):
        for size, start, wait, code, said in (
            (1, 0, 0, 0, ""),  # the 12 bytes behind are not there, and not read
            (1, 0, 1, 86, "data of a cp.async is used before its wait"),
            (8, 1, 0, 86, "misaligned"),
            (1, 4, 0, 86, "out of bounds"),
        ):
            words = [f"-DSIZE={size}", f"-DFROM={start}", f"-DWAIT={wait}"]
            done = self.simt("a.cu", *words, a__cu=COPIED)
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertIn(said, done.stderr)

    def test_a_file_in_c_and_options_of_nvcc(self):
        words = ["-arch=sm_80", "-O3", "-std", "c++17", "-lineinfo", "-lcublas"]
        done = self.simt(CUDA / "host.c", CUDA / "host_kernel.cu", *words)
        self.assertEqual((done.returncode, done.stdout), (0, "1 no error\n"), done.stderr)

    def test_a_function_of_the_host_is_not_launched(self):
        text = "void f(int) {}\nint main() {\n    f<<<1, 1>>>(1);\n}\n"
        done = self.simt("a.cu", a__cu=text)
        self.assertEqual(done.returncode, 2)
        self.assertIn("a.cu:3", done.stderr)
        self.assertIn("f is a function of the host; <<<>>> launches __global__", done.stderr)

    def test_a_kernel_is_not_called_like_a_function(self):
        done = self.simt("a.cu", a__cu=CALLED)
        self.assertEqual(done.returncode, 86, done.stderr)
        self.assertIn("the host at a.cu:1: it reads threadIdx, which", done.stderr)

    def test_a_sample_of_the_blocks(self):
        words = ["a.cu", "--sample", "16", "--json", "said.json"]
        done = self.simt(*words, "-DRACE=0", a__cu=SAMPLED)
        self.assertEqual((done.returncode, done.stdout), (0, "32\n"), done.stderr)
        for said in (
            "fill: 16 of its 100000 blocks run, 0 to 7, and 8 more up to the last",
            "2 launches ran a sample of the blocks: what the program computes is not its result",
        ):
            self.assertIn(said, done.stderr)
        verdict = json.loads((self.here / "said.json").read_text())
        self.assertEqual((verdict["launches"], verdict["launches_sampled"]), (2, 2))
        done = self.simt(*words, "-DRACE=1", a__cu=SAMPLED)
        self.assertEqual(done.returncode, 86, done.stderr)
        self.assertIn("nothing orders threads of different blocks", done.stderr)

    def test_kernels_launch_kernels(self):
        done = self.simt("a.cu", a__cu=BY_KERNELS)
        self.assertEqual((done.returncode, done.stdout), (0, "127 126 64\n"), done.stderr)

    def test_a_sample_runs_in_watched_launches_alone(self):
        for words, blocks in ((["--sample", "16"], 48), (["--sample", "16", "--launches", "0"], 80),
                              (["--sample", "100"], 500)):  # fmt: skip
            done = self.simt("a.cu", *words, a__cu=REPEATED)
            self.assertEqual((done.returncode, done.stdout), (0, f"{blocks}\n"), done.stderr)

    def test_clear_is_of_device_memory(self):
        done = self.simt("a.cu", "--strict", a__cu=CLEARED)
        self.assertEqual((done.returncode, done.stdout), (0, "31\n"), done.stderr)

    def test_the_clock_of_a_kernel_and_of_the_host(self):
        done = self.simt("a.cu", a__cu=CLOCK)
        self.assertEqual(done.stdout, "1 1\n", done.stderr)

    def test_what_does_not_run_has_a_verdict_too(self):
        for text, verdict, code, kind, line, said in (
            (FOURIER, "unsupported", 88, "not_supported", 2, "cuFFT"),
            ("\nint main() { return x; }", WRONG, 2, WRONG, 2, "'x' was not declared"),
            ("int f();", WRONG, 2, WRONG, 0, "none of the files has a main"),
            ("int main() { __builtin_trap(); }", "crash", 132, "crash", 0, "SIGILL"),
        ):
            done = self.simt("a.cu", "--json", "a.json", a__cu=text)
            run = json.loads((self.here / "a.json").read_text())
            (fault,) = run["faults"]
            self.assertEqual((run["verdict"], run["exit_code"]), (verdict, code), done.stderr)
            self.assertEqual((done.returncode, fault["kind"], fault["line"]), (code, kind, line))
            self.assertIn(said, fault["message"])
            self.assertEqual(fault["file"], "a.cu")

    def test_check_compiles_each_file_by_itself(self):
        words = ["check", "race.cu", "part.cu", "wrong.cu", "sorted.cu", "--json", "-"]
        files = {"race__cu": RACE, "part__cu": PART, "sorted__cu": FOURIER}
        done = self.simt(*words, **files, wrong__cu="int f() { return x; }\n")
        told = json.loads(done.stdout)
        self.assertEqual(
            [(one["program"], one["verdict"], one["exit_code"]) for one in told],
            [("race.cu", "compiles", 0), ("part.cu", "compiles", 0), ("wrong.cu", WRONG, 2),
             ("sorted.cu", "unsupported", 88)],
        )  # fmt: skip
        self.assertEqual(done.returncode, 2)
        self.assertIn("\nwrong.cu:1:18: error: 'x' was not declared", done.stderr)
        self.assertIn("4 files: compiles 2, does not compile 1, unsupported 1\n", done.stderr)
        done = self.simt(*words, "--run")  # what has a main
        self.assertEqual([one["exit_code"] for one in json.loads(done.stdout)], [86, 0, 2, 88])
        self.assertEqual(done.returncode, 86)
        self.assertIn("part.cu compiles, and is not run: none of the files has a", done.stderr)

    def test_check_launches_kernels_without_a_main(self):
        filled = "buffer<float>(32, [](int i) { return i; })"
        for statements, code, said in (
            ([f"scale<<<1, 32>>>({filled}, 2.f)"], 0, "no fault found: 1 kernel, 1 launch"),
            ([f"scale<<<2, 32>>>({filled}, 2.f)"], 86, "past the end of buffer<float>(32) (128"),
            (["scale<<<1, 32>>>(buffer<float>(32), 2.f)"], 86, "at byte 0 of buffer<float>(32)"),
            (["float* a = buffer<float>(1, 0)", "scale<<<1, 1>>>(a, 1.f)", "sum<<<1, 2>>>(a, a)"],
             86, "at part.cu:5"),
            (["scale<<<1, 1>>>()"], 2, "--launch:1:"),
            (["int a = 0", "scale<<<1, 1>>>(a, b)"], 2, "'b' was not declared"),
        ):  # fmt: skip
            words = [word for one in statements for word in ("--launch", one)]
            done = self.simt("check", "part.cu", *words, part__cu=PART)
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertIn(said, done.stderr)
        # a main of the file's own is not called
        text = "int main(int n, char** words) { return 7; }\n"
        done = self.simt("check", "a.cu", "--launch", "k<<<1, 2>>>(buffer<int>(1))",
                         a__cu=RACE.split("int main")[0] + text)  # fmt: skip
        self.assertEqual(done.returncode, 86, done.stderr)
        done = self.simt("check", "a.cu", "part.cu", "--launch", "1")
        self.assertIn("--launch is for the kernels of one file", done.stderr)

    def sarif(self, *words, **files):
        """(exit code, results), of a document with all that SARIF 2.1.0 asks for."""
        done = self.simt(*words, "--sarif", "a.sarif", **files)
        document = json.loads((self.here / "a.sarif").read_text())
        self.assertEqual(document["version"], "2.1.0")
        self.assertTrue(document["$schema"].endswith("/sarif-schema-2.1.0.json"))
        (run,) = document["runs"]
        driver = run["tool"]["driver"]
        self.assertEqual(driver["name"], "simt-cuda")
        rules = [rule["id"] for rule in driver["rules"]]
        self.assertEqual(len(rules), len(set(rules)))
        for rule in driver["rules"]:
            self.assertTrue(rule["shortDescription"]["text"] and rule["help"]["text"])
        for invocation in run["invocations"]:
            self.assertIs(invocation["executionSuccessful"], True)
        for one in run["results"]:
            self.assertEqual(one["ruleId"], rules[one["ruleIndex"]])
            self.assertIn(one["level"], ("error", "warning", "note"))
            self.assertTrue(one["message"]["text"])
            self.assertEqual(len(one["locations"]), 1)
            for place in (*one["locations"], *one.get("relatedLocations", ())):
                where = place["physicalLocation"]
                self.assertEqual(where["artifactLocation"]["uriBaseId"], "%SRCROOT%")
                self.assertTrue((self.here / where["artifactLocation"]["uri"]).is_file())
                self.assertGreaterEqual(where.get("region", {"startLine": 1})["startLine"], 1)
        return done.returncode, run["results"]

    def test_sarif_of_a_race(self):
        (self.here / "dot.cu").write_text((ROOT / "docs/examples/dot.cu").read_text())
        code, (race,) = self.sarif("dot.cu")
        self.assertEqual((code, race["ruleId"], race["level"]), (86, "race", "error"))
        self.assertIn("a __syncthreads() between the two would order them", race["message"]["text"])
        places = [race["locations"][0], *race["relatedLocations"]]
        lines = [place["physicalLocation"]["region"]["startLine"] for place in places]
        self.assertEqual(lines, [21, 11, 25])
        said = [place["message"]["text"] for place in race["relatedLocations"]]
        self.assertEqual(said[0], "thread (0,0,0) of block (0,0,0) has read it")
        self.assertEqual(said[1], "sum_of_block is called here")
        self.assertEqual(self.sarif("dot.cu", "-D", "FIXED"), (0, []))

    def test_sarif_of_several_files(self):
        wrong = "\nint f() { return x; }\n"
        files = {"race__cu": RACE, "part__cu": PART, "sorted__cu": FOURIER, "wrong__cu": wrong}
        names = [name.replace("__", ".") for name in files]
        code, results = self.sarif("check", "--run", *names, "--strict", **files)
        found = [(one["ruleId"], one["level"], one["message"]["text"]) for one in results]
        self.assertEqual(found[0][:2], ("race", "error"))
        self.assertEqual(found[1][:2], ("not_supported", "note"))
        self.assertIn("not supported: cuFFT", found[1][2])
        self.assertEqual(found[2][:2], (WRONG, "error"))
        self.assertEqual(len(found), 3)
        self.assertEqual(code, 86)

    def test_limits_on_time_and_memory(self):
        code, (late,) = self.sarif("a.cu", "--seconds", "1", a__cu=ENDLESS)
        self.assertEqual((code, late["ruleId"]), (87, "timeout"))
        done = self.simt("a.cu", "--seconds", "1", "--json", "-")
        self.assertEqual((done.returncode, json.loads(done.stdout)["verdict"]), (87, "timeout"))
        self.assertIn("out of time: the program was given 1 second (--seconds)", done.stderr)
        self.assertIn("--sample 64 runs so many blocks of each launch", done.stderr)
        done = self.simt("b.cu", "--memory", "1", b__cu=HUNGRY)
        self.assertEqual((done.returncode, done.stdout), (89, "out of memory\n"), done.stderr)
        said = (
            "data: not enough memory: a buffer of 2097152 bytes is more than is left of the 1 MiB"
        )
        self.assertEqual(done.stderr.count(said), 1)
        self.assertEqual(self.simt("a.cu", "--seconds", "soon").returncode, 2)

    def test_show(self):
        done = self.simt("race.cu", "--show", race__cu=RACE)
        self.assertIn("race.cu:2\n- int main", done.stdout)
        self.assertIn("configured(k, 1, 2)(a); }\n", done.stdout)


if __name__ == "__main__":
    unittest.main()
