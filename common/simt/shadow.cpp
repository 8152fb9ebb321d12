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

const Trace* race_of_read(const Cell& cell, const Moment& moment) {
    const bool both_atomic = cell.write.state == Trace::atomic && moment.now.state == Trace::atomic;
    return both_atomic || moment.ordered_after(cell.write) ? nullptr : &cell.write;
}

const Trace* race_of_write(const Cell& cell, const Moment& moment) {
    for (const Trace* before : {&cell.read, &cell.other_warp, &cell.other_block}) {
        if (!moment.ordered_after(*before)) {
            return before;
        }
    }
    return race_of_read(cell, moment);
}

void remember_read(Cell& cell, const Moment& moment) {
    Trace& last = cell.read;
    const Trace& now = moment.now;
    if (last.epoch == now.epoch && last.warp == now.warp) {
        last.lanes = last.warp_epoch == now.warp_epoch ? last.lanes | now.lanes : now.lanes;
        last.warp_epoch = now.warp_epoch;
        last.origin = now.origin;
        return;
    }
    if (!moment.of_this_block(last)) {
        cell.other_block = last;
    } else if (last.epoch == now.epoch) {
        if (!moment.of_this_block(cell.other_warp) && cell.other_warp.epoch > cell.other_block.epoch) {
            cell.other_block = cell.other_warp;
        }
        cell.other_warp = last;
    }
    last = now;
}

} // namespace flash::simt
