#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace flash::test {

/// A new empty folder, removed with everything in it in the end.
class TemporaryFolder {
  public:
    TemporaryFolder();
    ~TemporaryFolder();
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;

    std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

    /// Writes a file and returns its path.
    std::string file(const std::string& name, const std::string& contents) const;

    /// Names of everything in it, sorted.
    std::vector<std::string> names() const;

  private:
    std::filesystem::path path_;
};

std::string contents_of(const std::filesystem::path& path);

/// A safetensors file: the header's length, the header, and zeros as data. `claimed` replaces the
/// length.
std::string safetensors_bytes(const std::string& header, size_t data_bytes, long long claimed = -1);

} // namespace flash::test
