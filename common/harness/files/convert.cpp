#include "common/harness/files/convert.hpp"

#include <cstring>

namespace flash {
namespace {

constexpr size_t large = 1 << 22; // elements that are worth several threads

template <class T> void write_elements(std::span<const float> values, std::byte* to) {
#pragma omp parallel for if (values.size() > large)
    for (size_t i = 0; i < values.size(); ++i) {
        const T element = from_float<T>(values[i]);
        std::memcpy(to + i * sizeof element, &element, sizeof element);
    }
}

template <class T> void read_elements(const std::byte* from, std::span<float> values) {
#pragma omp parallel for if (values.size() > large)
    for (size_t i = 0; i < values.size(); ++i) {
        T element;
        std::memcpy(&element, from + i * sizeof element, sizeof element);
        values[i] = to_float(element);
    }
}

} // namespace

void to_bytes(DType type, std::span<const float> values, std::byte* to) {
    switch (type) {
    case DType::fp32:
        return write_elements<float>(values, to);
    case DType::fp16:
        return write_elements<Half>(values, to);
    case DType::bf16:
        return write_elements<Bfloat16>(values, to);
    case DType::e4m3:
        return write_elements<E4m3>(values, to);
    }
}

void to_floats(DType type, const std::byte* from, std::span<float> values) {
    switch (type) {
    case DType::fp32:
        return read_elements<float>(from, values);
    case DType::fp16:
        return read_elements<Half>(from, values);
    case DType::bf16:
        return read_elements<Bfloat16>(from, values);
    case DType::e4m3:
        return read_elements<E4m3>(from, values);
    }
}

} // namespace flash
