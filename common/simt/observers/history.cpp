#include "common/simt/observers/history.hpp"

#include <sys/mman.h>

#include "common/error.hpp"

namespace flash::simt {

Shadow::Shadow(const char* begin, size_t bytes, Shadows* list)
    : begin_(begin), words_(bytes / 4 + 1), list_(list) {
    void* const memory = mmap(nullptr, 4 * words_ * sizeof(Cell), PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        throw Error("not enough memory for what the detector remembers (a limit of ulimit?)");
    }
    cells_ = static_cast<Cell*>(memory);
    if (list != nullptr) {
        const std::lock_guard lock(list->mutex);
        list->all.push_back(this);
    }
}

Shadow::~Shadow() {
    if (list_ != nullptr) {
        const std::lock_guard lock(list_->mutex);
        std::erase(list_->all, this);
        std::erase(list_->touched, this);
    }
    munmap(cells_, 4 * words_ * sizeof(Cell));
}

void Shadow::clear() { madvise(cells_, 4 * words_ * sizeof(Cell), MADV_DONTNEED); }

} // namespace flash::simt
