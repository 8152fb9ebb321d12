#include "common/simt/shadow.hpp"

#include <sys/mman.h>

#include <new>

namespace flash::simt {

Shadow::Shadow(const char* begin, size_t bytes)
    : begin_(begin), bytes_((bytes / granule + 1) * sizeof(Cell)),
      cells_(static_cast<Cell*>(
          mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))) {
    if (cells_ == MAP_FAILED) {
        throw std::bad_alloc();
    }
}

Shadow::~Shadow() { munmap(cells_, bytes_); }

bool Moment::ordered_after(const Trace& before) const {
    if (before.epoch < launch_begin || before.epoch == 0) {
        return true;
    }
    if (!of_this_block(before)) {
        return shared;
    }
    if (before.epoch != now.epoch) {
        return true;
    }
    if (before.warp != now.warp) {
        return false;
    }
    return before.lanes == now.lanes || before.warp_epoch != now.warp_epoch;
}

void History::add(const Moment& moment) {
    const Trace& now = moment.now;
    if (last.epoch == now.epoch && last.warp == now.warp) {
        last.lanes = last.warp_epoch == now.warp_epoch ? last.lanes | now.lanes : now.lanes;
        last.warp_epoch = now.warp_epoch;
        last.origin = now.origin;
        return;
    }
    if (!moment.of_this_block(last)) {
        other_block = last;
    } else if (last.epoch == now.epoch) {
        if (!moment.of_this_block(other_warp) && other_warp.epoch > other_block.epoch) {
            other_block = other_warp;
        }
        other_warp = last;
    }
    last = now;
}

const Trace* History::unordered(const Moment& moment) const {
    for (const Trace* const before : {&last, &other_warp, &other_block}) {
        if (!moment.ordered_after(*before)) {
            return before;
        }
    }
    return nullptr;
}

const Trace* Cell::race(Kind kind, const Moment& moment) const {
    if (!moment.ordered_after(write)) {
        return &write;
    }
    const Trace* const with_read = kind == Kind::load ? nullptr : reads.unordered(moment);
    const Trace* const with_atomic = kind == Kind::atomic ? nullptr : atomics.unordered(moment);
    return with_read != nullptr ? with_read : with_atomic;
}

void Cell::remember(Kind kind, const Moment& moment) {
    if (kind == Kind::store) {
        write = moment.now;
    } else {
        (kind == Kind::load ? reads : atomics).add(moment);
    }
}

} // namespace flash::simt
