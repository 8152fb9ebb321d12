// This program's own file and arguments, also where no /proc is mounted that could tell.
#pragma once

#include <string>
#include <vector>

namespace flash::simt {

/// The executable, without symbolic links; empty when it is not there any more.
std::string program_file();

/// Its name as it was called, and its arguments.
std::vector<std::string> program_arguments();

} // namespace flash::simt
