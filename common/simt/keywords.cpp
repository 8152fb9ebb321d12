#include "common/simt/keywords.hpp"

#undef threadIdx
#undef blockIdx
#undef blockDim
#undef gridDim
#include "common/simt/block.hpp"

namespace flash::simt {

uint3 thread_index() noexcept { return current_block().current().index; }
uint3 block_index() noexcept { return current_block().index(); }
dim3 block_size() noexcept { return current_block().launch().block; }
dim3 grid_size() noexcept { return current_block().launch().grid; }

} // namespace flash::simt
