// Starting a kernel on the CPU: the twin of common/cuda/launch/launch.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>

#include "common/simt/machine/grid.hpp"

namespace flash {

namespace simt {

/// The current block's dynamic shared memory.
void* dynamic_shared_memory();

/// Whether a kernel with these parameters is for Hopper: no older GPU knows tensor maps. They or
/// structures of them are all that is aligned to 64 bytes.
template <class... Parameters>
inline constexpr bool is_for_hopper = ((alignof(Parameters) >= 64) || ...);

/// A kernel, and what it is launched with.
template <class... Parameters> struct Prepared {
    void (*kernel)(Parameters...);
    std::tuple<Parameters...> arguments;

    /// Unobserved: that a GPU fetches its parameters is no access of the kernel's.
    template <size_t... i>
    __attribute__((no_sanitize("thread"))) void operator()(std::index_sequence<i...>) const {
        kernel(std::get<i>(arguments)...);
    }
};

} // namespace simt

/// Grid of a launch, with the place in the source that asked for it: converting a dim3 records
/// where that happens.
struct Grid {
    dim3 size;
    simt::SourceLocation where;
    Grid(dim3 blocks, simt::SourceLocation place = simt::SourceLocation::here())
        : size(blocks), where(place) {}
    Grid(unsigned blocks, simt::SourceLocation place = simt::SourceLocation::here())
        : size(blocks), where(place) {}
};

namespace simt {

/// Of dynamic shared memory: flash::launch raises it, <<<>>> does not.
enum class SharedLimit { as_it_is, raised };

template <class... Parameters, class... Arguments>
void launch(SharedLimit limit, void (*kernel)(Parameters...), Grid grid, dim3 block,
            size_t smem_bytes, Arguments... arguments) {
    using Whole = Prepared<Parameters...>;
    const Whole call{kernel, std::tuple<Parameters...>(arguments...)};
    run({reinterpret_cast<const void*>(kernel), grid.size, block, smem_bytes, grid.where,
         [](const void* context) {
             (*static_cast<const Whole*>(context))(std::index_sequence_for<Parameters...>());
         },
         &call, sizeof call, is_for_hopper<Parameters...>, limit == SharedLimit::raised});
}

} // namespace simt

/// kernel<<<grid, block, smem_bytes>>>(arguments...)
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), Grid grid, dim3 block, size_t smem_bytes,
            Arguments... arguments) {
    simt::launch(simt::SharedLimit::raised, kernel, grid, block, smem_bytes, arguments...);
}

/// The most shared memory that a block may have, in bytes: what FLASH_SIMT_SHARED_KIB says. (Blocks
/// of a kernel for Hopper may have 227 KiB in any case.)
size_t max_shared_memory_per_block();

/// How many SMs the emulated GPU has.
int multiprocessors();

/// How many blocks of a launch a GPU would run at the same time. The one that is emulated has 4
/// SMs, so that small problems have several waves, on each of which a block may have what
/// FLASH_SIMT_SHARED_KIB says. Registers do not count. (Here each core runs one block.)
int resident_blocks(bool for_hopper, int threads, size_t smem_bytes);
template <class... Parameters>
int resident_blocks(void (*)(Parameters...), int threads, size_t smem_bytes) {
    return resident_blocks(simt::is_for_hopper<Parameters...>, threads, smem_bytes);
}

void clear_bytes(void* memory, size_t bytes);

/// Sets `size` numbers in device memory to zero.
template <class T> void clear(T* numbers, int64_t size) {
    clear_bytes(numbers, static_cast<size_t>(size) * sizeof(T));
}

/// The block's dynamic shared memory: `smem_bytes` of the launch, aligned to 1024 bytes, not
/// initialised.
template <class T> T* dynamic_shared() { return static_cast<T*>(simt::dynamic_shared_memory()); }

} // namespace flash
