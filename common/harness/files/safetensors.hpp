// Tensors in and out of safetensors files: https://huggingface.co/docs/safetensors
//
//   8 bytes   n, the header's length, little-endian
//   n bytes   JSON: {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]},
//             "__metadata__": {...}}
//   the rest  the tensors' elements, row-major, little-endian; offsets count from here
#pragma once

#include <cstdint>
#include <istream>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/types.hpp"

namespace flash {

struct TensorInfo {
    std::string dtype;           // as the file spells it: "F32", "BF16", "I64", ...
    std::vector<int64_t> shape;  // empty for a scalar
    uint64_t begin = 0, end = 0; // bytes, from the end of the header

    int64_t elements() const;
};

/// "(1, 12, 160, 32)"
std::string format_shape(std::span<const int64_t> shape);

/// A file whose header has been checked in full: lengths against the file's, shapes against bytes,
/// names for duplicates, and tensors that cover the data without a hole or an overlap. Everything
/// throws Error, naming the file, when it is not so. Memory is asked for only as far as the file's
/// own size justifies it.
class SafetensorsReader {
  public:
    explicit SafetensorsReader(const std::string& path);

    /// From any seekable stream; `name` stands for it in messages.
    SafetensorsReader(std::unique_ptr<std::istream> stream, std::string name);

    const std::map<std::string, TensorInfo>& tensors() const { return tensors_; }
    const std::map<std::string, std::string>& metadata() const { return metadata_; }

    /// Throws Error, listing what the file holds, when there is no such tensor.
    const TensorInfo& info(const std::string& tensor) const;

    /// All elements, converted exactly. The tensor must be F32, F16 or BF16.
    std::vector<float> read(const std::string& tensor);

    /// The same for `count` of them, from `first` on.
    std::vector<float> read(const std::string& tensor, int64_t first, int64_t count);

    /// The same, and F64 as well.
    std::vector<double> read_double(const std::string& tensor);

  private:
    void read_header();
    void read_bytes(const TensorInfo& info, uint64_t offset, std::span<std::byte> to);

    std::unique_ptr<std::istream> stream_;
    std::string name_;
    uint64_t data_start_ = 0;
    std::map<std::string, TensorInfo> tensors_;
    std::map<std::string, std::string> metadata_;
};

struct TensorToWrite {
    std::string name;
    DType dtype;
    std::vector<int64_t> shape;
    std::span<const float> values; // rounded to dtype when written
};

/// Writes the file complete or not at all. Throws Error when it cannot.
void write_safetensors(const std::string& path, std::vector<TensorToWrite> tensors,
                       const std::map<std::string, std::string>& metadata = {});

} // namespace flash
