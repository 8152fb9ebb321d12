// A file that appears complete or not at all.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

namespace flash {

/// Written beside its target under another name; `commit` renames it into place, and without that
/// the destructor removes it. All members throw Error, with the target's name and the reason.
class OutputFile {
  public:
    explicit OutputFile(const std::string& path);
    ~OutputFile();
    OutputFile(const OutputFile&) = delete;
    OutputFile& operator=(const OutputFile&) = delete;

    void write(const void* data, size_t bytes);
    void commit();

  private:
    std::string name_;             // as the user wrote it
    std::filesystem::path target_; // symbolic links followed
    std::filesystem::path partial_;
    std::ofstream stream_;
};

/// Throws Error unless `path` can be written; leaves nothing behind. To be asked before the work
/// whose result it takes.
void require_writable(const std::string& path);

} // namespace flash
