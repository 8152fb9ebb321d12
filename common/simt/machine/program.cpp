#include "common/simt/machine/program.hpp"

#include <sys/auxv.h>

#include <cstdlib>
#include <memory>

namespace flash::simt {
namespace {

char** own_arguments = nullptr;

/// The C library hands main's arguments to constructors, too.
[[gnu::constructor]] void remember_arguments(int, char** arguments, char**) {
    own_arguments = arguments;
}

} // namespace

std::string program_file() {
    // What execve was given; relative to the working directory, which this program never changes.
    const auto* const path = reinterpret_cast<const char*>(getauxval(AT_EXECFN));
    const std::unique_ptr<char, void (*)(void*)> real(realpath(path, nullptr), std::free);
    return real ? real.get() : "";
}

std::vector<std::string> program_arguments() {
    std::vector<std::string> arguments;
    for (char** argument = own_arguments; *argument != nullptr; ++argument) {
        arguments.emplace_back(*argument);
    }
    return arguments;
}

} // namespace flash::simt
