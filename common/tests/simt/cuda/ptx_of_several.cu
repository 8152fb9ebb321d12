// Inline PTX as others write it: registers and jumps of a statement's own, predicates, integers,
// conversions, and accesses that order others.
#include <cstdio>
__global__ void integers(unsigned* o, long long* w) {
    int n = 0, s;
    unsigned x = 0x12345678, y = 0x9abcdef0;
    asm("{\n\t.reg .pred p, q;\n\t.reg .u32 t<2>;\n\t"
        "setp.gt.u32 p|q, %1, %2;\n\t@p mov.u32 t0, 7;\n\t@!p mov.u32 t0, 9;\n\t"
        "selp.u32 t1, 100, 200, q;\n\tadd.u32 %0, t0, t1;\n}"
        : "=r"(o[n++])
        : "r"(x), "r"(y));
    asm("{ .reg .pred %%p; setp.ne.b32 %%p, %1, 0; selp.b32 %0, 1, 0, %%p; }"
        : "=r"(o[n++])
        : "r"(x));
    asm("{ .reg .u32 i; mov.u32 i, 0; mov.u32 %0, 0;\n"
        "LOOP_%=: .reg .pred done; add.u32 %0, %0, i; add.u32 i, i, 1;\n"
        "setp.ge.u32 done, i, 5; @done bra END; bra.uni LOOP_%=;\nEND:\n}"
        : "=r"(o[n++]));
    asm("bfe.u32 %0, %1, 8, 12;" : "=r"(o[n++]) : "r"(x));
    asm("bfe.s32 %0, %1, 4, 4;" : "=r"(s) : "r"(y));
    o[n++] = s;
    asm("bfi.b32 %0, %1, %2, 16, 8;" : "=r"(o[n++]) : "r"(0xabu), "r"(x));
    asm("prmt.b32 %0, %1, %2, 0x5410;" : "=r"(o[n++]) : "r"(x), "r"(y));
    asm("lop3.b32 %0, %1, %2, %3, 0xe8;" : "=r"(o[n++]) : "r"(12), "r"(10), "r"(6));
    asm("shl.b32 %0, %1, 40;" : "=r"(o[n++]) : "r"(x));
    asm("shr.s32 %0, %1, 40;" : "=r"(s) : "r"(y));
    o[n++] = s;
    asm("shf.l.wrap.b32 %0, %1, %2, 8;" : "=r"(o[n++]) : "r"(x), "r"(y));
    asm("mad.lo.u32 %0, %1, %2, %3;" : "=r"(o[n++]) : "r"(x), "r"(16), "r"(1));
    asm("mul.hi.u32 %0, %1, %2;" : "=r"(o[n++]) : "r"(x), "r"(y));
    asm("mul.wide.s32 %0, %1, %2;" : "=l"(w[0]) : "r"(-3), "r"(1 << 30));
    asm("mad.wide.u32 %0, %1, 4, %2;" : "=l"(w[1]) : "r"(~0u), "l"(1ll));
    asm("cvt.rzi.s32.f32 %0, %1;" : "=r"(s) : "f"(-2.7f));
    o[n++] = s;
    asm("cvt.rni.u8.f32 %0, %1;" : "=r"(o[n++]) : "f"(300.f));
    asm("cvt.s64.s32 %0, %1;" : "=l"(w[2]) : "r"(-5));
    asm("cvt.u32.u8 %0, %1;" : "=r"(o[n++]) : "r"(0x1ff));
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(o[n++]) : "f"(2.f), "f"(1.f));
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(o[n++]) : "f"(1.0009765625f + 0.00048828125f));
    asm("min.s32 %0, %1, %2;" : "=r"(s) : "r"(-1), "r"(3));
    o[n++] = s;
    asm("{ .reg .b16 h; mov.b32 {h, _}, %1; cvt.u32.u16 %0, h; }" : "=r"(o[n++]) : "r"(x));
}
__global__ void lanes(int* o) {
    int lane, other, sum;
    asm volatile("mov.u32 %0, %laneid;" : "=r"(lane));
    asm volatile("shfl.sync.bfly.b32 %0, %1, 1, 0x1f, 0xffffffff;" : "=r"(other) : "r"(lane));
    asm volatile("redux.sync.add.s32 %0, %1, 0xffffffff;" : "=r"(sum) : "r"(lane));
    asm volatile("{ .reg .pred p; setp.lt.s32 p, %1, 4; vote.sync.ballot.b32 %0, p, 0xffffffff; }"
                 : "=r"(o[32 + lane])
                 : "r"(lane));
    asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; @p add.s32 %0, %0, 1000; }"
                 : "+r"(sum));
    o[lane] = other + sum;
}
// One block hands a number to the other, and each adds to a counter.
__global__ void order(int* data, int* flag, unsigned* counter, int* out) {
    if (blockIdx.x == 0) {
        data[0] = 42;
        asm volatile("st.release.gpu.global.s32 [%0], %1;" ::"l"(flag), "r"(1) : "memory");
    } else {
        int seen;
        do {
            asm volatile("ld.global.acquire.gpu.b32 %0, [%1];" : "=r"(seen) : "l"(flag) : "memory");
        } while (seen == 0);
        out[0] = data[0];
    }
    unsigned old;
    asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], 2;" : "=r"(old) : "l"(counter));
    asm volatile("atom.global.cas.b32 %0, [%1], 4, 5;" : "=r"(old) : "l"(counter));
    asm volatile("red.release.gpu.global.max.u32 [%0], 3;" ::"l"(counter) : "memory");
    __shared__ int mine;
    unsigned at = __cvta_generic_to_shared(&mine);
    asm volatile("st.volatile.shared.s32 [%0], %1;" ::"r"(at), "r"(8));
    asm volatile("atom.shared.exch.b32 %0, [%1], 9;" : "=r"(old) : "r"(at));
    out[1 + blockIdx.x] = old + mine;
}
// A warp turns a tile around; the others wait for it at an mbarrier, by its state and by parity.
__global__ void phases(int* out) {
    __shared__ unsigned long long barrier;
    __shared__ int tile[64];
    const unsigned at = __cvta_generic_to_shared(&barrier);
    if (threadIdx.x == 0)
        asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(at), "r"(64));
    __syncthreads();
    for (int phase = 0; phase < 3; ++phase) {
        unsigned long long state;
        tile[(threadIdx.x + 32) % 64] = threadIdx.x + phase;
        asm volatile("mbarrier.arrive.shared.b64 %0, [%1];" : "=l"(state) : "r"(at));
        asm volatile("{.reg .pred ok;\n WAIT: mbarrier.test_wait.shared.b64 ok, [%0], %1;\n"
                     "@!ok bra WAIT; }" ::"r"(at),
                     "l"(state));
        out[threadIdx.x] = tile[threadIdx.x];
        asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory");
        asm volatile("{\n.reg .pred p;\nL: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
                     "@p bra DONE;\nbra L;\nDONE:\n}" ::"r"(at),
                     "r"(1));
    }
}
int main() {
    unsigned *o, *counter;
    long long* w;
    int *l, *i;
    cudaMallocManaged(&o, 256);
    cudaMallocManaged(&w, 64);
    cudaMallocManaged(&l, 256);
    cudaMallocManaged(&i, 64);
    cudaMallocManaged(&counter, 4);
    *counter = i[1] = 0;
    integers<<<1, 1>>>(o, w);
    phases<<<1, 64>>>(l);
    printf("%d ", (cudaDeviceSynchronize(), l[3]));
    lanes<<<1, 32>>>(l);
    order<<<2, 1>>>(i, i + 1, counter, i + 2);
    cudaDeviceSynchronize();
    for (int n = 0; n < 20; ++n)
        printf(n < 19 ? "%x " : "%x\n", o[n]);
    printf("%lld %lld %lld\n%d %d %x\n", w[0], w[1], w[2], l[0], l[5], l[37]);
    printf("%d %d %d %u\n", i[2], i[3], i[4], *counter);
}
