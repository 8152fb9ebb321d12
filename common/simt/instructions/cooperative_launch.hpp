// Kernels that are launched by their address, and the meeting of all blocks of a grid, for which
// such a launch is needed.
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

#include "common/simt/language/launch.hpp"
#include "common/simt/language/occupancy.hpp"
#include "common/simt/language/streams.hpp"

namespace flash::simt {

/// While it lives, blocks of a launch can meet.
class MeetingOfBlocks {
  public:
    MeetingOfBlocks();
    ~MeetingOfBlocks();
    MeetingOfBlocks(const MeetingOfBlocks&) = delete;
    MeetingOfBlocks& operator=(const MeetingOfBlocks&) = delete;
};

/// Whether the launch at work is one whose blocks can meet.
bool blocks_can_meet();

/// All threads of all blocks come here before one goes on.
void meet_blocks(SourceLocation location);

/// kernel<<<grid, block, bytes>>> with the arguments at these addresses.
template <class... Parameters>
cudaError_t launch_by_address(SourceLocation location, void (*kernel)(Parameters...), dim3 grid,
                              dim3 block, void** arguments, size_t bytes = 0,
                              cudaStream_t = nullptr) {
    [&]<size_t... i>(std::index_sequence<i...>) {
        launch(SharedLimit::as_it_is, kernel, Grid(grid, location), block, bytes,
               *static_cast<std::remove_cvref_t<Parameters>*>(arguments[i])...);
    }
    (std::index_sequence_for<Parameters...>());
    return cudaSuccess;
}

template <class... Parameters>
cudaError_t launch_cooperatively(SourceLocation location, void (*kernel)(Parameters...), dim3 grid,
                                 dim3 block, void** arguments, size_t bytes = 0,
                                 cudaStream_t stream = nullptr) {
    const int fit = blocks_on_sm(address_of(kernel), static_cast<int>(volume(block)), bytes) * sms;
    if (volume(grid) > static_cast<unsigned long long>(fit)) {
        return noted(cudaErrorCooperativeLaunchTooLarge);
    }
    const MeetingOfBlocks meeting;
    return launch_by_address(location, kernel, grid, block, arguments, bytes, stream);
}

} // namespace flash::simt

// Programs write (void*)kernel, and with the cast the kernel's parameters would be lost: these take
// the cast away.
// clang-format off
#define FLASH_SIMT_FIRST(first, ...) first
#define FLASH_SIMT_SECOND(first, second, ...) second
#define FLASH_SIMT_SECOND_OF(...) FLASH_SIMT_SECOND(__VA_ARGS__)
#define FLASH_SIMT_EXPANDED_SECOND_OF(...) FLASH_SIMT_SECOND_OF(__VA_ARGS__)
#define FLASH_SIMT_PARENTHESES(...) , FLASH_SIMT_WITHOUT_CAST,
#define FLASH_SIMT_AS_IT_IS(...) __VA_ARGS__
#define FLASH_SIMT_DROP(...)
#define FLASH_SIMT_WITHOUT_CAST(...) FLASH_SIMT_DROP __VA_ARGS__
#define FLASH_SIMT_UNCAST(...)                                                                     \
    FLASH_SIMT_EXPANDED_SECOND_OF(FLASH_SIMT_PARENTHESES FLASH_SIMT_FIRST(__VA_ARGS__, ),          \
                                  FLASH_SIMT_AS_IT_IS, )(__VA_ARGS__)
// clang-format on
#define cudaLaunchKernel(...)                                                                      \
    ::flash::simt::launch_by_address(::flash::simt::SourceLocation::here(),                        \
                                     FLASH_SIMT_UNCAST(__VA_ARGS__))
#define cudaLaunchCooperativeKernel(...)                                                           \
    ::flash::simt::launch_cooperatively(::flash::simt::SourceLocation::here(),                     \
                                        FLASH_SIMT_UNCAST(__VA_ARGS__))
