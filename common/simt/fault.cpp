#include "common/simt/fault.hpp"

namespace flash::simt {

std::string to_string(dim3 index) {
    return "(" + std::to_string(index.x) + "," + std::to_string(index.y) + "," + std::to_string(index.z) + ")";
}

} // namespace flash::simt
