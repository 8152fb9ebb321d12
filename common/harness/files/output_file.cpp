#include "common/harness/files/output_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "common/attention.hpp"

namespace flash {
namespace fs = std::filesystem;

namespace {

[[noreturn]] void refuse(const std::string& path, const std::string& reason) {
    throw Error("cannot write " + path + ": " + reason);
}

} // namespace

OutputFile::OutputFile(const std::string& path) : name_(path) {
    if (path.empty()) {
        throw Error("the output file needs a name");
    }
    std::error_code failure;
    const fs::file_status status = fs::status(path, failure);
    // renaming onto /dev/null would replace the device
    if (fs::exists(status) && !fs::is_regular_file(status)) {
        refuse(path, fs::is_directory(status) ? "it is a directory" : "it is not a regular file");
    }
    target_ = fs::exists(status) ? fs::canonical(path, failure) : fs::path(path);
    const fs::path folder = target_.has_parent_path() ? target_.parent_path() : fs::path(".");
    if (!fs::is_directory(folder, failure)) {
        refuse(path, "there is no directory " + folder.string());
    }
    partial_ =
        folder / ("." + target_.filename().string() + ".partial-" + std::to_string(getpid()));
    // O_EXCL: never write through a file or link that somebody else left under this name.
    const int descriptor = ::open(partial_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor < 0) {
        refuse(path, std::strerror(errno));
    }
    ::close(descriptor);
    stream_.open(partial_, std::ios::binary);
}

OutputFile::~OutputFile() {
    stream_.close();
    std::error_code ignored;
    fs::remove(partial_, ignored); // after a commit there is nothing under this name
}

void OutputFile::write(const void* data, size_t bytes) {
    errno = 0;
    if (!stream_.write(static_cast<const char*>(data), static_cast<std::streamsize>(bytes))) {
        refuse(name_, errno != 0 ? std::strerror(errno) : "the write failed");
    }
}

void OutputFile::commit() {
    errno = 0;
    stream_.close(); // flushes: a full disk may show only here
    if (!stream_) {
        refuse(name_, errno != 0 ? std::strerror(errno) : "the write failed");
    }
    std::error_code failure;
    fs::rename(partial_, target_, failure);
    if (failure) {
        refuse(name_, failure.message());
    }
}

void require_writable(const std::string& path) { const OutputFile probe(path); }

} // namespace flash
