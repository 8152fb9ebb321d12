// Fuzz target for the safetensors reader: whatever the bytes are, they are either refused with an
// Error, or every tensor can be read and has the size that its shape says. The corpus is replayed
// by fuzz_replay.cpp in every test run; to search for more (clang with its compiler-rt; from the
// repository's root, each in one line):
//
//   clang++ -std=c++20 -g -O1 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all -I.
//     reference/tests/fuzz_safetensors.cpp -o /tmp/fuzz
//     common/harness/files/{safetensors_reader,safetensors_header,convert,text}.cpp
//   /tmp/fuzz -max_total_time=600 -max_len=4096 -malloc_limit_mb=1 -rss_limit_mb=512
//     -dict=reference/tests/fuzz_safetensors.dict reference/tests/corpus/safetensors
//
// No input of 4 KiB justifies an allocation of 1 MiB. A finding is written to the current folder;
// an input that the reader answers in a new way joins the corpus.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <sstream>
#include <string>

#include "common/attention.hpp"
#include "common/harness/files/safetensors.hpp"
#include "common/harness/files/safetensors_header.hpp"

namespace {

using namespace flash;

void require(bool condition) {
    if (!condition) {
        __builtin_trap();
    }
}

bool readable(const TensorInfo& info) {
    return info.dtype == "F32" || info.dtype == "F16" || info.dtype == "BF16";
}

/// True when the file was accepted; then everything in it is read.
bool read_everything(const std::string& bytes) {
    std::unique_ptr<SafetensorsReader> file;
    try {
        file = std::make_unique<SafetensorsReader>(std::make_unique<std::istringstream>(bytes),
                                                   "fuzz");
    } catch (const Error& error) {
        require(std::string(error.what()).size() < 500); // a message, not a flood
        return false;
    }
    uint64_t covered = 0;
    for (const auto& [name, info] : file->tensors()) {
        require(info.begin <= info.end && info.end <= bytes.size());
        covered += info.end - info.begin;
        if (readable(info)) {
            require(file->read(name).size() == static_cast<size_t>(info.elements()));
        } else {
            try {
                file->read(name);
                require(false);
            } catch (const Error&) {
            }
        }
        if (readable(info) || info.dtype == "F64") {
            require(file->read_double(name).size() == static_cast<size_t>(info.elements()));
        }
    }
    // No hole and no overlap: the tensors and the header are the whole file.
    uint64_t header = 0;
    std::memcpy(&header, bytes.data(), sizeof header);
    require(8 + header + covered == bytes.size());

    // What was read can be written, and means the same when read again.
    const SafetensorsHeader again =
        parse_safetensors_header(format_safetensors_header({file->tensors(), file->metadata()}));
    require(again.metadata == file->metadata() && again.tensors.size() == file->tensors().size());
    return true;
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const std::string input(reinterpret_cast<const char*>(data), size);
    read_everything(input);
    // The same bytes as a header and data with the right length before them, which chance alone
    // would hardly find: the header ends where a zero byte begins the data.
    const uint64_t header = std::min(input.find('\0'), input.size());
    read_everything(std::string(reinterpret_cast<const char*>(&header), sizeof header) + input);
    return 0;
}
