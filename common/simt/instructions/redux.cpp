#include "common/simt/instructions/redux.hpp"

#include <bit>

#include "common/simt/machine/block.hpp"

namespace flash::simt {
namespace {

struct Operand {
    uint32_t value; // of one lane, then of all
    Reduction of_two;
};

/// What the last lane to come does for all of them.
void reduce_all(const Operands& operands, uint32_t lanes) {
    const auto operand = [&](uint32_t bits) -> Operand& {
        return *static_cast<Operand*>(operands[static_cast<size_t>(std::countr_zero(bits))]);
    };
    uint32_t result = operand(lanes).value;
    for (uint32_t others = lanes & (lanes - 1); others != 0; others &= others - 1) {
        result = operand(others).of_two(result, operand(others).value);
    }
    for (uint32_t rest = lanes; rest != 0; rest &= rest - 1) {
        operand(rest).value = result;
    }
}

} // namespace

uint32_t reduce(const char* operation, uint32_t mask, uint32_t value, Reduction of_two,
                SourceLocation location) {
    Operand own{value, of_two};
    const RuntimeCode runtime;
    current_block().collective(CollectiveKind::collective, operation, location, mask, &own,
                               reduce_all);
    return own.value;
}

} // namespace flash::simt
