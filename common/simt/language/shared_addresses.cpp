#include "common/simt/language/shared_addresses.hpp"

#include "common/simt/machine/block.hpp"

namespace flash::simt {

char* at_shared_address(size_t address) {
    const RuntimeCode runtime;
    return current_block().shared().at_window_address(address);
}

} // namespace flash::simt

size_t __cvta_generic_to_shared(const void* pointer) {
    const flash::simt::RuntimeCode runtime;
    return flash::simt::current_block().shared().window_address(static_cast<const char*>(pointer));
}
