// The wgmma instruction in each width that common/cuda/ptx/wgmma.hpp offers. It names every
// register of C, N / 2 of them, and so has to be spelled once per N; only the lists of names
// differ. nvcc only.
#pragma once

#include <cstdint>

// clang-format off
// The names of the first 8, 16, ... operands.
#define FLASH_NAMES_8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define FLASH_NAMES_16 FLASH_NAMES_8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define FLASH_NAMES_24 FLASH_NAMES_16 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define FLASH_NAMES_32 FLASH_NAMES_24 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define FLASH_NAMES_36 FLASH_NAMES_32 ", %32, %33, %34, %35"
#define FLASH_NAMES_40 FLASH_NAMES_32 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define FLASH_NAMES_48 FLASH_NAMES_40 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define FLASH_NAMES_56 FLASH_NAMES_48 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define FLASH_NAMES_64 FLASH_NAMES_56 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define FLASH_NAMES_68 FLASH_NAMES_64 ", %64, %65, %66, %67"
#define FLASH_NAMES_72 FLASH_NAMES_64 ", %64, %65, %66, %67, %68, %69, %70, %71"
#define FLASH_NAMES_80 FLASH_NAMES_72 ", %72, %73, %74, %75, %76, %77, %78, %79"
#define FLASH_NAMES_88 FLASH_NAMES_80 ", %80, %81, %82, %83, %84, %85, %86, %87"
#define FLASH_NAMES_96 FLASH_NAMES_88 ", %88, %89, %90, %91, %92, %93, %94, %95"
#define FLASH_NAMES_104 FLASH_NAMES_96 ", %96, %97, %98, %99, %100, %101, %102, %103"
#define FLASH_NAMES_112 FLASH_NAMES_104 ", %104, %105, %106, %107, %108, %109, %110, %111"
#define FLASH_NAMES_120 FLASH_NAMES_112 ", %112, %113, %114, %115, %116, %117, %118, %119"
#define FLASH_NAMES_128 FLASH_NAMES_120 ", %120, %121, %122, %123, %124, %125, %126, %127"
// The registers of C in that order: four in each fragment of eight columns.
#define FLASH_C(i) "+f"(C[i][0]), "+f"(C[i][1]), "+f"(C[i][2]), "+f"(C[i][3])
#define FLASH_C_8 FLASH_C(0), FLASH_C(1)
#define FLASH_C_16 FLASH_C_8, FLASH_C(2), FLASH_C(3)
#define FLASH_C_24 FLASH_C_16, FLASH_C(4), FLASH_C(5)
#define FLASH_C_32 FLASH_C_24, FLASH_C(6), FLASH_C(7)
#define FLASH_C_36 FLASH_C_32, FLASH_C(8)
#define FLASH_C_40 FLASH_C_32, FLASH_C(8), FLASH_C(9)
#define FLASH_C_48 FLASH_C_40, FLASH_C(10), FLASH_C(11)
#define FLASH_C_56 FLASH_C_48, FLASH_C(12), FLASH_C(13)
#define FLASH_C_64 FLASH_C_56, FLASH_C(14), FLASH_C(15)
#define FLASH_C_68 FLASH_C_64, FLASH_C(16)
#define FLASH_C_72 FLASH_C_64, FLASH_C(16), FLASH_C(17)
#define FLASH_C_80 FLASH_C_72, FLASH_C(18), FLASH_C(19)
#define FLASH_C_88 FLASH_C_80, FLASH_C(20), FLASH_C(21)
#define FLASH_C_96 FLASH_C_88, FLASH_C(22), FLASH_C(23)
#define FLASH_C_104 FLASH_C_96, FLASH_C(24), FLASH_C(25)
#define FLASH_C_112 FLASH_C_104, FLASH_C(26), FLASH_C(27)
#define FLASH_C_120 FLASH_C_112, FLASH_C(28), FLASH_C(29)
#define FLASH_C_128 FLASH_C_120, FLASH_C(30), FLASH_C(31)
// Operands after those of C, with A in shared memory: A, B, accumulate, transpose_A, transpose_B.
#define FLASH_WGMMA_SS(N, R, type, a, b, acc, trans_a, trans_b)                                    \
    asm volatile("{ .reg .pred p; setp.ne.b32 p, " acc ", 0; "                                     \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." type "." type                   \
                 " {" FLASH_NAMES_##R "}, " a ", " b ", p, 1, 1, " trans_a ", " trans_b "; }"      \
                 : FLASH_C_##R                                                                     \
                 : "l"(A), "l"(B), "r"(accumulate), "n"(transpose_A), "n"(transpose_B)             \
                 : "memory")
// A in registers: a0, a1, a2, a3, B, accumulate, transpose_B.
#define FLASH_WGMMA_RS(N, R, type, a0, a1, a2, a3, b, acc, trans)                                  \
    asm volatile("{ .reg .pred p; setp.ne.b32 p, " acc ", 0; "                                     \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." type "." type                   \
                 " {" FLASH_NAMES_##R "}, {" a0 ", " a1 ", " a2 ", " a3 "}, " b                    \
                 ", p, 1, 1, " trans "; }"                                                         \
                 : FLASH_C_##R                                                                     \
                 : "r"(A[0]), "r"(A[1]), "r"(A[2]), "r"(A[3]), "l"(B), "r"(accumulate),            \
                   "n"(transpose_B)                                                                \
                 : "memory")
// Of e4m3, 32 k at once and none of them transposed. Operands after those of C: A, B, accumulate; or
// a0, a1, a2, a3, B, accumulate.
#define FLASH_WGMMA_SS_E4M3(N, R, a, b, acc)                                                       \
    asm volatile("{ .reg .pred p; setp.ne.b32 p, " acc ", 0; "                                     \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k32.f32.e4m3.e4m3"                        \
                 " {" FLASH_NAMES_##R "}, " a ", " b ", p, 1, 1; }"                                \
                 : FLASH_C_##R                                                                     \
                 : "l"(A), "l"(B), "r"(accumulate)                                                 \
                 : "memory")
#define FLASH_WGMMA_RS_E4M3(N, R, a0, a1, a2, a3, b, acc)                                          \
    asm volatile("{ .reg .pred p; setp.ne.b32 p, " acc ", 0; "                                     \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k32.f32.e4m3.e4m3"                        \
                 " {" FLASH_NAMES_##R "}, {" a0 ", " a1 ", " a2 ", " a3 "}, " b ", p, 1, 1; }"     \
                 : FLASH_C_##R                                                                     \
                 : "r"(A[0]), "r"(A[1]), "r"(A[2]), "r"(A[3]), "l"(B), "r"(accumulate)             \
                 : "memory")
#define FLASH_WGMMA_SS_TYPES(N, R, ...)                                                            \
    if constexpr (dtype_of<T> == DType::fp16) { FLASH_WGMMA_SS(N, R, "f16", __VA_ARGS__); }        \
    else { FLASH_WGMMA_SS(N, R, "bf16", __VA_ARGS__); }
#define FLASH_WGMMA_RS_TYPES(N, R, ...)                                                            \
    if constexpr (dtype_of<T> == DType::fp16) { FLASH_WGMMA_RS(N, R, "f16", __VA_ARGS__); }        \
    else { FLASH_WGMMA_RS(N, R, "bf16", __VA_ARGS__); }
// clang-format on

namespace flash::detail {

template <class T, int N, bool transpose_A, bool transpose_B>
__device__ __forceinline__ void wgmma(float (&C)[N / 8][4], uint64_t A, uint64_t B,
                                      int accumulate) {
    // clang-format off
    if constexpr (N == 64) {
        FLASH_WGMMA_SS_TYPES(64, 32, "%32", "%33", "%34", "%35", "%36")
    } else if constexpr (N == 80) {
        FLASH_WGMMA_SS_TYPES(80, 40, "%40", "%41", "%42", "%43", "%44")
    } else if constexpr (N == 96) {
        FLASH_WGMMA_SS_TYPES(96, 48, "%48", "%49", "%50", "%51", "%52")
    } else if constexpr (N == 112) {
        FLASH_WGMMA_SS_TYPES(112, 56, "%56", "%57", "%58", "%59", "%60")
    } else if constexpr (N == 128) {
        FLASH_WGMMA_SS_TYPES(128, 64, "%64", "%65", "%66", "%67", "%68")
    } else if constexpr (N == 160) {
        FLASH_WGMMA_SS_TYPES(160, 80, "%80", "%81", "%82", "%83", "%84")
    } else if constexpr (N == 176) {
        FLASH_WGMMA_SS_TYPES(176, 88, "%88", "%89", "%90", "%91", "%92")
    } else if constexpr (N == 192) {
        FLASH_WGMMA_SS_TYPES(192, 96, "%96", "%97", "%98", "%99", "%100")
    } else if constexpr (N == 256) {
        FLASH_WGMMA_SS_TYPES(256, 128, "%128", "%129", "%130", "%131", "%132")
    } else {
        static_assert(N == 0, "add this N to common/cuda/ptx/wgmma_shapes.hpp");
    }
    // clang-format on
}

template <class T, int N, bool transpose_B>
__device__ __forceinline__ void wgmma(float (&C)[N / 8][4], const uint32_t (&A)[4], uint64_t B,
                                      int accumulate) {
    // clang-format off
    if constexpr (N == 64) {
        FLASH_WGMMA_RS_TYPES(64, 32, "%32", "%33", "%34", "%35", "%36", "%37", "%38")
    } else if constexpr (N == 80) {
        FLASH_WGMMA_RS_TYPES(80, 40, "%40", "%41", "%42", "%43", "%44", "%45", "%46")
    } else if constexpr (N == 96) {
        FLASH_WGMMA_RS_TYPES(96, 48, "%48", "%49", "%50", "%51", "%52", "%53", "%54")
    } else if constexpr (N == 112) {
        FLASH_WGMMA_RS_TYPES(112, 56, "%56", "%57", "%58", "%59", "%60", "%61", "%62")
    } else if constexpr (N == 128) {
        FLASH_WGMMA_RS_TYPES(128, 64, "%64", "%65", "%66", "%67", "%68", "%69", "%70")
    } else if constexpr (N == 160) {
        FLASH_WGMMA_RS_TYPES(160, 80, "%80", "%81", "%82", "%83", "%84", "%85", "%86")
    } else if constexpr (N == 176) {
        FLASH_WGMMA_RS_TYPES(176, 88, "%88", "%89", "%90", "%91", "%92", "%93", "%94")
    } else if constexpr (N == 192) {
        FLASH_WGMMA_RS_TYPES(192, 96, "%96", "%97", "%98", "%99", "%100", "%101", "%102")
    } else if constexpr (N == 256) {
        FLASH_WGMMA_RS_TYPES(256, 128, "%128", "%129", "%130", "%131", "%132", "%133", "%134")
    } else {
        static_assert(N == 0, "add this N to common/cuda/ptx/wgmma_shapes.hpp");
    }
    // clang-format on
}

template <int N>
__device__ __forceinline__ void wgmma_e4m3(float (&C)[N / 8][4], uint64_t A, uint64_t B,
                                           int accumulate) {
    // clang-format off
    if constexpr (N == 64) {
        FLASH_WGMMA_SS_E4M3(64, 32, "%32", "%33", "%34");
    } else if constexpr (N == 128) {
        FLASH_WGMMA_SS_E4M3(128, 64, "%64", "%65", "%66");
    } else {
        static_assert(N == 0, "add this N to common/cuda/ptx/wgmma_shapes.hpp");
    }
    // clang-format on
}

template <int N>
__device__ __forceinline__ void wgmma_e4m3(float (&C)[N / 8][4], const uint32_t (&A)[4], uint64_t B,
                                           int accumulate) {
    // clang-format off
    if constexpr (N == 72) {
        FLASH_WGMMA_RS_E4M3(72, 36, "%36", "%37", "%38", "%39", "%40", "%41");
    } else if constexpr (N == 136) {
        FLASH_WGMMA_RS_E4M3(136, 68, "%68", "%69", "%70", "%71", "%72", "%73");
    } else {
        static_assert(N == 0, "add this N to common/cuda/ptx/wgmma_shapes.hpp");
    }
    // clang-format on
}

} // namespace flash::detail
