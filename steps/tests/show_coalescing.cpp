// Prints the sectors of cuda_naive's products, and of the same in column order. Its chapter quotes
// it; test_cuda_counters.cpp asserts it.
#include <cstdio>

#include "steps/11_cuda_naive/cuda_naive.hpp"
#include "steps/tests/column_order.hpp"
#include "steps/tests/count_kernels.hpp"

int main() {
    using namespace flash::tests;
    const flash::Problem p{.q_len = 1024, .kv_len = 1024, .head_dim = 64};
    std::printf("sectors per request, one head, N = 1024, d = 64\n%-10s %-14s %10s %10s\n",
                "kernel", "access", "rows", "columns");
    const auto rows = count_kernels(cuda_naive::attention, p);
    const auto columns = count_kernels(column_order::products, p);
    const auto print = [](const char* kernel, const char* access,
                          const flash::simt::GlobalTraffic& in_rows,
                          const flash::simt::GlobalTraffic& in_columns) {
        const auto each = [](const flash::simt::GlobalTraffic& traffic) {
            return static_cast<double>(traffic.sectors) / static_cast<double>(traffic.requests);
        };
        std::printf("%-10s %-14s %10.1f %10.1f\n", kernel, access, each(in_rows), each(in_columns));
    };
    print("scores", "loads of Q", buffer(rows[0], "Q").load, buffer(columns[0], "Q").load);
    print("scores", "loads of K", buffer(rows[0], "K").load, buffer(columns[0], "K").load);
    print("scores", "stores of S", buffer(rows[0], "S").store, buffer(columns[0], "S").store);
    print("outputs", "loads of P", buffer(rows[2], "S").load, buffer(columns[1], "S").load);
    print("outputs", "loads of V", buffer(rows[2], "V").load, buffer(columns[1], "V").load);
    print("outputs", "stores of O", buffer(rows[2], "O").store, buffer(columns[1], "O").store);
    return 0;
}
