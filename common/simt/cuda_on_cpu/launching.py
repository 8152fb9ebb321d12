"""A main for kernels, which says how they are launched, and with what."""

from cuda_on_cpu import compiling

# Behind the file, which it includes, so that templates and what is static can be launched, too. A
# main of the file's own has another name there.
MAIN = """\
#line 1 "<command-line>"
#define main main_of_the_file
#include "{name}"
#undef main
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace simt_cuda {{

/// Memory of the device for `count` elements, which nobody has written.
template <class T> T *buffer(size_t count) {{
    const std::string_view type = __PRETTY_FUNCTION__; // "... [with T = float; ...]"
    const size_t begin = type.find("T = ") + 4, end = type.find_first_of(";]", begin);
    const std::string name = "buffer<" + std::string(type.substr(begin, end - begin)) + ">(" +
                             std::to_string(count) + ")";
    void *data = nullptr;
    if (::flash::simt::cuda_malloc(&data, name.c_str(), count * sizeof(T)) != cudaSuccess) {{
        std::exit(2);
    }}
    return static_cast<T *>(data);
}}

/// And with a value in each, or what a function says for each index.
template <class T, class Value> T *buffer(size_t count, Value value) {{
    std::vector<T> host(count);
    for (size_t i = 0; i < count; ++i) {{
        if constexpr (std::is_invocable_v<Value, size_t>) {{
            host[i] = static_cast<T>(value(i));
        }} else {{
            host[i] = static_cast<T>(value);
        }}
    }}
    T *const data = buffer<T>(count);
    cudaMemcpy(data, host.data(), count * sizeof(T), cudaMemcpyHostToDevice);
    return data;
}}

}} // namespace simt_cuda

int main() {{
    using simt_cuda::buffer;
{statements}
#line 1 "<command-line>"
    return cudaDeviceSynchronize() == cudaSuccess ? 0 : 1;
}}
"""


def add_main(program: compiling.Program, statements: list[str]) -> None:
    """Takes the place of the program's only file, and launches its kernels."""
    (file,) = program.mains
    lines = "\n".join(f'#line 1 "--launch"\n{one};' for one in statements)
    main = file.with_name(f"{file.stem}-launched.cu")  # a name: it is written nowhere
    program.texts[main] = MAIN.format(name=file.name, statements=lines).encode()
    program.mains, program.called = [main], file
