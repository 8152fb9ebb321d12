// CUDA's header of this name, for the SIMT backend: complex numbers as pairs.
#pragma once

#include "cuda_runtime.h"

using cuFloatComplex = float2;
inline cuFloatComplex make_cuFloatComplex(float x, float y) { return make_float2(x, y); }
inline float cuCrealf(cuFloatComplex a) { return a.x; }
inline float cuCimagf(cuFloatComplex a) { return a.y; }
inline cuFloatComplex cuConjf(cuFloatComplex a) { return make_float2(a.x, -a.y); }
inline cuFloatComplex cuCaddf(cuFloatComplex a, cuFloatComplex b) {
    return make_float2(a.x + b.x, a.y + b.y);
}
inline cuFloatComplex cuCsubf(cuFloatComplex a, cuFloatComplex b) {
    return make_float2(a.x - b.x, a.y - b.y);
}
inline cuFloatComplex cuCmulf(cuFloatComplex a, cuFloatComplex b) {
    return make_float2(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);
}
/// Scaled, so that no square overflows.
inline cuFloatComplex cuCdivf(cuFloatComplex a, cuFloatComplex b) {
    const float scale = 1 / (fabsf(b.x) + fabsf(b.y));
    a = make_float2(a.x * scale, a.y * scale);
    b = make_float2(b.x * scale, b.y * scale);
    const float over = 1 / (b.x * b.x + b.y * b.y);
    return make_float2((a.x * b.x + a.y * b.y) * over, (a.y * b.x - a.x * b.y) * over);
}
inline float cuCabsf(cuFloatComplex a) { return hypotf(a.x, a.y); }
/// a * b + c
inline cuFloatComplex cuCfmaf(cuFloatComplex a, cuFloatComplex b, cuFloatComplex c) {
    return cuCaddf(cuCmulf(a, b), c);
}

using cuDoubleComplex = double2;
inline cuDoubleComplex make_cuDoubleComplex(double x, double y) { return make_double2(x, y); }
inline double cuCreal(cuDoubleComplex a) { return a.x; }
inline double cuCimag(cuDoubleComplex a) { return a.y; }
inline cuDoubleComplex cuConj(cuDoubleComplex a) { return make_double2(a.x, -a.y); }
inline cuDoubleComplex cuCadd(cuDoubleComplex a, cuDoubleComplex b) {
    return make_double2(a.x + b.x, a.y + b.y);
}
inline cuDoubleComplex cuCsub(cuDoubleComplex a, cuDoubleComplex b) {
    return make_double2(a.x - b.x, a.y - b.y);
}
inline cuDoubleComplex cuCmul(cuDoubleComplex a, cuDoubleComplex b) {
    return make_double2(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);
}
/// Scaled, so that no square overflows.
inline cuDoubleComplex cuCdiv(cuDoubleComplex a, cuDoubleComplex b) {
    const double scale = 1 / (fabs(b.x) + fabs(b.y));
    a = make_double2(a.x * scale, a.y * scale);
    b = make_double2(b.x * scale, b.y * scale);
    const double over = 1 / (b.x * b.x + b.y * b.y);
    return make_double2((a.x * b.x + a.y * b.y) * over, (a.y * b.x - a.x * b.y) * over);
}
inline double cuCabs(cuDoubleComplex a) { return hypot(a.x, a.y); }
/// a * b + c
inline cuDoubleComplex cuCfma(cuDoubleComplex a, cuDoubleComplex b, cuDoubleComplex c) {
    return cuCadd(cuCmul(a, b), c);
}

using cuComplex = cuFloatComplex;
inline cuComplex make_cuComplex(float x, float y) { return make_float2(x, y); }
inline cuDoubleComplex cuComplexFloatToDouble(cuFloatComplex a) { return make_double2(a.x, a.y); }
inline cuFloatComplex cuComplexDoubleToFloat(cuDoubleComplex a) {
    return make_float2(static_cast<float>(a.x), static_cast<float>(a.y));
}
