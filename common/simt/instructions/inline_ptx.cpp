#include "common/simt/instructions/inline_ptx.hpp"

#include <string>

#include "common/attention.hpp"

namespace flash::simt::ptx {

void copy_async(void* shared, const void* global, int bytes, int given, SourceLocation location) {
    if (bytes != 16 || (given != 0 && given != 16)) {
        throw Error("not supported: a cp.async of " + std::to_string(given) + " of " +
                    std::to_string(bytes) + " bytes; copy 16, or assign 4 or 8");
    }
    cp_async_16(shared, global, given == 16, location);
}

} // namespace flash::simt::ptx
