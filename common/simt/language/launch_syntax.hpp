// What scripts/simt makes of those two spellings of CUDA that are not C++:
//
// kernel<<<grid, block, bytes, stream>>>(arguments)
//     flash::simt::configured(kernel, grid, block, bytes, stream)(arguments)
// or, where the kernel has default arguments, of which only a call of a function like it knows,
//     flash::simt::Configuration(grid, block, bytes, stream).call(call_of_kernel(arguments))
// extern __shared__ float tile[];
//     float *tile = flash::simt::DynamicShared();
#pragma once

#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>

#include "common/simt/language/launch.hpp"
#include "common/simt/language/shared_addresses.hpp"
#include "common/simt/language/streams.hpp"

namespace flash::simt {

/// A launch copies its arguments, but not what a parameter refers to.
template <class Parameter> auto passed(std::remove_reference_t<Parameter>& argument) {
    if constexpr (std::is_reference_v<Parameter>) {
        return std::ref(argument);
    } else {
        return argument;
    }
}

/// A kernel and all of its arguments, as its parameters.
template <class... Parameters>
std::pair<void (*)(Parameters...), std::tuple<Parameters...>>
packed(void (*kernel)(Parameters...), std::type_identity_t<Parameters>... arguments) {
    return {kernel, std::tuple<Parameters...>(arguments...)};
}

/// What stands between <<< and >>>.
struct Configuration {
    dim3 grid, block;
    size_t smem_bytes;
    SourceLocation location;
    const void* stream;
    Configuration(dim3 blocks, dim3 threads, size_t bytes = 0, const void* of = nullptr,
                  SourceLocation place = SourceLocation::here())
        : grid(blocks), block(threads), smem_bytes(bytes), location(place), stream(of) {}

    /// Launches a kernel, now or with the graph that captures the stream.
    template <class... Parameters, class... Arguments>
    void launch(void (*kernel)(Parameters...), Arguments... arguments) const {
        on_stream(stream, [=, own = *this]() mutable {
            simt::launch(SharedLimit::as_it_is, kernel, Grid(own.grid, own.location), own.block,
                         own.smem_bytes, arguments...);
            return cudaSuccess;
        });
    }

    /// For `kernel->*Configuration(...)(arguments...)`.
    template <class... Arguments> auto operator()(Arguments&&... arguments) const {
        return std::pair(*this, std::forward_as_tuple(std::forward<Arguments>(arguments)...));
    }

    /// Launches a kernel with all of its arguments.
    template <class... Parameters>
    void call(std::pair<void (*)(Parameters...), std::tuple<Parameters...>> whole) const {
        std::apply(
            [&](auto&... arguments) { launch(whole.first, passed<Parameters>(arguments)...); },
            whole.second);
    }
};

/// A kernel that waits for its arguments. They become its parameters on the host, as in a call.
template <class... Parameters> struct Configured {
    void (*kernel)(Parameters...);
    Configuration configuration;

    void operator()(std::type_identity_t<Parameters>... arguments) const {
        configuration.launch(kernel, passed<Parameters>(arguments)...);
    }
};

template <class... Parameters>
Configured<Parameters...> configured(void (*kernel)(Parameters...), dim3 grid, dim3 block,
                                     size_t smem_bytes = 0, const void* stream = nullptr,
                                     SourceLocation location = SourceLocation::here()) {
    return {kernel, Configuration(grid, block, smem_bytes, stream, location)};
}

/// A launch that the grammar did not understand, since a macro holds a part of it.
template <class... Parameters, class... Arguments>
void operator->*(void (*kernel)(Parameters...),
                 const std::pair<Configuration, std::tuple<Arguments...>>& call) {
    std::apply(Configured<Parameters...>{kernel, call.first}, call.second);
}

/// A template of kernels, of which the arguments' types choose one: `choose(arguments...)` has the
/// type of an integral constant, its pointer. Where arguments hold lambda expressions, which have
/// another type each time they are written.
template <class Choose, class... Configuring>
auto configured_by_arguments(Choose choose, const Configuring&... configuring) {
    return [=]<class... Arguments>(Arguments&&... arguments) {
        constexpr auto kernel = decltype(choose(std::forward<Arguments>(arguments)...))::value;
        configured(kernel, configuring...)(std::forward<Arguments>(arguments)...);
    };
}

/// The block's dynamic shared memory, as what is declared for it.
struct DynamicShared {
    template <class T> operator T*() const { return dynamic_shared<T>(); }
    template <class T> operator T&() const { return *dynamic_shared<T>(); }
};

/// The same at file scope, where it is no thread's yet.
template <class T> struct DynamicSharedArray {
    operator T*() const { return dynamic_shared<T>(); }
    template <class Other> explicit operator Other*() const {
        return reinterpret_cast<Other*>(dynamic_shared<T>());
    }
    T& operator[](auto index) const { return dynamic_shared<T>()[index]; }
};

/// Names that are not declared here stand where something is not supported.
namespace not_supported {}

} // namespace flash::simt
