#include "common/simt/async_copy.hpp"

#include <algorithm>
#include <cstring>

#include "common/simt/block.hpp"

namespace flash::simt {
namespace {

void land(const AsyncCopy& copy) {
    if (copy.global != nullptr) {
        std::memcpy(copy.shared, copy.global, copy.bytes);
    } else {
        std::memset(copy.shared, 0, copy.bytes);
    }
}

/// Ends every copy of a group before `group`.
void land_before(unsigned group) {
    auto& pending = current_block().current().copies.pending;
    const auto end = std::ranges::find_if(pending, [=](const AsyncCopy& copy) { return copy.group >= group; });
    if (options().cp_async == CpAsync::late) {
        std::for_each(pending.begin(), end, land);
    }
    if (Watcher* const watcher = current_block().watching()) {
        std::for_each(pending.begin(), end,
                      [=](const AsyncCopy& copy) { watcher->end_copy(current_block().current(), copy); });
    }
    pending.erase(pending.begin(), end);
}

} // namespace

void start_async_copy(void* shared, const void* global, unsigned bytes, bool valid, Site site) {
    const RuntimeCode runtime;
    AsyncCopies& copies = current_block().current().copies;
    copies.pending.push_back(
        {static_cast<char*>(shared), valid ? static_cast<const char*>(global) : nullptr, bytes, copies.group, site});
    if (Watcher* const watcher = current_block().watching()) {
        watcher->start_copy(current_block().current(), copies.pending.back());
    }
    if (options().cp_async == CpAsync::early) {
        land(copies.pending.back());
    }
}

void commit_async_copies(Site) { ++current_block().current().copies.group; }

void wait_async_copies(unsigned in_flight, Site) {
    const RuntimeCode runtime;
    const unsigned committed = current_block().current().copies.group;
    land_before(committed > in_flight ? committed - in_flight : 0);
}

void wait_all_async_copies(Site) {
    const RuntimeCode runtime;
    land_before(current_block().current().copies.group + 1);
}

} // namespace flash::simt
