#include "common/tests/harness/temporary_folder.hpp"

#include <stdlib.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace flash::test {

namespace fs = std::filesystem;

TemporaryFolder::TemporaryFolder() {
    std::string name = (fs::temp_directory_path() / "flash-steps-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) {
        throw std::runtime_error("cannot make a temporary folder");
    }
    path_ = name;
}

TemporaryFolder::~TemporaryFolder() { fs::remove_all(path_); }

std::string TemporaryFolder::file(const std::string& name, const std::string& contents) const {
    fs::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name, std::ios::binary) << contents;
    return (path_ / name).string();
}

std::vector<std::string> TemporaryFolder::names() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(path_)) {
        found.push_back(entry.path().filename().string());
    }
    std::ranges::sort(found);
    return found;
}

std::string contents_of(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

std::string safetensors_bytes(const std::string& header, size_t data_bytes, long long claimed) {
    const auto length = claimed >= 0 ? static_cast<unsigned long long>(claimed) : header.size();
    std::string bytes;
    for (int i = 0; i < 8; ++i) {
        bytes += static_cast<char>(length >> 8 * i & 0xff);
    }
    return bytes + header + std::string(data_bytes, '\0');
}

} // namespace flash::test
