// What is remembered of memory: of each word, or of each byte where they are used apart, who has
// written it last, and who has read or atomically updated it since.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "common/simt/machine/device_memory.hpp"
#include "common/simt/observers/access.hpp"

namespace flash::simt {

/// Reads and atomic operations since the last write.
struct Reads {
    Access last;
    uint32_t more = 0;         // others in the epoch of the last one: a list in RaceDetector's pool
    uint32_t readers = 0;      // works that read: a list of EngineReaders
    uint32_t readers_from = 0; // epoch in which their block began
    uint32_t atomics = 0;      // whether there are atomic operations among them
    // Of other blocks, the latest first. And of this one what `last` does not stand for, because
    // others may meet `last` without a race.
    std::array<Access, 2> others;
    friend bool operator==(const Reads&, const Reads&) = default;
};

/// An access, and those before it in a list.
struct ListedAccess {
    Access access;
    uint32_t next;
    friend bool operator==(const ListedAccess&, const ListedAccess&) = default;
};

/// A list of works that read. Equal lists have one number, so that memory that was read alike has
/// the same past.
struct EngineReaders {
    uint32_t first = 0, count = 0; // works that read together
    uint32_t next = 0;             // where the list goes on; 0: it ends
    friend bool operator==(const EngineReaders&, const EngineReaders&) = default;
};

/// Four bytes of memory, or one when they are used apart: the number of its last write, and 32
/// times that of its Reads, plus the frame.
struct Cell {
    uint32_t write = 0;
    uint32_t since : 31 = 0;
    uint32_t apart : 1 = 0; // its other three bytes have cells of their own
    friend bool operator==(const Cell&, const Cell&) = default;
};
static_assert(sizeof(Cell) == 8);

class Shadow;

/// Those of all global memory.
struct Shadows {
    std::mutex mutex;
    std::vector<Shadow*> all;
    std::vector<Shadow*> touched; // by this launch

    /// Calls `use(cell)` with each cell.
    // returns how many words they have
    template <class Use> size_t visit(Use use);
};

/// Cells for a range of memory; those that are never touched cost nothing.
class Shadow final : public Buffer::Notes {
  public:
    /// `list`: those of global memory, which this one joins; null for shared memory.
    Shadow(const char* begin, size_t bytes, Shadows* list = nullptr);
    ~Shadow() override;
    Shadow(const Shadow&) = delete;
    Shadow& operator=(const Shadow&) = delete;

    /// Calls `use(cell)` with each cell of an access, at an address that is a multiple of its size.
    template <class Use> void visit(const char* address, unsigned bytes, bool store, Use use) {
        size_t word = static_cast<size_t>(address - begin_) / 4;
        if (bytes < 4) {
            take_apart(word);
            const size_t first = reinterpret_cast<size_t>(address) % 4;
            for (size_t byte = first; byte < first + bytes; ++byte) {
                use(cells_[byte * words_ + word]);
            }
            return;
        }
        for (unsigned offset = 0; offset < bytes; offset += 4, ++word) {
            use(cells_[word]);
            if (cells_[word].apart != 0) [[unlikely]] {
                for (size_t byte = 1; byte < 4; ++byte) {
                    use(cells_[byte * words_ + word]);
                }
                cells_[word].apart = !store; // a whole word written is one again
            }
        }
    }

    /// Calls `use(cell)` with each cell.
    template <class Use> void visit(Use use) {
        for (size_t word = 0; word < words_; ++word) {
            const unsigned cells = cells_[word].apart != 0 ? 4 : 1;
            for (unsigned byte = 0; byte < cells; ++byte) {
                use(cells_[byte * words_ + word]);
            }
        }
    }

    /// Calls `use(first byte, cells)` with the cells of each word: one, or four.
    template <class Use> void visit_words(Use use) const {
        for (size_t word = 0; word < words_; ++word) {
            std::array<Cell, 4> cells{cells_[word]};
            const size_t count = cells[0].apart != 0 ? 4 : 1;
            for (size_t byte = 1; byte < count; ++byte) {
                cells[byte] = cells_[byte * words_ + word];
            }
            use(begin_ + 4 * word, std::span(cells.data(), count));
        }
    }

    const char* begin() const { return begin_; }
    size_t words() const { return words_; }

    bool touched = false; // by this launch

    void clear();

    Cell* cell(const char* address) const {
        return cells_ + static_cast<size_t>(address - begin_) / 4;
    }

    /// The cells of an access, if none of them is taken apart; else none.
    std::span<Cell> whole(const char* address, unsigned bytes) const {
        Cell* const first = cell(address);
        for (unsigned word = 0; word < bytes / 4; ++word) {
            if (first[word].apart != 0) {
                return {};
            }
        }
        return {first, bytes / 4};
    }

  private:
    void take_apart(size_t word) {
        if (cells_[word].apart == 0) {
            for (size_t byte = 1; byte < 4; ++byte) {
                cells_[byte * words_ + word] = cells_[word];
            }
            cells_[word].apart = 1;
        }
    }

    const char* begin_;
    size_t words_;
    Cell* cells_; // of the words, or their first bytes; then of all second bytes, and so on
    Shadows* list_;
};

template <class Use> size_t Shadows::visit(Use use) {
    const std::lock_guard lock(mutex);
    size_t words = 0;
    for (Shadow* const shadow : all) {
        shadow->visit(use);
        words += shadow->words();
    }
    return words;
}

} // namespace flash::simt
