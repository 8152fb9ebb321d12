#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>

#include "common/attention.hpp"
#include "common/harness/files/convert.hpp"
#include "common/harness/files/safetensors.hpp"
#include "common/harness/files/safetensors_header.hpp"
#include "common/harness/files/text.hpp"

namespace flash {
namespace {

namespace fs = std::filesystem;

static_assert(std::endian::native == std::endian::little,
              "elements are copied as they lie in the file");

constexpr uint64_t length_bytes = 8;
constexpr uint64_t longest_header = 100'000'000; // the format's own limit

std::unique_ptr<std::istream> open(const std::string& path) {
    if (path.empty()) {
        throw Error("the input file needs a name");
    }
    std::error_code failure;
    const fs::file_status status = fs::status(path, failure);
    if (!fs::exists(status)) {
        throw Error(path + ": " + (failure ? failure.message() : "no such file"));
    }
    if (!fs::is_regular_file(status)) {
        throw Error(path + ": " +
                    (fs::is_directory(status) ? "is a directory" : "is not a regular file") +
                    "; a safetensors file is needed");
    }
    auto file = std::make_unique<std::ifstream>(path, std::ios::binary);
    if (!*file) {
        throw Error(path + ": " + std::strerror(errno));
    }
    return file;
}

/// Bits of one element; nothing for a type that the format did not know when this was written.
std::optional<uint64_t> element_bits(const std::string& dtype) {
    static const std::map<std::string, uint64_t> bits = {
        {"BOOL", 8}, {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},
        {"I8", 8},   {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"I16", 16},
        {"U16", 16}, {"F16", 16},    {"BF16", 16},   {"I32", 32},    {"U32", 32},
        {"F32", 32}, {"C64", 64},    {"F64", 64},    {"I64", 64},    {"U64", 64}};
    const auto found = bits.find(dtype);
    return found == bits.end() ? std::nullopt : std::optional(found->second);
}

/// Throws unless the shape's elements fill exactly the tensor's bytes.
void check_shape(const std::string& name, const TensorInfo& info) {
    int64_t elements = 1;
    uint64_t bits = 0;
    const auto known = element_bits(info.dtype);
    bool overflow = false;
    for (const int64_t side : info.shape) {
        overflow = overflow || __builtin_mul_overflow(elements, side, &elements);
    }
    overflow = overflow ||
               __builtin_mul_overflow(static_cast<uint64_t>(elements), known.value_or(1), &bits);
    if (overflow) {
        throw Error("tensor " + in_quotes(name) +
                    " has a shape of more than 2^63 elements or 2^64 bits");
    }
    if (known && (bits % 8 != 0 || bits / 8 != info.end - info.begin)) {
        throw Error("tensor " + in_quotes(name) + " has the shape " + format_shape(info.shape) +
                    " of " + in_quotes(info.dtype) + ", but " +
                    std::to_string(info.end - info.begin) + " bytes");
    }
}

/// Throws unless the tensors, in the order of their offsets, cover the `data_bytes` after the
/// header exactly.
void check_offsets(const std::map<std::string, TensorInfo>& tensors, uint64_t data_bytes) {
    std::vector<std::pair<const TensorInfo*, const std::string*>> ordered;
    for (const auto& [name, info] : tensors) {
        ordered.emplace_back(&info, &name);
    }
    std::ranges::sort(ordered, {}, [](const auto& entry) {
        return std::pair(entry.first->begin, entry.first->end);
    });
    const auto refuse = [](const auto& entry, const std::string& reason) {
        throw Error("tensor " + in_quotes(*entry.second) + " has the offsets " +
                    std::to_string(entry.first->begin) + " to " + std::to_string(entry.first->end) +
                    reason);
    };
    for (const auto& entry : ordered) {
        if (entry.first->end < entry.first->begin) {
            refuse(entry, ": it ends before it begins");
        }
        if (entry.first->end > data_bytes) {
            refuse(entry, ", but the file holds only " + std::to_string(data_bytes) +
                              " bytes of data; is it truncated?");
        }
    }
    uint64_t covered = 0;
    for (const auto& entry : ordered) {
        if (entry.first->begin != covered) {
            refuse(entry, entry.first->begin < covered ? ", which overlap the tensor before it"
                                                       : ", which leave a hole before it");
        }
        covered = entry.first->end;
    }
    if (covered != data_bytes) {
        throw Error("the last " + std::to_string(data_bytes - covered) +
                    " bytes of the file belong to no tensor");
    }
}

} // namespace

int64_t TensorInfo::elements() const {
    int64_t product = 1;
    for (const int64_t side : shape) {
        product *= side;
    }
    return product;
}

std::string format_shape(std::span<const int64_t> shape) {
    constexpr size_t most = 8;
    std::string text = "(";
    for (size_t i = 0; i < std::min(shape.size(), most); ++i) {
        text += (i > 0 ? ", " : "") + std::to_string(shape[i]);
    }
    return text + (shape.size() > most ? ", ...)" : ")");
}

SafetensorsReader::SafetensorsReader(const std::string& path)
    : SafetensorsReader(open(path), path) {}

SafetensorsReader::SafetensorsReader(std::unique_ptr<std::istream> stream, std::string name)
    : stream_(std::move(stream)), name_(std::move(name)) {
    try {
        read_header();
    } catch (const Error& error) {
        throw Error(name_ + ": " + error.what());
    }
}

void SafetensorsReader::read_header() {
    stream_->seekg(0, std::ios::end);
    const std::streamoff end = stream_->tellg();
    if (end < 0) {
        throw Error("cannot be read");
    }
    const auto file_bytes = static_cast<uint64_t>(end);
    if (file_bytes < length_bytes) {
        throw Error("has " + std::to_string(file_bytes) + " bytes, too few for a safetensors file");
    }
    std::array<unsigned char, length_bytes> length{};
    stream_->seekg(0);
    stream_->read(reinterpret_cast<char*>(length.data()), length.size());
    const auto header_bytes = std::bit_cast<uint64_t>(length);
    if (header_bytes > longest_header) {
        throw Error("claims a header of " + std::to_string(header_bytes) +
                    " bytes, more than the format allows; is it a safetensors file?");
    }
    if (header_bytes > file_bytes - length_bytes) {
        throw Error("claims a header of " + std::to_string(header_bytes) +
                    " bytes, but the file has only " + std::to_string(file_bytes) +
                    "; is it truncated?");
    }
    std::string json(header_bytes, '\0');
    if (!stream_->read(json.data(), static_cast<std::streamsize>(json.size()))) {
        throw Error("cannot be read");
    }
    SafetensorsHeader header = parse_safetensors_header(json);
    data_start_ = length_bytes + header_bytes;
    check_offsets(header.tensors, file_bytes - data_start_);
    for (const auto& [name, info] : header.tensors) {
        check_shape(name, info);
    }
    tensors_ = std::move(header.tensors);
    metadata_ = std::move(header.metadata);
}

const TensorInfo& SafetensorsReader::info(const std::string& tensor) const {
    const auto found = tensors_.find(tensor);
    if (found != tensors_.end()) {
        return found->second;
    }
    constexpr size_t most = 8;
    std::string names;
    size_t shown = 0;
    for (const auto& [name, info] : tensors_) {
        if (++shown > most) {
            names += ", ...";
            break;
        }
        names += (names.empty() ? "" : ", ") + in_quotes(name);
    }
    throw Error(name_ + ": has no tensor " + in_quotes(tensor) + "; it holds " +
                (names.empty() ? "none" : names));
}

void SafetensorsReader::read_bytes(const TensorInfo& info, uint64_t offset,
                                   std::span<std::byte> to) {
    stream_->clear();
    stream_->seekg(static_cast<std::streamoff>(data_start_ + info.begin + offset));
    if (!stream_->read(reinterpret_cast<char*>(to.data()),
                       static_cast<std::streamsize>(to.size()))) {
        throw Error(name_ + ": cannot be read; was it changed meanwhile?");
    }
}

std::vector<float> SafetensorsReader::read(const std::string& tensor) {
    return read(tensor, 0, info(tensor).elements());
}

std::vector<float> SafetensorsReader::read(const std::string& tensor, int64_t first,
                                           int64_t count) {
    static const std::map<std::string, DType> types = {
        {"F32", DType::fp32}, {"F16", DType::fp16}, {"BF16", DType::bf16}};
    const TensorInfo& wanted = info(tensor);
    const auto type = types.find(wanted.dtype);
    if (type == types.end()) {
        throw Error(name_ + ": tensor " + in_quotes(tensor) + " has the type " +
                    in_quotes(wanted.dtype) + "; F32, F16 and BF16 can be read");
    }
    std::vector<float> values(static_cast<size_t>(count));
    const auto from = static_cast<size_t>(first);
    // In pieces, so that a tensor is never in memory twice.
    constexpr size_t piece = 1 << 16;
    std::vector<std::byte> bytes;
    const auto element = static_cast<size_t>(dtype_bytes(type->second));
    for (size_t done = 0; done < values.size(); done += piece) {
        const size_t now = std::min(piece, values.size() - done);
        bytes.resize(now * element);
        read_bytes(wanted, (from + done) * element, bytes);
        to_floats(type->second, bytes.data(), std::span(values).subspan(done, now));
    }
    return values;
}

std::vector<double> SafetensorsReader::read_double(const std::string& tensor) {
    const TensorInfo& wanted = info(tensor);
    if (wanted.dtype != "F64") {
        const std::vector<float> values = read(tensor);
        return {values.begin(), values.end()};
    }
    std::vector<double> values(static_cast<size_t>(wanted.elements()));
    if (!values.empty()) {
        read_bytes(wanted, 0, std::as_writable_bytes(std::span(values)));
    }
    return values;
}

} // namespace flash
