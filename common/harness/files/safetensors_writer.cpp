#include <algorithm>
#include <stdexcept>

#include "common/harness/files/convert.hpp"
#include "common/harness/files/output_file.hpp"
#include "common/harness/files/safetensors.hpp"
#include "common/harness/files/safetensors_header.hpp"

namespace flash {
namespace {

const char* format_name(DType type) {
    return type == DType::fp32 ? "F32" : type == DType::fp16 ? "F16" : "BF16";
}

} // namespace

void write_safetensors(const std::string& path, std::vector<TensorToWrite> tensors,
                       const std::map<std::string, std::string>& metadata) {
    // Wide types first: together with the header's padding this aligns every tensor to its element.
    std::ranges::stable_sort(tensors, std::greater{},
                             [](const TensorToWrite& t) { return dtype_bytes(t.dtype); });

    SafetensorsHeader header{.tensors = {}, .metadata = metadata};
    uint64_t offset = 0;
    for (const TensorToWrite& tensor : tensors) {
        TensorInfo info{.dtype = format_name(tensor.dtype),
                        .shape = tensor.shape,
                        .begin = offset,
                        .end = offset};
        if (static_cast<size_t>(info.elements()) != tensor.values.size()) {
            throw std::invalid_argument("write_safetensors: the shape of " + tensor.name +
                                        " does not fit its values");
        }
        offset += tensor.values.size() * static_cast<size_t>(dtype_bytes(tensor.dtype));
        info.end = offset;
        header.tensors[tensor.name] = info;
    }
    std::string json = format_safetensors_header(header);
    json.resize((json.size() + 7) / 8 * 8, ' ');
    const uint64_t length = json.size();

    OutputFile file(path);
    file.write(&length, sizeof length);
    file.write(json.data(), json.size());
    constexpr size_t piece = 1 << 16;
    std::vector<std::byte> bytes;
    for (const TensorToWrite& tensor : tensors) {
        for (size_t done = 0; done < tensor.values.size(); done += piece) {
            const auto part =
                tensor.values.subspan(done, std::min(piece, tensor.values.size() - done));
            bytes.resize(part.size() * static_cast<size_t>(dtype_bytes(tensor.dtype)));
            to_bytes(tensor.dtype, part, bytes.data());
            file.write(bytes.data(), bytes.size());
        }
    }
    file.commit();
}

} // namespace flash
