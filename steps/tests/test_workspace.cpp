// A call of a CUDA rung knows nothing but its arguments: what its workspace held before does not
// matter, and neither do other calls, each with a workspace of its own.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_all.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <algorithm>
#include <iterator>
#include <list>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "common/cuda/launch/device_buffer.hpp"
#include "common/cuda/launch/workspace.hpp"
#include "common/rung_function.hpp"
#include "common/types.hpp"
#include "steps/11_cuda_naive/cuda_naive.hpp"
#include "steps/12_flash_attention_1/flash_attention_1.hpp"
#include "steps/33_persistent_blocks/persistent_blocks.hpp"
#include "steps/34_overlap/overlap.hpp"
#include "steps/35_window/window.hpp"
#include "steps/36_packed_sequences/packed_sequences.hpp"
#include "steps/42_backward_two_kernels/backward_two_kernels.hpp"
#include "steps/43_backward_one_kernel/backward_one_kernel.hpp"
#include "steps/44_backward_roles/backward_roles.hpp"
#include "steps/45_backward_wgmma/backward_wgmma.hpp"
#include "steps/46_backward_late_dq/backward_late_dq.hpp"
#include "steps/46a_backward_three_roles/backward_three_roles.hpp"
#include "steps/47_backward_ordered/backward_ordered.hpp"
#include "steps/48_backward_window/backward_window.hpp"
#include "steps/49_backward_packed/backward_packed.hpp"
#include "steps/52_split_kv/split_kv.hpp"
#include "steps/52a_page_table/page_table.hpp"
#include "steps/53_paged_kv/paged_kv.hpp"

namespace {

using flash::Bfloat16;
using flash::DeviceBuffer;
using flash::Problem;

template <class T> std::vector<T> random_values(int64_t size, unsigned seed) {
    std::mt19937 generator(seed);
    std::normal_distribution<float> normal;
    std::vector<T> values(static_cast<size_t>(size));
    std::ranges::generate(values, [&] { return flash::from_float<T>(normal(generator)); });
    return values;
}

template <class T> class Tensor {
  public:
    explicit Tensor(const std::vector<T>& values)
        : buffer_(static_cast<int64_t>(values.size()), "a tensor") {
        std::ranges::copy(values, buffer_.data()); // the host can reach it here
        size_ = values.size();
    }
    T* data() const { return buffer_.data(); }
    std::vector<T> values() const { return {data(), data() + size_}; }

  private:
    DeviceBuffer<T> buffer_;
    size_t size_;
};

/// The same tensors as a line of two sequences: they have its sizes, and all that these tests ask
/// for is numbers that are always the same.
struct TwoOnALine {
    Problem p;
    Tensor<int> q_ends, kv_ends;

    explicit TwoOnALine(const Problem& one)
        : p(one), q_ends({0, 3, static_cast<int>(p.q_len)}),
          kv_ends({0, 40, static_cast<int>(p.kv_len)}) {
        p.batch = 2;
    }
    flash::PackedSequences line() const {
        return {p.q_len, p.kv_len, q_ends.data(), kv_ends.data()};
    }
};
void on_a_line(const Problem& p, const Bfloat16* Q, const Bfloat16* K, const Bfloat16* V,
               Bfloat16* O, float* LSE, void* workspace) {
    const TwoOnALine two(p);
    packed_sequences::attention<Bfloat16>(two.p, two.line(), Q, K, V, O, LSE, workspace);
}
void gradients_on_a_line(const Problem& p, const Bfloat16* Q, const Bfloat16* K, const Bfloat16* V,
                         const Bfloat16* O, const float* LSE, const Bfloat16* dO, Bfloat16* dQ,
                         Bfloat16* dK, Bfloat16* dV, void* workspace) {
    const TwoOnALine two(p);
    backward_packed::attention_backward<Bfloat16>(two.p, two.line(), Q, K, V, O, LSE, dO, dQ, dK,
                                                  dV, workspace);
}
int64_t bytes_of_gradients_on_a_line(const Problem& p) {
    const TwoOnALine two(p);
    return backward_packed::workspace_bytes(two.p, two.line());
}

struct Called {
    std::string name;
    int64_t (*workspace_bytes)(const Problem&);
    flash::Forward<float> fp32 = {};
    flash::Forward<Bfloat16> bf16 = {};
    flash::Backward<Bfloat16> backward = {};
    bool dQ_has_an_order = true;
    int64_t heads = 30, q_len = 40, head_dim = 64;
};
const Called rungs[] = {
    {.name = "cuda_naive",
     .workspace_bytes = cuda_naive::workspace_bytes,
     .fp32 = cuda_naive::attention},
    {.name = "flash_attention_1",
     .workspace_bytes = flash_attention_1::workspace_bytes,
     .fp32 = flash_attention_1::attention},
    {.name = "persistent_blocks",
     .workspace_bytes = persistent_blocks::workspace_bytes,
     .bf16 = persistent_blocks::attention<Bfloat16>},
    {.name = "overlap",
     .workspace_bytes = overlap::workspace_bytes,
     .bf16 = overlap::attention<Bfloat16>},
    {.name = "window",
     .workspace_bytes = window::workspace_bytes,
     .bf16 = window::attention<Bfloat16>},
    {.name = "packed_sequences",
     .workspace_bytes = packed_sequences::workspace_bytes,
     .bf16 = on_a_line},
    {.name = "backward_two_kernels",
     .workspace_bytes = backward_two_kernels::workspace_bytes,
     .backward = backward_two_kernels::attention_backward<Bfloat16>},
    {.name = "backward_one_kernel",
     .workspace_bytes = backward_one_kernel::workspace_bytes,
     .backward = backward_one_kernel::attention_backward<Bfloat16>,
     .dQ_has_an_order = false},
    {.name = "backward_roles",
     .workspace_bytes = backward_roles::workspace_bytes,
     .backward = backward_roles::attention_backward<Bfloat16>,
     .dQ_has_an_order = false},
    {.name = "backward_wgmma",
     .workspace_bytes = backward_wgmma::workspace_bytes,
     .backward = backward_wgmma::attention_backward<Bfloat16>,
     .dQ_has_an_order = false},
    {.name = "backward_late_dq",
     .workspace_bytes = backward_late_dq::workspace_bytes,
     .backward = backward_late_dq::attention_backward<Bfloat16>,
     .dQ_has_an_order = false},
    {.name = "backward_three_roles",
     .workspace_bytes = backward_three_roles::workspace_bytes,
     .backward = backward_three_roles::attention_backward<Bfloat16>,
     .dQ_has_an_order = false,
     .head_dim = 256},
    {.name = "backward_ordered",
     .workspace_bytes = backward_ordered::workspace_bytes,
     .backward = backward_ordered::attention_backward<Bfloat16>},
    {.name = "backward_window",
     .workspace_bytes = backward_window::workspace_bytes,
     .backward = backward_window::attention_backward<Bfloat16>,
     .dQ_has_an_order = false},
    {.name = "backward_packed",
     .workspace_bytes = bytes_of_gradients_on_a_line,
     .backward = gradients_on_a_line,
     .dQ_has_an_order = false},
    {.name = "split_kv",
     .workspace_bytes = split_kv::workspace_bytes,
     .bf16 = split_kv::attention<Bfloat16>,
     .heads = 4, // with few rows, which the GPU's SMs share
     .q_len = 1},
    {.name = "page_table",
     .workspace_bytes = page_table::workspace_bytes,
     .bf16 = page_table::attention<Bfloat16>,
     .heads = 4,
     .q_len = 1},
    {.name = "paged_kv",
     .workspace_bytes = paged_kv::workspace_bytes,
     .bf16 = paged_kv::attention<Bfloat16>,
     .heads = 4,
     .q_len = 1},
};

/// One call, with tensors and a workspace of its own.
struct Call {
    Called rung;
    Problem p;
    unsigned seed;
    DeviceBuffer<char> workspace;

    Call(const Called& called, unsigned seed_, char garbage)
        : rung(called), p{.heads = called.heads,
                          .q_len = called.q_len,
                          .kv_len = 70,
                          .head_dim = called.head_dim,
                          .scale = 0.125f},
          seed(seed_), workspace(called.workspace_bytes(p), "the workspace") {
        std::fill_n(workspace.data(), rung.workspace_bytes(p), garbage);
    }

    template <class T> std::vector<float> forward(flash::Forward<T> attention) const {
        const Tensor Q(random_values<T>(p.q_size(), seed)),
            K(random_values<T>(p.kv_size(), seed + 1)), V(random_values<T>(p.kv_size(), seed + 2)),
            O(std::vector<T>(static_cast<size_t>(p.q_size())));
        const Tensor LSE(std::vector<float>(static_cast<size_t>(p.lse_size())));
        attention(p, Q.data(), K.data(), V.data(), O.data(), LSE.data(), workspace.data());
        return joined(LSE.values(), O.values());
    }

    std::vector<float> gradients() const {
        using T = Bfloat16;
        const Tensor Q(random_values<T>(p.q_size(), seed)),
            K(random_values<T>(p.kv_size(), seed + 1)), V(random_values<T>(p.kv_size(), seed + 2)),
            O(random_values<T>(p.q_size(), seed + 3)), dO(random_values<T>(p.q_size(), seed + 4)),
            dQ(std::vector<T>(static_cast<size_t>(p.q_size()))),
            dK(std::vector<T>(static_cast<size_t>(p.kv_size()))),
            dV(std::vector<T>(static_cast<size_t>(p.kv_size())));
        const Tensor LSE(std::vector<float>(static_cast<size_t>(p.lse_size()), 20.0f));
        rung.backward(p, Q.data(), K.data(), V.data(), O.data(), LSE.data(), dO.data(), dQ.data(),
                      dK.data(), dV.data(), workspace.data());
        const std::vector<float> of_keys = joined(joined({}, dK.values()), dV.values());
        return rung.dQ_has_an_order ? joined(of_keys, dQ.values()) : of_keys;
    }

    /// All that is the same in every run.
    std::vector<float> result() const {
        return rung.backward ? gradients() : rung.fp32 ? forward(rung.fp32) : forward(rung.bf16);
    }

    template <class T>
    static std::vector<float> joined(std::vector<float> all, const std::vector<T>& more) {
        std::ranges::transform(more, std::back_inserter(all),
                               [](T x) { return flash::to_float(x); });
        return all;
    }
};

} // namespace

TEST_CASE("what a workspace held before does not matter") {
    const Called& rung = GENERATE(from_range(std::begin(rungs), std::end(rungs)));
    CAPTURE(rung.name);
    const std::vector<float> result = Call(rung, 1, '\x00').result();
    CHECK(Call(rung, 1, '\x01').result() == result);
    CHECK(Call(rung, 1, '\x7f').result() == result);
    CHECK(Call(rung, 1, '\xff').result() == result);
    CHECK(Call(rung, 9, '\x00').result() != result); // or nothing was compared
}

TEST_CASE(
    "two calls at once, each with its own workspace, and one call after another in the same one") {
    const Called& rung = GENERATE(from_range(std::begin(rungs), std::end(rungs)));
    CAPTURE(rung.name);
    const std::vector<float> first = Call(rung, 1, '\x7f').result(),
                             second = Call(rung, 9, '\x7f').result();
    const Call one(rung, 1, '\x01'), other(rung, 9, '\xff');
    for (int repetition = 0; repetition < 3; ++repetition) {
        std::vector<float> of_one, of_other;
        {
            const std::jthread beside([&] { of_one = one.result(); });
            of_other = other.result();
        }
        CHECK(of_one == first);
        CHECK(of_other == second);
    }
}

TEST_CASE("a workspace that is missing, or not aligned, is refused") {
    using Catch::Matchers::ContainsSubstring;
    const DeviceBuffer<char> memory(1000, "the workspace");
    CHECK_THROWS_WITH(flash::Workspace(nullptr),
                      ContainsSubstring("a workspace is needed: workspace_bytes(problem)"));
    CHECK_THROWS_WITH(flash::Workspace(memory.data() + 16),
                      ContainsSubstring("at a multiple of 256"));
}
