"""What scripts/simt makes of CUDA's own spellings, text by text."""

import os
import re
import subprocess

import pytest
from cuda_on_cpu import SimtError, compiling, library, ptx, rewriting, unsupported
from cuda_on_cpu.venv import LeftOut


@pytest.fixture(scope="module", autouse=True)
def grammar():
    try:
        compiling.use_grammar()
    except SimtError as error:
        pytest.skip(str(error))


def rewritten(source, *headers):
    """The text with the runtime's names cut short, and what is refused."""
    texts = [text.encode() for text in (*headers, source)]
    refused = {}
    text = rewriting.rewrite(texts[-1], rewriting.learn(texts), refused).text.decode()
    assert text.count("\n") == source.count("\n")
    return text.replace("::flash::simt::", "~"), refused


PLAIN = "__global__ void k(float* a);\n"
TEMPLATE = "template <class T, int N = 4> __global__ void k(T* a, int n) {}\n"
KERNEL_OF = (
    "template <class T, int N = 4> ::std::integral_constant<void (*)(T* a, int n), &k<T, N>> "
    "kernel_of_k(T* a, int n);"
)


@pytest.mark.parametrize(
    "launch, wanted",
    [
        ("k<<<1, 32>>>(a);", "~configured(k, 1, 32)(a);"),
        ("k <<< dim3(2, n / 4), b, n * sizeof(int), s >>> (a + 1, f(a, b));",
         "~configured(k ,  dim3(2, n / 4), b, n * sizeof(int), s ) (a + 1, f(a, b));"),
        ("k<<<1, 2>>>(a),\nm<<<3, 4>>>();", "~configured(k, 1, 2)(a),\n~configured(m, 3, 4)();"),
        ("ks[i]<<<1, 2>>>(a);", "~configured(ks[i], 1, 2)(a);"),
        ("(*p)<<<1, 2>>>();", "~configured((*p), 1, 2)();"),
        ("if (x) k<<<1, 2>>>(a); else n::m<3><<<1, 2>>>(a);",
         "if (x) ~configured(k, 1, 2)(a); else ~configured(n::m<3>, 1, 2)(a);"),
        ("CHECK((k<<<1, 2>>>(a), get()));", "CHECK((~configured(k, 1, 2)(a), get()));"),
        ("k<<<n > 4 ? 1 : 2, (n >> 3) + 1>>>(a);",
         "~configured(k, n > 4 ? 1 : 2, (n >> 3) + 1)(a);"),
        ("k << <1, 2 >> > (a), m << < f<int>(), 2 >> >(a);",
         "~configured(k ,  1, 2 )  (a), ~configured(m ,   f<int>(), 2 ) (a);"),
        ("k<<<\n  1, // blocks\n  2\n>>>(\n  a);",
         "~configured(k, \n  1, // blocks\n  2\n)(\n  a);"),
        ('puts("k<<<1, 2>>>(a)"); // k<<<1, 2>>>(a)', 'puts("k<<<1, 2>>>(a)"); // k<<<1, 2>>>(a)'),
    ],
)  # fmt: skip
def test_a_launch(launch, wanted):
    source = PLAIN + "int main() { " + launch + " }\n"
    assert rewritten(source) == (PLAIN + "int main() { " + wanted + " }\n", {})


@pytest.mark.parametrize(
    "launch, wanted",
    [
        ("k<<<1, 2>>>(a, 3);", "~configured(decltype(kernel_of_k(a, 3))::value, 1, 2)(a, 3);"),
        ("k<float><<<1, 2>>>(NULL,\n  3);",
         "~configured(decltype(kernel_of_k<float>(NULL, 3))::value, 1, 2)(NULL,\n  3);"),
        ("n::k<int, 8><<<1, 2>>>(a);",
         "~configured(decltype(n::kernel_of_k<int, 8>(a))::value, 1, 2)(a);"),
        ("k<<<1, 2>>>([=](int i) { return i; });",
         "~configured_by_arguments([&](auto &&...a) { return decltype(kernel_of_k("
         "static_cast<decltype(a)>(a)...)){}; }, 1, 2)([=](int i) { return i; });"),
    ],
)  # fmt: skip
def test_the_arguments_choose_of_a_template(launch, wanted):
    begun = TEMPLATE[:-1] + " " + KERNEL_OF + "\n"
    source = TEMPLATE + "void f() { " + launch + " }\n"
    assert rewritten(source)[0] == begun + "void f() { " + wanted + " }\n"
    # from a header, too
    assert rewritten("void f() { " + launch + " }\n", TEMPLATE)[0] == f"void f() {{ {wanted} }}\n"


@pytest.mark.parametrize(
    "macro, wanted",
    [
        ("#define RUN(k, n) \\\n  k<<<(n), 32>>>(n); \\\n  check()",
         "#define RUN(k, n) \\\n  ~configured(k, (n), 32)(n); \\\n  check()"),
        ("#define SHAPE(g, b) <<<g, b>>>", "#define SHAPE(g, b) ->*~Configuration(g, b)"),
        ("#define TILE(T, s) extern __shared__ T s[]",
         "#define TILE(T, s)   T *s = ~DynamicShared()"),
        ("#define EX2(y, x) asm(\"ex2.approx.f32 %0, %1;\" \\\n  : \"=f\"(y) : \"f\"(x))",
         "#define EX2(y, x) ({ auto &&ptx_0 = (y); const auto ptx_1 = (x); ~ptx::set(ptx_0, "
         "::flash::fast_exp2(~ptx::bits<float>(ptx_1))); })\\\n"),
    ],
)  # fmt: skip
def test_in_a_macro(macro, wanted):
    assert rewritten(macro + "\n")[0] == wanted + "\n"


@pytest.mark.parametrize(
    "declared, wanted",
    [
        ("extern __shared__ float s[];", "  float *s = ~DynamicShared();"),
        ("extern __shared__ __align__(16) unsigned char s[];",
         "  __align__(16) unsigned char *s = ~DynamicShared();"),
        ("extern __shared__ alignas(16) float4 s[];",
         "  __align__(16) float4 *s = ~DynamicShared();"),
        ("volatile __shared__ extern T s[][4];", "volatile   T (*s)[4] = ~DynamicShared();"),
        ("extern __shared__ int s[], t;", "  int *s = ~DynamicShared(), &t = ~DynamicShared();"),
        ("static __shared__ float s[32];", " __shared__ float s[32];"),
        ("__shared__ alignas(double) char s[8];",
         "__shared__ __align__(alignof(double)) char s[8];"),
    ],
)  # fmt: skip
def test_shared_memory(declared, wanted):
    source = "__global__ void k() { " + declared + " }"
    assert rewritten(source)[0] == "__global__ void k() { " + wanted + " }"


def test_the_hosts_own_variables():
    source = """dim3 size(dim3 gridDim) { return gridDim; }
__global__ void k() { int i = blockIdx.x * blockDim.x; }
struct Shape { dim3 gridDim; int n() { return gridDim.x; } };
void f(Shape s) {
    dim3 blockDim(16, n), g = s.gridDim;
    k<<<gridDim(2), blockDim.x>>>();
}
"""
    wanted = """dim3 size(dim3 gridDim_) { return gridDim_; }
__global__ void k() { int i = blockIdx.x * blockDim.x; }
struct Shape { dim3 gridDim_; int n() { return gridDim_.x; } };
void f(Shape s) {
    dim3 blockDim_(16, n), g = s.gridDim_;
    ~configured(k, gridDim(2), blockDim_.x)();
}
"""
    assert rewritten(source)[0] == wanted


@pytest.mark.parametrize(
    "declared",
    [
        "void report(dim3 gridDim, dim3 blockDim);",
        "typedef void (*launcher)(dim3 gridDim, dim3 blockDim);",
        "using launcher = void (*)(dim3 blockDim);",
        "struct S { void set(dim3 blockDim); void (*f)(int gridDim); };",
        "template <int blockDim> struct Fixed { int n; };",
        "void each(int (*f)(dim3 blockDim) = nullptr);",
    ],
)
def test_names_of_a_prototype_end_with_it(declared):
    kernel = "__global__ void k(int *p) { *p = blockDim.x + gridDim.x; }"
    launch = "void f() { k<<<1, 2>>>(p); }"
    assert kernel in rewritten("\n".join((declared, kernel, launch)))[0]


@pytest.mark.parametrize(
    "kernel",
    [
        "inline __global__ void k() {}",
        "__global__ inline void k() {}",
        "template <class T> __forceinline__ __global__ void k(T* a) {}",
        "#define INLINE inline\nINLINE __global__ void k() {}",
        "#define KERNEL inline __global__ void\nKERNEL k() {}",
    ],
)
def test_a_kernel_is_inline_once(kernel):
    text = rewritten(kernel + "\n")[0]
    _, _, used = text.rpartition("#define INLINE inline\n")
    assert not any(word in used for word in ("inline", "INLINE"))


@pytest.mark.parametrize(
    "macros, head, parameters",
    [
        ("#define KERNEL __global__ void", "KERNEL", "T* a, int n"),
        ("#define GLOBAL __global__", "GLOBAL void", "T* a, int n"),
        ("#define RESTRICT __restrict__", "__global__ void", "T* RESTRICT a, int n"),
        ("#define KERNEL(n) __global__ void __launch_bounds__(n)", "KERNEL(128)", "T* a, int n"),
        ("#define EXPORT\n#define A GLOBAL void\n#define GLOBAL __global__", "EXPORT A",
         "T* a, int n"),
    ],
)  # fmt: skip
def test_macros_around_a_template(macros, head, parameters):
    template = f"{macros}\ntemplate <class T, int N = 4> {head} k({parameters}) {{}}\n"
    text = rewritten(template + "void f() { k<<<1, 2>>>(a, 3); }\n")[0]
    assert KERNEL_OF.replace("T* a, int n", parameters) in text
    assert "~configured(decltype(kernel_of_k(a, 3))::value, 1, 2)(a, 3)" in text


@pytest.mark.parametrize(
    "launch, wanted",
    [
        ("DISPATCH(float, [&] { k<T><<<1, 2>>>(a, 3); });",
         "DISPATCH(float, [&] { "
         "~configured(decltype(kernel_of_k<T>(a, 3))::value, 1, 2)(a, 3); });"),
        ('RUN("it", k<<<1, 2>>>(a, 3); check());',
         'RUN("it", ~configured(decltype(kernel_of_k(a, 3))::value, 1, 2)(a, 3); check());'),
        ("TIMED({ n::k<A<int>><<<g(1), 2>>>(a, f(3)); })",
         "TIMED({ ~configured(decltype(n::kernel_of_k<A<int>>(a, f(3)))::value, g(1), 2)"
         "(a, f(3)); })"),
    ],
)  # fmt: skip
def test_a_launch_among_the_arguments_of_a_macro(launch, wanted):
    assert f"void f() {{ {wanted} }}\n" == rewritten(f"void f() {{ {launch} }}\n", TEMPLATE)[0]


def test_a_function_of_the_host_is_not_launched():
    text = rewritten("void run(int* a) {}\nint main() { run<<<1, 1>>>(a); }\n")[0]
    assert 'static_assert(false, "run is a function of the host;' in text
    # a pointer to a kernel may have the name
    text = rewritten("void run(int* a) {}\nvoid f(void (*run)(int*)) { run<<<1, 1>>>(a); }\n")[0]
    assert "~configured(run, 1, 1)(a)" in text


def compiled(source, on_device):
    """The lines of a function that are read, on either side, as a preprocessor would have it."""
    refused = {}
    text = rewriting.rewrite(source.encode(), rewriting.learn([source.encode()]), refused).text
    text = text.replace(rewriting.NEW_LINE, b"\n").decode()
    command = [
        "g++",
        "-E",
        "-P",
        "-x",
        "c++",
        "-D__CUDA_ARCH__=800",
        "-DFLASH_SIMT_ON_DEVICE=X",
        "-",
    ]
    said = subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout
    device, between, host = said.partition("} else {")
    assert between
    return " ".join((device if on_device else host).split())


@pytest.mark.parametrize(
    "condition, device, host",
    [
        ("#ifdef __CUDA_ARCH__", "1", "2"),
        ("#ifndef __CUDA_ARCH__", "2", "1"),
        ("#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 700", "1", "2"),
        ("#if __CUDA_ARCH__ >= 900", "2", "2"),
        ("#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ > 900", "2", "1"),
    ],
)
@pytest.mark.parametrize(
    "head",
    ["__host__ __device__ int f() {", "int main() {", "struct S { S() {", "auto g = [] {",
     "#define HD __host__ __device__\nHD int f() {", "template <class T> int f(T a) {"],
)  # fmt: skip
def test_a_function_reads_arch_on_the_device_alone(head, condition, device, host):
    end = "};" if "S()" in head else ";" if "auto" in head else ""
    source = f"{head}\n{condition}\n  return 1;\n#else\n  return 2;\n#endif\n}}{end}\n"
    if "auto" in head:
        source = f"void around() {{ {source} }}\n"
    assert f"return {device};" in compiled(source, on_device=True)
    assert f"return {host};" in compiled(source, on_device=False)


def test_arch_as_a_number_stays():
    """Where it is no question: nvcc does not compile it for the host, so it is the device's."""
    source = "MACRO_OF_ELSEWHERE int f() {\n  return __CUDA_ARCH__;\n}\n"
    assert rewritten(source)[0] == source


def test_macros_that_depend_on_arch():
    source = (
        "#ifdef __CUDA_ARCH__\n#define WHERE 1\n#else\n#define WHERE 2\n#endif\n"
        "#define SAID (WHERE + 10)\nint f() { return SAID; }\n"
    )
    assert "return (1 + 10);" in compiled(source, on_device=True)
    assert "return (2 + 10);" in compiled(source, on_device=False)


def test_what_is_of_the_device_alone_stays():
    for head in ("__global__ void k()", "__device__ int f()"):
        source = head + " {\n#ifdef __CUDA_ARCH__\n  g();\n#endif\n}\n"
        assert rewritten(source)[0] == source
    lambdas = "auto g = [] __device__ {\n#ifdef __CUDA_ARCH__\n  g();\n#endif\n};"
    text = rewritten(f"void f() {{ {lambdas} }}\n")[0]
    assert "FLASH_SIMT_ON_DEVICE" not in text


@pytest.mark.parametrize(
    "source, lines",
    [
        ("#if __CUDA_ARCH__ < 600\n__device__ double add(double* a);\n#endif\n", []),
        ("#ifdef __CUDA_ARCH__\n#define A 1\n#endif\n", []),
        ("#ifdef __CUDA_ARCH__\n#error x\n#endif\n", []),
        ("\n#ifdef __CUDA_ARCH__\nint side() { return 1; }\n#else\nint side();\n#endif\n", [2]),
        ("#if __CUDA_ARCH__ >= 800\nconstexpr int stages = 3;\n#endif\n", [1]),
        ("struct S {\n#ifdef __CUDA_ARCH__\n  int a;\n#endif\n};\n", [2]),
    ],
)
def test_arch_outside_of_functions(source, lines):
    text = source.encode()
    found = rewriting.rewrite(text, rewriting.learn([text]), {})
    assert [line for line, _ in found.notes] == lines
    assert found.text == text


def test_what_only_the_host_has():
    source = "#ifndef __CUDA_ARCH__\nint f() { return 1; }\n#endif\n"
    assert rewritten(source)[0] == source.replace("__CUDA_ARCH__", "__CUDA_ARCH_OF_THE_HOST__")


def test_three_lists_of_template_arguments_are_no_launch():
    source = "typedef A<B<C<int>>> D;\nvoid f() { k<<<1, 2>>>(); }\nstd::vector<A<B<int>>> v;\n"
    assert rewritten(source)[0] == source.replace("k<<<1, 2>>>", "~configured(k, 1, 2)")


def test_a_file_without_any_of_it_stays():
    source = b"__global__ void k(int* a) { a[threadIdx.x] = blockDim.x; }\nint main() {}\n"
    assert not rewriting.WORTH_A_LOOK.search(source)


def operands(constraints):
    """Variables a, b, ... with these constraints."""
    return [ptx.Operand(one, name) for one, name in zip(constraints.split(), "abcdefghijklmn")]


@pytest.mark.parametrize(
    "statement, constraints, wanted",
    [
        ("mov.u32 %0, %%laneid;", "=r", "~set(ptx_0, static_cast<unsigned>(~lane()))"),
        ("mov.u64 %0, %globaltimer;", "=l",
         "~set(ptx_0, static_cast<unsigned long long>(clock64()))"),
        ("mov.b64 %0, {%1, %2};", "=l r f",
         "~set(ptx_0, ~pack<unsigned long long>(~bits<unsigned>(ptx_1), ~bits<unsigned>(ptx_2)))"),
        ("mov.b64 {%0, _}, %1;", "=r l",
         "~unpack<unsigned>(~bits<unsigned long long>(ptx_1), ptx_0, ~Sink())"),
        ("mov.b32 %0, {%1, 0x5};", "=r h",
         "~set(ptx_0, ~pack<unsigned>(~bits<unsigned short>(ptx_1), "
         "static_cast<unsigned short>(0x5)))"),
        ("mov.v2.f32 {%0, %1}, {%2, %2};", "=f =f f",
         "~set_each<float>({~bits<float>(ptx_2), ~bits<float>(ptx_2)}, ptx_0, ptx_1)"),
        ("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;", "r l",
         "~copy_async(~shared_at(ptx_0, 0), ~global_at(ptx_1, 0), 16)"),
        ("ld.global.nc.v2.f32 {%0, %1}, [%2+8];", "=f =f l",
         "~load<float>(~global_at(ptx_2, 8), ptx_0, ptx_1)"),
        ("st.shared.u32 [%0], %1;", "r r", "~store<unsigned>(~shared_at(ptx_0, 0), ptx_1)"),
        ("fma.rn.f32 %0, %1, 0.1, 0f3F800000;", "=f f",
         "~set(ptx_0, fma(~bits<float>(ptx_1), static_cast<float>(0.1), "
         "~bits<float>(0x3F800000u)))"),
        ("mul.ftz.f32 %0, %0, %1;", "+f f",
         "~set(ptx_0, ~flushed(~flushed(~bits<float>(ptx_0)) * ~flushed(~bits<float>(ptx_1))))"),
        ("bar.sync %0, 128; // of half a block", "r", "~barrier_sync(ptx_0, 128)"),
        ("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;", "r r",
         "~mbarrier_expect_tx(~shared_at(ptx_0, 0), ptx_1)"),
    ],
)  # fmt: skip
def test_inline_ptx(statement, constraints, wanted):
    given = operands(constraints)
    words = ["const auto " if one.constraint.isalpha() else "auto &&" for one in given]
    bound = [f"{word}ptx_{i} = ({given[i].value})" for i, word in enumerate(words)]
    text = ptx.to_cpp(statement, given).replace(ptx.PTX, "~")
    assert text == "({ " + "; ".join([*bound, wanted]) + "; })"


def test_inline_ptx_of_several_instructions():
    text = ptx.to_cpp(
        "{ .reg .pred p; L: setp.ge.and.f32 p, %1, %2, !p; @!p bra L; selp.f32 %0, %1, %2, p; }",
        operands("=f f f"),
    ).replace(ptx.PTX, "~")
    bound = "auto &&ptx_0 = (a); const auto ptx_1 = (b); const auto ptx_2 = (c); "
    a, b = "~bits<float>(ptx_1)", "~bits<float>(ptx_2)"
    assert text == (
        f"({{ __label__ L; {bound}bool ptx_of_p{{}}; L:; ptx_of_p = (({a} >= {b}) & !ptx_of_p); "
        f"if (!ptx_of_p) goto L; ~set(ptx_0, ptx_of_p ? {a} : {b}); }})"
    )


def test_inline_ptx_without_operands():
    assert ptx.to_cpp("{ cp.async.commit_group;\n }", []) == "::flash::cp_async_commit()"
    assert ptx.to_cpp("", []) == "void()"


def test_the_strings_of_inline_ptx():
    """Comments and raw strings between them; what keeps accesses to memory in order stays."""
    pieces = '"mov.u32" // copies\n  R"( %0,)" /* to */ " %1;\\n"'
    text, refused = rewritten(f'void f() {{ asm({pieces} : "=r"(x[i++]) : "r"(y)); }}')
    assert "auto &&ptx_0 = (x[i++]); const auto ptx_1 = (y); ~ptx::set(ptx_0, " in text
    assert not refused
    text, refused = rewritten('void f() { __asm volatile("" ::: "memory"); }')
    assert text == 'void f() { __asm__ __volatile__("" ::: "memory"); }'
    text, refused = rewritten('void f() { asm("mov.u32 " TO ", 1;" : "=r"(x)); }')
    assert "the macro TO writes a part" in refused["refused_0"]


@pytest.mark.parametrize(
    "statement, constraints, said",
    [
        ("{ .reg .pred p; setp.eq.u32 p, %0, q; }", "r", "inline PTX with the operand q"),
        ("{ .reg .pred p; .reg .b32 p; }", "r", "two registers p"),
        ("{ .reg .v2 .b32 p; }", "r", "the PTX instruction .reg"),
        ("@p bra END;", "r", "inline PTX with the operand p"),
        ("bra END;", "r", "the PTX instruction bra with the operands END"),
        ("setp.lt.sat.f32 %0, %1, %1;", "=r f", "the PTX instruction setp.lt.sat.f32"),
        ("cvt.rz.s32.f32 %0, %1;", "=r f", "the PTX instruction cvt.rz.s32.f32"),
        ("cvt.rn.f32.f64 %0, %1, %1;", "=f d", "cvt.rn.f32.f64 with the operands"),
        ("shfl.sync.idx.b32 %0, %1, 0, 0x181f, -1;", "=r r", "shfl.sync.idx.b32 with the operands"),
        ("ld.acquire.relaxed.gpu.u32 %0, [%1];", "=r l", "ld.acquire.relaxed.gpu.u32"),
        ("st.acquire.gpu.u32 [%0], %1;", "l r", "the PTX instruction st.acquire.gpu.u32"),
        ("atom.add.noftz.f16 %0, [%1], %2;", "=h l h", "the PTX instruction atom.add.noftz.f16"),
        ("atom.global.cas.b32 %0, [%1], %2;", "=r l r", "atom.global.cas.b32 with the operands"),
        ("tcgen05.alloc.b32 [%0], 32;", "r", "the PTX instruction tcgen05.alloc.b32"),
        ("mov.u32 %0, %cluster_ctarank;", "=r", "inline PTX with the operand %cluster_ctarank"),
        # each of these is a form of an instruction that is known
        ("mov.b64 {%0, %1}, {%2, %3};", "=r =r r r",
         "mov.b64 with the operands {%0, %1}, {%2, %3}"),
        ("mov.u64 %0, {%1, %2};", "=l r r", "mov.u64 with the operands %0, {%1, %2}"),
        ("mov.b64 %0, {%1, %1, %1};", "=l h", "mov.b64 with the operands"),
        ("mov.b64 %0, %1, %2;", "=l r r", "mov.b64 with the operands"),
        ("mov.u64 %0, %laneid;", "=l", "a mov of 64 bits of the register %laneid"),
        ("mov.f32 %0, 1;", "=f", "inline PTX with the operand 1"),
        ("mov.u32 %0, %1;", "r r", "writes to its input %0"),
        ("mov.u32 %0, %1;", "=r m", 'the constraint "m"'),
        ("add.u32 %0, %tid.x, %1;", "=r r", "inline PTX with the operand %tid.x"),
        ("ld.global.L2::cache_hint.f32 %0, [%1], %2;", "=f l l", "ld.global.L2::cache_hint.f32"),
        ("ld.global.v4.f32 {%0, %1}, [%2];", "=f =f l", "ld.global.v4.f32 with the operands"),
        ("ld.global.f16 %0, [%1];", "=h l", "the PTX instruction ld.global.f16"),
        ("st.global.f32 [%0], %1, %2;", "l f f", "st.global.f32 with the operands"),
        ("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;", "r l l", "cache_hint"),
        ("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1}, [%2];", "=r =r r",
         "m8n8.x4.shared.b16 with the operands"),
        ("mbarrier.arrive.shared.b64 %0, %1;", "=l r", "inline PTX with the operand %1"),
        ("mbarrier.arrive.shared.b64 _, [%0], 2;", "r", "mbarrier.arrive.shared.b64 with"),
        ("add.rn.ftz.f64 %0, %1, %1;", "=d d", "the PTX instruction add.rn.ftz.f64"),
        ("add.sat.s32 %0, %1, %1;", "=r r", "the PTX instruction add.sat.s32"),
        ("@%0 bar.sync 0;", "r", "inline PTX with the operand %0"),
        ("discard.global.L2 [%0], 128;", "l", "the PTX instruction discard.global.L2"),
    ],
)  # fmt: skip
def test_inline_ptx_without_a_twin(statement, constraints, said):
    with pytest.raises(ptx.NoTwin) as error:
        ptx.to_cpp(statement, operands(constraints))
    assert said in str(error.value)


def test_inline_ptx_without_a_twin_is_refused_where_it_is_used():
    text, refused = rewritten('void f() { asm volatile("tcgen05.fence;" :: "r"(a)); }')
    assert text == "void f() { ~not_supported::refused_0(); }"
    assert "the PTX instruction tcgen05.fence" in refused["refused_0"]


@pytest.mark.parametrize(
    "error, said",
    [
        ("a.cu:3:10: fatal error: thrust/sort.h: No such file or directory",
         "a.cu:3: not supported: this part of Thrust; use a kernel, or the host"),
        ("a.cu:9:1: error: 'texture' does not name a type",
         "a.cu:9: not supported: textures; read device memory through a pointer"),
        ("b.h:4:7: error: 'cudaFoo' was not declared in this scope; did you mean 'cudaFree'?",
         "b.h:4: not supported: cudaFoo; docs/simt_reference.md lists those that are"),
        ("a.cu:2:2: error: 'refused_1' is not a member of 'flash::simt::not_supported'",
         "a.cu:2: not supported: why; what instead"),
        ("a: b.cu:2:2: error: '__shfl_up' was not declared in this scope",
         "a: b.cu:2: not supported: __shfl_up; use __shfl_up_sync"),
        ("a.cu:2:2: error: 'n' was not declared in this scope", None),
        ("a.cu:2:2: error: cannot convert 'cudaStream_t' to 'int'", None),
    ],
)  # fmt: skip
def test_what_is_not_supported_is_one_line(error, said):
    assert unsupported.explain(f"x\n{error}\n", {"refused_1": "why; what instead"}, {}) == said


def test_names_of_libraries_that_are_left_out():
    said = "a.cu:9:1: error: 'TORCH_CHECK' was not declared in this scope\n"
    wanted = (
        "a.cu:9: not supported: 'TORCH_CHECK' is nowhere declared, and torch/extension.h, which "
    )
    found = unsupported.explain(said, {}, {"torch/extension.h": "a.cu:1"})
    assert found.startswith(wanted + "a.cu:1 includes, belongs to this library")
    assert unsupported.explain(said, {}, {"cuda_fp8.h": "a.cu:1"}) is None


def test_errors_of_a_program_come_without_our_files():
    ours = f"{compiling.ROOT}/common/simt/language/launch_syntax.hpp"
    said = (
        "a.cu:4:7: error: no match for call\n    4 | k<<<1, 1>>>(a);\n"
        f"In file included from <command-line>:\n{ours}:69:10: note: candidate: 'void x'\n"
        f"   69 |     void x\n{ours}:69:10: note:   candidate expects 2 arguments, 1 provided\n"
        "a.cu:5:1: error: other\n"
    )
    wanted = (
        "a.cu:4:7: error: no match for call\n    4 | k<<<1, 1>>>(a);\n"
        "  note: candidate expects 2 arguments, 1 provided\na.cu:5:1: error: other\n"
    )
    assert unsupported.without_ours(said) == wanted


def test_errors_of_a_program_have_the_readers_names():
    here = os.getcwd()
    template = "std::integral_constant<void (*)(T*, int), (& t<T>)> kernel_of_t(T*, int)"
    said = (
        f"{here}/a.cu:4:9: error: no match for call to '(flash::simt::Configured<float*>) (int)'\n"
        f"{here}/a.cu:5:44: error: no matching function for call to 'kernel_of_t(float*&)'\n"
        "    5 | t<<<1, 1>>>(a);\n      |                                            ^\n"
        f"{here}/a.cu:1:99: note: candidate: 'template<class T> {template}'\n"
        f"{here}/a.cu:5:44: error: no matching function for call to 'kernel_of_t(float*&)'\n"
        "    5 | t<<<1, 1>>>(a);\n"
    )
    assert unsupported.without_ours(said) == (
        "a.cu:4:9: error: a kernel with the parameters (float*) is launched with (int)\n"
        "a.cu:5:44: error: no matching function for call to 't(float*&)'\n    5 | t<<<1, 1>>>(a);\n"
        "a.cu:1:99: note: candidate: 'template<class T> void t(T*, int)'\n"
    )


def test_the_library_is_known_by_its_contents(tmp_path, monkeypatch):
    header = tmp_path / "common/simt/language/math.hpp"
    header.parent.mkdir(parents=True)
    header.write_text("a")
    monkeypatch.setattr(library, "SIMT", tmp_path / "common/simt")
    before = library.stamp()
    os.utime(header, (1, 1))
    assert library.stamp() == before
    header.write_text("b")
    assert library.stamp() != before


def test_what_a_header_of_ours_asserts():
    said = (
        "{0}: In instantiation of 'struct x':\na.cu:7:45:   required from here\n"
        "{0}:49:45: error: static assertion failed: a matrix holds __half\n"
    )
    ours = said.format(compiling.ROOT / "common/simt/instructions/wmma.hpp")
    assert unsupported.explain(ours, {}, {}) == "a.cu:7: not supported: a matrix holds __half"
    assert unsupported.explain(said.format("b.h"), {}, {}) is None


def test_headers_of_a_toolkit_that_is_installed(tmp_path):
    (tmp_path / "cuda_runtime.h").touch()
    said = (
        "In file included from {0}/cufft.h:76,\n                 from a.cu:3:\n"
        "{0}/cuComplex.h:79:71: error: what a compiler says\n"
    )
    wanted = "a.cu:3: not supported: cuFFT; write a kernel for it, or compute it on the host"
    assert unsupported.explain(said.format(tmp_path), {}, {}) == wanted
    assert unsupported.explain(said.format("include"), {}, {}) is None


def test_a_first_use_is_told(monkeypatch, tmp_path, capsys):
    """On one line, where stderr is no terminal, too: it takes a minute, and PyPI may not answer."""
    monkeypatch.setattr(library, "configure", lambda: None)
    monkeypatch.setattr(library, "folder", lambda: tmp_path)
    (tmp_path / "common/simt").mkdir(parents=True)
    (tmp_path / "cmake").write_text("#!/bin/sh\nsleep 3\n")
    (tmp_path / "cmake").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    library.build()
    said = capsys.readouterr().err
    assert re.fullmatch(
        r".*: building the SIMT backend, .* a minute or two \.+ done \(3 s\)\n", said
    )

    def no_network(*_):
        raise LeftOut("PyPI does not answer")

    monkeypatch.setattr(compiling, "prepare", no_network)
    with pytest.raises(SimtError) as error:
        compiling.use_grammar()
    assert str(error.value).startswith("PyPI does not answer, and the first use needs tree-sitter")
    assert "\n" not in str(error.value)


def test_cleaning_up_beside_another_run(monkeypatch, tmp_path):
    """What it renames or removes meanwhile is looked for in vain, as a link that leads nowhere."""
    (tmp_path / "objects").mkdir()
    for name in "abc":
        (tmp_path / name).symlink_to(tmp_path / "gone")
    (tmp_path / "kept").mkdir()
    monkeypatch.setattr(library, "own", lambda: tmp_path)
    monkeypatch.setattr(compiling, "KEPT", 1)
    compiling.clean()
    assert [path.name for path in tmp_path.iterdir() if path.name != "objects"] == ["kept"]
