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

int flash::multiprocessors() { return simt::sms; }

int flash::resident_blocks(bool for_hopper, int threads, size_t smem_bytes) {
    return simt::resident_blocks(for_hopper, threads, smem_bytes);
}
