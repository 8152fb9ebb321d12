#include "common/simt/machine/shared_memory.hpp"

#include <sys/mman.h>

#include <cstring>
#include <new>

namespace flash::simt {

SharedMemory::SharedMemory() : segment_(executable().thread_local_segment) {
    void* const region = mmap(nullptr, region_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (region == MAP_FAILED || mprotect(static_cast<char*>(region) + guard,
                                         region_bytes - 2 * guard, PROT_READ | PROT_WRITE) != 0) {
        throw std::bad_alloc();
    }
    region_ = static_cast<char*>(region);
}

SharedMemory::~SharedMemory() { munmap(region_, region_bytes); }

void SharedMemory::reset(const Kernel& kernel, size_t dynamic_bytes) {
    // It ends at the guard, or as close as the alignment of its start allows.
    const size_t rounded = (dynamic_bytes + alignment - 1) / alignment * alignment;
    dynamic_ = region_ + region_bytes - guard - rounded;
    dynamic_bytes_ = dynamic_bytes;
    std::memset(dynamic_, 0xff, dynamic_bytes);
    for (const SharedVariable& variable : kernel.shared) {
        std::memset(segment_.begin + variable.offset, 0xff, variable.bytes);
    }
}

} // namespace flash::simt
