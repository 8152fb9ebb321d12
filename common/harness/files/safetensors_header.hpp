// The JSON header of a safetensors file, apart from the bytes around it.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "common/harness/files/safetensors.hpp"

namespace flash {

struct SafetensorsHeader {
    std::map<std::string, TensorInfo> tensors;
    std::map<std::string, std::string> metadata;
};

/// Throws Error unless `json` has the format's structure: known fields, whole numbers, no name
/// twice.
/// Offsets and shapes are only read here; `SafetensorsReader` compares them with the file.
SafetensorsHeader parse_safetensors_header(std::string_view json);

std::string format_safetensors_header(const SafetensorsHeader& header);

} // namespace flash
