#include "common/simt/language/workspace.hpp"

#include "common/simt/machine/device_memory.hpp"

void flash::detail::begin_parts(void* memory) {
    if (simt::arena().contains(memory)) {
        simt::memory_around(memory)->begin_parts();
    }
}

void flash::detail::add_part(void* begin, int64_t bytes, const char* name) {
    if (simt::arena().contains(begin)) {
        simt::memory_around(begin)->add_part(static_cast<char*>(begin), static_cast<size_t>(bytes),
                                             name);
    }
}
