#include "common/harness/files/convert.hpp"

#include <cstring>

namespace flash {
namespace {

template <class T> void write_elements(std::span<const float> values, std::byte* to) {
    for (const float value : values) {
        const T element = from_float<T>(value);
        std::memcpy(to, &element, sizeof element);
        to += sizeof element;
    }
}

template <class T> void read_elements(const std::byte* from, std::span<float> values) {
    for (float& value : values) {
        T element;
        std::memcpy(&element, from, sizeof element);
        value = to_float(element);
        from += sizeof element;
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
    }
}

} // namespace flash
