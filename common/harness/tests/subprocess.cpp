#include "common/harness/tests/subprocess.hpp"

#include <sys/wait.h>

#include <cstdlib>

#include "common/harness/tests/temporary_folder.hpp"

namespace flash::test {
namespace {

std::string shell_quoted(const std::string& text) {
    std::string result = "'";
    for (const char c : text) {
        result += c == '\'' ? std::string("'\\''") : std::string(1, c);
    }
    return result + "'";
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
    command += " >" + shell_quoted((folder / "out").string()) + " 2>" + shell_quoted((folder / "err").string());
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, contents_of(folder / "out"), contents_of(folder / "err")};
}

} // namespace flash::test
