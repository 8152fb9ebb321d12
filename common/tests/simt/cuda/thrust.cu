// The usual calls of Thrust: vectors on both sides, algorithms with and without policies, fancy
// iterators, and functors that touch memory of the device.
#include <cstdio>
#include <thrust/copy.h>
#include <thrust/device_ptr.h>
#include <thrust/device_vector.h>
#include <thrust/execution_policy.h>
#include <thrust/extrema.h>
#include <thrust/functional.h>
#include <thrust/host_vector.h>
#include <thrust/inner_product.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/zip_iterator.h>
#include <thrust/reduce.h>
#include <thrust/scan.h>
#include <thrust/sequence.h>
#include <thrust/sort.h>
#include <thrust/transform.h>
#include <thrust/transform_reduce.h>
struct Saxpy {
    float a;
    __host__ __device__ float operator()(float x, float y) const { return a * x + y; }
};
struct IsEven {
    __host__ __device__ bool operator()(int x) const { return x % 2 == 0; }
};
struct Sum {
    template <class Tuple> __host__ __device__ void operator()(Tuple t) const {
        thrust::get<2>(t) = thrust::get<0>(t) + thrust::get<1>(t);
    }
};
__global__ void twice(int* x, int n) {
    if (threadIdx.x < n)
        x[threadIdx.x] *= 2;
}
int main() {
    const int n = 100;
    thrust::host_vector<int> host(n);
    for (int i = 0; i < n; ++i)
        host[i] = (i * 37) % n;
    thrust::device_vector<int> keys = host, values(n);
    thrust::sequence(values.begin(), values.end());
    thrust::sort_by_key(keys.begin(), keys.end(), values.begin());
    std::printf("%d %d %d\n", (int)keys[3], (int)values[3], int(keys.size()));
    twice<<<1, 128>>>(thrust::raw_pointer_cast(keys.data()), n);
    std::printf("%d\n", thrust::reduce(keys.begin(), keys.end()));
    std::printf("%d\n", thrust::reduce(keys.begin(), keys.end(), -1, thrust::maximum<int>()));
    const int most = thrust::max_element(values.begin(), values.end()) - values.begin();
    std::printf("%d\n", (int)values[most]);
    thrust::device_vector<float> x(n, 2.0f), y(n), z(n);
    thrust::transform(x.begin(), x.end(), y.begin(), y.begin(), Saxpy{3});
    thrust::for_each(thrust::make_zip_iterator(thrust::make_tuple(x.begin(), y.begin(), z.begin())),
                     thrust::make_zip_iterator(thrust::make_tuple(x.end(), y.end(), z.end())),
                     Sum());
    std::printf("%g %g\n", (float)z[n - 1],
                thrust::inner_product(x.begin(), x.end(), y.begin(), 0.0f));
    float* raw;
    cudaMalloc(&raw, n * sizeof(float));
    thrust::device_ptr<float> at(raw);
    thrust::fill(at, at + n, 1.0f);
    thrust::inclusive_scan(thrust::device, raw, raw + n, raw);
    thrust::exclusive_scan(at, at + n, z.begin());
    std::printf("%g %g\n", (float)at[n - 1], (float)z[n - 1]);
    thrust::for_each(thrust::counting_iterator<int>(0), thrust::counting_iterator<int>(3),
                     [] __device__(int) {});
    thrust::for_each_n(thrust::device, thrust::make_counting_iterator(0), n + MORE,
                       [=] __device__(int i) { raw[i] += i; });
    thrust::device_vector<int> even(n);
    const auto end = thrust::copy_if(values.begin(), values.end(), even.begin(), IsEven());
    even.erase(end, even.end());
    std::printf("%zu %d\n", even.size(), (int)thrust::count_if(keys.begin(), keys.end(), IsEven()));
    thrust::host_vector<float> back(n);
    thrust::copy(at, at + n, back.begin());
    using namespace thrust::placeholders;
    thrust::transform(x.begin(), x.end(), x.begin(), 2 * _1 + 1);
    std::printf("%g %g %g\n", back[n - 1], (float)x[0],
                thrust::transform_reduce(x.begin(), x.end(), thrust::negate<float>(), 0.0f,
                                         thrust::plus<float>()));
    cudaStream_t own;
    cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking);
    thrust::fill(thrust::cuda::par.on(own), raw, raw + n, 3.0f);
    std::printf("%g\n", thrust::reduce(at, at + n));
    cudaFree(raw);
}
