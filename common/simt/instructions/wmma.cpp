#include "common/simt/instructions/wmma.hpp"

#include "common/simt/machine/block.hpp"

void flash::simt::meet_for_matrix(const char* operation, SourceLocation location) {
    const RuntimeCode runtime;
    current_block().collective(CollectiveKind::collective, operation, location, full_mask, nullptr,
                               nullptr);
}
