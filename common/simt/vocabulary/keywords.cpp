#include "common/simt/vocabulary/keywords.hpp"

#undef threadIdx
#undef blockIdx
#undef blockDim
#undef gridDim
#include "common/simt/machine/block.hpp"
#include "common/simt/machine/simt_options.hpp"
#include "common/simt/vocabulary/launch.hpp"

namespace flash::simt {

uint3 thread_index() noexcept { return current_block().current().index; }
uint3 block_index() noexcept { return current_block().index(); }
dim3 block_size() noexcept { return current_block().launch().block; }
dim3 grid_size() noexcept { return current_block().launch().grid; }

void* dynamic_shared_memory() { return current_block().shared().dynamic(); }

} // namespace flash::simt

int flash::blocks_per_sm(size_t smem_bytes) {
    constexpr size_t own = 1 << 10; // the system keeps 1 KiB of each block's part, so the largest block leaves that
    return static_cast<int>(((static_cast<size_t>(simt::options().shared_kib) << 10) + own) / (smem_bytes + own));
}
