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
#define FLASH_NAMES_40 FLASH_NAMES_32 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define FLASH_NAMES_48 FLASH_NAMES_40 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define FLASH_NAMES_56 FLASH_NAMES_48 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define FLASH_NAMES_64 FLASH_NAMES_56 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define FLASH_NAMES_72 FLASH_NAMES_64 ", %64, %65, %66, %67, %68, %69, %70, %71"
#define FLASH_NAMES_80 FLASH_NAMES_72 ", %72, %73, %74, %75, %76, %77, %78, %79"
#define FLASH_NAMES_88 FLASH_NAMES_80 ", %80, %81, %82, %83, %84, %85, %86, %87"
#define FLASH_NAMES_96 FLASH_NAMES_88 ", %88, %89, %90, %91, %92, %93, %94, %95"
#define FLASH_NAMES_104 FLASH_NAMES_96 ", %96, %97, %98, %99, %100, %101, %102, %103"
#define FLASH_NAMES_112 FLASH_NAMES_104 ", %104, %105, %106, %107, %108, %109, %110, %111"
#define FLASH_NAMES_120 FLASH_NAMES_112 ", %112, %113, %114, %115, %116, %117, %118, %119"
#define FLASH_NAMES_128 FLASH_NAMES_120 ", %120, %121, %122, %123, %124, %125, %126, %127"
// The registers of C in that order.
#define FLASH_C_8 "+f"(C[0][0]), "+f"(C[0][1]), "+f"(C[0][2]), "+f"(C[0][3]), "+f"(C[1][0]), "+f"(C[1][1]), "+f"(C[1][2]), "+f"(C[1][3])
#define FLASH_C_16 FLASH_C_8, "+f"(C[2][0]), "+f"(C[2][1]), "+f"(C[2][2]), "+f"(C[2][3]), "+f"(C[3][0]), "+f"(C[3][1]), "+f"(C[3][2]), "+f"(C[3][3])
#define FLASH_C_24 FLASH_C_16, "+f"(C[4][0]), "+f"(C[4][1]), "+f"(C[4][2]), "+f"(C[4][3]), "+f"(C[5][0]), "+f"(C[5][1]), "+f"(C[5][2]), "+f"(C[5][3])
#define FLASH_C_32 FLASH_C_24, "+f"(C[6][0]), "+f"(C[6][1]), "+f"(C[6][2]), "+f"(C[6][3]), "+f"(C[7][0]), "+f"(C[7][1]), "+f"(C[7][2]), "+f"(C[7][3])
#define FLASH_C_40 FLASH_C_32, "+f"(C[8][0]), "+f"(C[8][1]), "+f"(C[8][2]), "+f"(C[8][3]), "+f"(C[9][0]), "+f"(C[9][1]), "+f"(C[9][2]), "+f"(C[9][3])
#define FLASH_C_48 FLASH_C_40, "+f"(C[10][0]), "+f"(C[10][1]), "+f"(C[10][2]), "+f"(C[10][3]), "+f"(C[11][0]), "+f"(C[11][1]), "+f"(C[11][2]), "+f"(C[11][3])
#define FLASH_C_56 FLASH_C_48, "+f"(C[12][0]), "+f"(C[12][1]), "+f"(C[12][2]), "+f"(C[12][3]), "+f"(C[13][0]), "+f"(C[13][1]), "+f"(C[13][2]), "+f"(C[13][3])
#define FLASH_C_64 FLASH_C_56, "+f"(C[14][0]), "+f"(C[14][1]), "+f"(C[14][2]), "+f"(C[14][3]), "+f"(C[15][0]), "+f"(C[15][1]), "+f"(C[15][2]), "+f"(C[15][3])
#define FLASH_C_72 FLASH_C_64, "+f"(C[16][0]), "+f"(C[16][1]), "+f"(C[16][2]), "+f"(C[16][3]), "+f"(C[17][0]), "+f"(C[17][1]), "+f"(C[17][2]), "+f"(C[17][3])
#define FLASH_C_80 FLASH_C_72, "+f"(C[18][0]), "+f"(C[18][1]), "+f"(C[18][2]), "+f"(C[18][3]), "+f"(C[19][0]), "+f"(C[19][1]), "+f"(C[19][2]), "+f"(C[19][3])
#define FLASH_C_88 FLASH_C_80, "+f"(C[20][0]), "+f"(C[20][1]), "+f"(C[20][2]), "+f"(C[20][3]), "+f"(C[21][0]), "+f"(C[21][1]), "+f"(C[21][2]), "+f"(C[21][3])
#define FLASH_C_96 FLASH_C_88, "+f"(C[22][0]), "+f"(C[22][1]), "+f"(C[22][2]), "+f"(C[22][3]), "+f"(C[23][0]), "+f"(C[23][1]), "+f"(C[23][2]), "+f"(C[23][3])
#define FLASH_C_104 FLASH_C_96, "+f"(C[24][0]), "+f"(C[24][1]), "+f"(C[24][2]), "+f"(C[24][3]), "+f"(C[25][0]), "+f"(C[25][1]), "+f"(C[25][2]), "+f"(C[25][3])
#define FLASH_C_112 FLASH_C_104, "+f"(C[26][0]), "+f"(C[26][1]), "+f"(C[26][2]), "+f"(C[26][3]), "+f"(C[27][0]), "+f"(C[27][1]), "+f"(C[27][2]), "+f"(C[27][3])
#define FLASH_C_120 FLASH_C_112, "+f"(C[28][0]), "+f"(C[28][1]), "+f"(C[28][2]), "+f"(C[28][3]), "+f"(C[29][0]), "+f"(C[29][1]), "+f"(C[29][2]), "+f"(C[29][3])
#define FLASH_C_128 FLASH_C_120, "+f"(C[30][0]), "+f"(C[30][1]), "+f"(C[30][2]), "+f"(C[30][3]), "+f"(C[31][0]), "+f"(C[31][1]), "+f"(C[31][2]), "+f"(C[31][3])
// A and B in shared memory: operands after those of C are A, B, accumulate, transpose_A, transpose_B.
#define FLASH_WGMMA_SS(N, R, type, a, b, acc, trans_a, trans_b)                                                        \
    asm volatile("{ .reg .pred p; setp.ne.b32 p, " acc ", 0; wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." type "." \
                 type " {" FLASH_NAMES_##R "}, " a ", " b ", p, 1, 1, " trans_a ", " trans_b "; }"                     \
                 : FLASH_C_##R : "l"(A), "l"(B), "r"(accumulate), "n"(transpose_A), "n"(transpose_B) : "memory")
// A in registers: a0, a1, a2, a3, B, accumulate, transpose_B.
#define FLASH_WGMMA_RS(N, R, type, a0, a1, a2, a3, b, acc, trans)                                                      \
    asm volatile("{ .reg .pred p; setp.ne.b32 p, " acc ", 0; wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." type "." \
                 type " {" FLASH_NAMES_##R "}, {" a0 ", " a1 ", " a2 ", " a3 "}, " b ", p, 1, 1, " trans "; }"         \
                 : FLASH_C_##R : "r"(A[0]), "r"(A[1]), "r"(A[2]), "r"(A[3]), "l"(B), "r"(accumulate), "n"(transpose_B) \
                 : "memory")
#define FLASH_WGMMA_SS_TYPES(N, R, ...)                                                                                \
    if constexpr (dtype_of<T> == DType::fp16) { FLASH_WGMMA_SS(N, R, "f16", __VA_ARGS__); }                            \
    else { FLASH_WGMMA_SS(N, R, "bf16", __VA_ARGS__); }
#define FLASH_WGMMA_RS_TYPES(N, R, ...)                                                                                \
    if constexpr (dtype_of<T> == DType::fp16) { FLASH_WGMMA_RS(N, R, "f16", __VA_ARGS__); }                            \
    else { FLASH_WGMMA_RS(N, R, "bf16", __VA_ARGS__); }
// clang-format on

namespace flash::detail {

template <class T, int N, bool transpose_A, bool transpose_B>
__device__ __forceinline__ void wgmma(float (&C)[N / 8][4], uint64_t A, uint64_t B,
                                      int accumulate) {
    // clang-format off
    if constexpr (N == 64) { FLASH_WGMMA_SS_TYPES(64, 32, "%32", "%33", "%34", "%35", "%36") }
    else if constexpr (N == 80) { FLASH_WGMMA_SS_TYPES(80, 40, "%40", "%41", "%42", "%43", "%44") }
    else if constexpr (N == 96) { FLASH_WGMMA_SS_TYPES(96, 48, "%48", "%49", "%50", "%51", "%52") }
    else if constexpr (N == 112) { FLASH_WGMMA_SS_TYPES(112, 56, "%56", "%57", "%58", "%59", "%60") }
    else if constexpr (N == 128) { FLASH_WGMMA_SS_TYPES(128, 64, "%64", "%65", "%66", "%67", "%68") }
    else if constexpr (N == 160) { FLASH_WGMMA_SS_TYPES(160, 80, "%80", "%81", "%82", "%83", "%84") }
    else if constexpr (N == 176) { FLASH_WGMMA_SS_TYPES(176, 88, "%88", "%89", "%90", "%91", "%92") }
    else if constexpr (N == 192) { FLASH_WGMMA_SS_TYPES(192, 96, "%96", "%97", "%98", "%99", "%100") }
    else if constexpr (N == 256) { FLASH_WGMMA_SS_TYPES(256, 128, "%128", "%129", "%130", "%131", "%132") }
    else static_assert(N == 0, "add this N to common/cuda/ptx/wgmma_shapes.hpp");
    // clang-format on
}

template <class T, int N, bool transpose_B>
__device__ __forceinline__ void wgmma(float (&C)[N / 8][4], const uint32_t (&A)[4], uint64_t B,
                                      int accumulate) {
    // clang-format off
    if constexpr (N == 64) { FLASH_WGMMA_RS_TYPES(64, 32, "%32", "%33", "%34", "%35", "%36", "%37", "%38") }
    else if constexpr (N == 80) { FLASH_WGMMA_RS_TYPES(80, 40, "%40", "%41", "%42", "%43", "%44", "%45", "%46") }
    else if constexpr (N == 96) { FLASH_WGMMA_RS_TYPES(96, 48, "%48", "%49", "%50", "%51", "%52", "%53", "%54") }
    else if constexpr (N == 112) { FLASH_WGMMA_RS_TYPES(112, 56, "%56", "%57", "%58", "%59", "%60", "%61", "%62") }
    else if constexpr (N == 128) { FLASH_WGMMA_RS_TYPES(128, 64, "%64", "%65", "%66", "%67", "%68", "%69", "%70") }
    else if constexpr (N == 160) { FLASH_WGMMA_RS_TYPES(160, 80, "%80", "%81", "%82", "%83", "%84", "%85", "%86") }
    else if constexpr (N == 176) { FLASH_WGMMA_RS_TYPES(176, 88, "%88", "%89", "%90", "%91", "%92", "%93", "%94") }
    else if constexpr (N == 192) { FLASH_WGMMA_RS_TYPES(192, 96, "%96", "%97", "%98", "%99", "%100", "%101", "%102") }
    else if constexpr (N == 256) { FLASH_WGMMA_RS_TYPES(256, 128, "%128", "%129", "%130", "%131", "%132", "%133", "%134") }
    else static_assert(N == 0, "add this N to common/cuda/ptx/wgmma_shapes.hpp");
    // clang-format on
}

} // namespace flash::detail
