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
                              cudaStream_t stream = nullptr) {
    [&]<size_t... i>(std::index_sequence<i...>) {
        const auto call = [=](auto... values) {
            on_stream(stream, [=] {
                launch(SharedLimit::as_it_is, kernel, Grid(grid, location), block, bytes,
                       values...);
                return cudaSuccess;
            });
        };
        call(*static_cast<std::remove_cvref_t<Parameters>*>(arguments[i])...);
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

// What a launch may say of itself beside its sizes. Blocks of one SM that begin early, priorities
// and the like change nothing here.
enum cudaLaunchAttributeID {
    cudaLaunchAttributeIgnore,
    cudaLaunchAttributeAccessPolicyWindow,
    cudaLaunchAttributeCooperative,
    cudaLaunchAttributeSynchronizationPolicy,
    cudaLaunchAttributeClusterDimension,
    cudaLaunchAttributeClusterSchedulingPolicyPreference,
    cudaLaunchAttributeProgrammaticStreamSerialization,
    cudaLaunchAttributeProgrammaticEvent,
    cudaLaunchAttributePriority,
    cudaLaunchAttributePreferredSharedMemoryCarveout = 14
};
union cudaLaunchAttributeValue {
    char pad[64];
    int cooperative;
    struct {
        unsigned x, y, z;
    } clusterDim;
    int programmaticStreamSerializationAllowed;
    int priority;
    unsigned sharedMemCarveout;
};
struct cudaLaunchAttribute {
    cudaLaunchAttributeID id;
    cudaLaunchAttributeValue val;
};
struct cudaLaunchConfig_t {
    dim3 gridDim_, blockDim_; // as members of these names are called when a file is rewritten
    size_t dynamicSmemBytes;
    cudaStream_t stream;
    cudaLaunchAttribute* attrs;
    unsigned numAttrs;
};

namespace flash::simt {

/// Of one attribute: 1 where a launch has it switched on.
bool has_attribute(const cudaLaunchConfig_t& config, cudaLaunchAttributeID id);
/// Throws Unsupported where it asks for clusters of several blocks.
void require_no_clusters(const cudaLaunchConfig_t& config, SourceLocation location);

/// A configuration, and where the launch stands that has it.
struct LaunchConfig {
    const cudaLaunchConfig_t* config;
    SourceLocation location;
    LaunchConfig(const cudaLaunchConfig_t* given, SourceLocation place = SourceLocation::here())
        : config(given), location(place) {}
};

} // namespace flash::simt

template <class... Parameters>
cudaError_t cudaLaunchKernelEx(flash::simt::LaunchConfig given, void (*kernel)(Parameters...),
                               std::type_identity_t<Parameters>... arguments) {
    const cudaLaunchConfig_t& config = *given.config;
    flash::simt::require_no_clusters(config, given.location);
    void* addresses[sizeof...(Parameters) + 1] = {
        const_cast<void*>(static_cast<const volatile void*>(&arguments))...};
    const auto launch = flash::simt::has_attribute(config, cudaLaunchAttributeCooperative)
                            ? flash::simt::launch_cooperatively<Parameters...>
                            : flash::simt::launch_by_address<Parameters...>;
    return launch(given.location, kernel, config.gridDim_, config.blockDim_, addresses,
                  config.dynamicSmemBytes, config.stream);
}

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
