// What a kernel keeps in shared memory, as the debug information of its types says it.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "common/simt/machine/symbols.hpp"

namespace flash::simt {

/// A variable, or a member of a struct: "K.tile[1]".
struct Region {
    std::string name;
    size_t offset;
    size_t bytes;
    std::string type;         // of an element: "float", "SwizzledTile<64, 32>"
    size_t element;           // its bytes
    std::vector<size_t> dims; // of an array of such
};

/// The parts of the struct that the kernel at an address has its dynamic shared memory be; none
/// when it has none, or without -g.
std::vector<Region> dynamic_layout(const void* kernel, size_t bytes);

/// The parts of one of its __shared__ variables, from the variable's beginning.
std::vector<Region> static_layout(const void* kernel, const SharedVariable& variable);

} // namespace flash::simt
