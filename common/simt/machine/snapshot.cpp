#include "common/simt/machine/snapshot.hpp"

#include <algorithm>
#include <new>

#include "common/simt/machine/device_memory.hpp"
#include "common/simt/machine/symbols.hpp"

namespace flash::simt {

std::optional<Snapshot> Snapshot::take(size_t most) {
    std::vector<std::span<char>> places;
    for (DeviceMemory* const memory : all_memories()) {
        if (memory->kind() == DeviceMemory::Kind::heap) {
            return std::nullopt;
        }
        places.emplace_back(memory->data(), memory->bytes());
        if (memory->written() != nullptr) {
            places.push_back(memory->written()->flags());
        }
    }
    for (const Variable& variable : device_variables()) {
        if (variable.kind != Variable::constant) {
            places.emplace_back(variable.begin, variable.bytes);
        }
    }
    size_t bytes = 0;
    for (const std::span<char> place : places) {
        bytes += place.size();
    }
    if (bytes > most) {
        return std::nullopt;
    }
    Snapshot all;
    try {
        for (const std::span<char> place : places) {
            all.pieces_.emplace_back(place, std::vector<char>(place.begin(), place.end()));
        }
    } catch (const std::bad_alloc&) {
        return std::nullopt;
    }
    return all;
}

void Snapshot::restore() const {
    for (const auto& [place, bytes] : pieces_) {
        std::ranges::copy(bytes, place.begin());
    }
}

} // namespace flash::simt
