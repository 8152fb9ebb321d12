// Inline PTX in forms that must not be guessed: vectors, packing, sinks, typed constants, and
// operands with side effects.
#include <cstdint>
#include <cstdio>
__device__ int calls;
__device__ int& next(int* a) { return a[calls++]; }
__global__ void k(unsigned* o, unsigned long long* l, float* f, int* counted) {
    int n = 0;
    unsigned short a = 1, b = 2, c = 3, d = 4;
    unsigned x = 7, y = 9;
    asm("mov.b64 %0, {%1, %2, %3, %4};" : "=l"(l[0]) : "h"(a), "h"(b), "h"(c), "h"(d));
    asm("mov.b64 {%0, %1, %2, %3}, %4;" : "=h"(d), "=h"(c), "=h"(b), "=h"(a) : "l"(l[0]));
    o[n++] = a;
    o[n++] = d;
    asm volatile("mov.b64 {_, %0}, %1;" : "=r"(o[n++]) : "l"(0x12345678ull << 32));
    asm("mov.b64 {%0, %1}, %2;"
        : "=f"(f[0]), "=f"(f[1])
        : "d"(__longlong_as_double(0x400000003f800000ll)));
    asm("mov.b64 %0, {%1, 5};" : "=l"(l[1]) : "r"(1u));
    asm("mov.v2.u32 {%0, %1}, {%1, %0};" : "+r"(x), "+r"(y));
    o[n++] = x;
    o[n++] = y;
    asm("mov.b32 {%0, %1}, %2;" /* halves */ : "=h"(a), "=h"(b) : "r"(0xabcd1234u));
    o[n++] = a;
    o[n++] = b;
    asm("mul.f32 %0, %1, 0.1;" : "=f"(f[2]) : "f"(3.f)); // not through double
    asm("mul.ftz.f32 %0, %1, 1.0;" : "=f"(f[3]) : "f"(1e-39f));
    asm("mul.f32 %0, %1, 1.0;" : "=f"(f[4]) : "f"(1e-39f));
    asm("and.b32 %0, %1, 0x7fffffff;" : "=f"(f[5]) : "f"(-2.f));
    int arr[4] = {1, 1, 1, 1};
    asm("add.s32 %0, %0, %0;" : "+r"(next(arr)));
    counted[0] = calls;
    counted[1] = arr[0];
    counted[2] = arr[1];
    asm volatile("ld.global.v2.b32 {_, %0}, [%1+8];" : "=r"(o[n++]) : "l"(o));
    asm volatile("ld.global.s8 %0, [%1];" : "=r"(o[n++]) : "l"(counted + 3));
    asm volatile("st.global.u16 [%0], %1;" ::"l"(counted + 4), "r"(0x12345));
    asm volatile("" ::: "memory");
    asm volatile("prefetch.global.L2 [%0];" ::"l"(&next(arr)));
    counted[5] = calls;
    asm("mov.b32 %0, 0f3F800000;" : "=f"(f[6]));
    asm("mov.u32 %0, 010;" : "=r"(o[n++]));
    unsigned __int128 q;
    asm("mov.b128 %0, {%1, %2};" : "=q"(q) : "l"(5ull), "l"(6ull));
    o[n++] = unsigned(q >> 64);
}
int main() {
    unsigned* o;
    unsigned long long* l;
    float* f;
    int* c;
    cudaMallocManaged(&o, 64);
    cudaMallocManaged(&l, 64);
    cudaMallocManaged(&f, 64);
    cudaMallocManaged(&c, 64);
    for (int i = 0; i < 16; ++i) {
        o[i] = 0;
        c[i] = 0;
    }
    c[3] = -1;
    k<<<1, 1>>>(o, l, f, c);
    cudaDeviceSynchronize();
    printf("%llx %llx\n", l[0], l[1]);
    for (int i = 0; i < 11; ++i)
        printf(i < 10 ? "%x " : "%x\n", o[i]);
    for (int i = 0; i < 7; ++i)
        printf(i < 6 ? "%.9g " : "%.9g\n", f[i]);
    printf("%d %d %d, %x, %d\n", c[0], c[1], c[2], c[4], c[5]);
}
