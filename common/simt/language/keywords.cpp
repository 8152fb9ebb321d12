#include <algorithm>

#include "common/simt/language/keywords.hpp"

#undef threadIdx
#undef blockIdx
#undef blockDim
#undef gridDim
#include "common/simt/language/launch.hpp"
#include "common/simt/machine/block.hpp"
#include "common/simt/machine/simt_options.hpp"

namespace flash::simt {

uint3 thread_index() noexcept { return current_block().current().index; }
uint3 block_index() noexcept { return current_block().index(); }
dim3 block_size() noexcept { return current_block().launch().block; }
dim3 grid_size() noexcept { return current_block().launch().grid; }

void* dynamic_shared_memory() { return current_block().shared().dynamic(); }

} // namespace flash::simt

size_t flash::max_shared_memory_per_block() { return simt::shared_memory_limit(false); }

int flash::resident_blocks(bool for_hopper, int threads, size_t smem_bytes) {
    constexpr int sms = 4;
    constexpr int threads_per_sm = 2048;
    // the system keeps 1 KiB of each block's part, so the largest block leaves that
    constexpr size_t own = 1 << 10;
    const size_t shared = simt::shared_memory_limit(for_hopper) + own;
    return sms * std::min(threads_per_sm / threads, static_cast<int>(shared / (smem_bytes + own)));
}
