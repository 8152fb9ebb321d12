#include "common/tests/harness/subprocess.hpp"

#include <sys/wait.h>

#include <cstdlib>
#include <sstream>

#include "common/tests/harness/temporary_folder.hpp"

namespace flash::test {
namespace {

std::string shell_quoted(const std::string& text) {
    std::string result = "'";
    for (const char c : text) {
        result += c == '\'' ? std::string("'\\''") : std::string(1, c);
    }
    return result + "'";
}

/// "running fake_rung 45%, 12 s": a line that ends with a whole number of seconds. Not <regex>: g++
/// 13 warns about its own header under the address sanitizer.
bool is_progress(const std::string& line) {
    const size_t comma = line.rfind(", ");
    return comma != std::string::npos && line.ends_with(" s") && line.size() > comma + 4 &&
           line.find_first_not_of("0123456789", comma + 2) == line.size() - 2;
}

} // namespace

Outcome run_fake_rung(const std::vector<std::string>& arguments, const std::string& environment,
                      const std::string& before) {
    const TemporaryFolder folder;
    std::string command = before.empty() ? "" : before + "; ";
    command += "exec env " + environment + " " + shell_quoted(FAKE_RUNG);
    for (const std::string& argument : arguments) {
        command += " " + shell_quoted(argument);
    }
    command += " >" + shell_quoted((folder / "out").string()) + " 2>" +
               shell_quoted((folder / "err").string());
    const int status = std::system(command.c_str());
    Outcome outcome{.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1,
                    .out = contents_of(folder / "out")};
    std::istringstream lines(contents_of(folder / "err"));
    for (std::string line; std::getline(lines, line);) {
        (is_progress(line) ? outcome.progress : outcome.err) += line + (lines.eof() ? "" : "\n");
    }
    return outcome;
}

} // namespace flash::test
