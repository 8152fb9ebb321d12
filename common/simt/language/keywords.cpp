#include "common/simt/language/keywords.hpp"

#undef threadIdx
#undef blockIdx
#undef blockDim
#undef gridDim
#include <string>

#include "common/simt/language/launch.hpp"
#include "common/simt/machine/block.hpp"
#include "common/simt/machine/host_misuse.hpp"
#include "common/simt/machine/simt_options.hpp"
#include "common/simt/machine/symbols.hpp"

namespace flash::simt {
namespace {

/// The block that runs here. A kernel that the host calls like any function has none.
const Block& block_of(const char* variable, const void* return_address) noexcept {
    if (running_block == nullptr) [[unlikely]] {
        end_program(
            host_misuse("the host",
                        std::string("it reads ") + variable +
                            ", which threads of a kernel have; a kernel is launched by <<<>>>",
                        LocationId::of_code(return_address, executable().load_address)));
    }
    return *running_block;
}

} // namespace

bool runs_on_device() noexcept { return running_block != nullptr; }

unsigned long long thread_index() noexcept {
    return pack_index(block_of("threadIdx", __builtin_return_address(0)).current().index);
}
unsigned long long block_index() noexcept {
    return pack_index(block_of("blockIdx", __builtin_return_address(0)).index());
}
unsigned long long block_size() noexcept {
    return pack_index(block_of("blockDim", __builtin_return_address(0)).launch().block);
}
unsigned long long grid_size() noexcept {
    return pack_index(block_of("gridDim", __builtin_return_address(0)).launch().grid);
}

void* dynamic_shared_memory() { return current_block().shared().dynamic(); }

} // namespace flash::simt

size_t flash::max_shared_memory_per_block() { return simt::shared_memory_limit(false); }

int flash::multiprocessors() { return simt::sms; }

int flash::resident_blocks(bool for_hopper, int threads, size_t smem_bytes) {
    return simt::resident_blocks(for_hopper, threads, smem_bytes);
}
