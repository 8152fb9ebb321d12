// A first look at shared memory, cheap enough for the inner loop of a matrix product. It knows
// barriers of the whole block and nothing else, so it may doubt what is right, but passes nothing
// that is wrong. Where it doubts, the launch is watched again, by the detector itself.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/simt/machine/observer.hpp"
#include "common/simt/machine/shared_memory.hpp"

namespace flash::simt {

/// Passes an access if no other thread has written the word since the last barrier, and before that
/// somebody of the block has (a load), or no other thread has touched it since then (a store).
class QuickCheck {
  public:
    /// Of a kernel for which the quick check is to look on.
    void begin_block(const SharedMemory& shared, const Kernel& kernel);
    void turn_off() { variables_.bytes = dynamic_.bytes = 0; }

    /// False when there are no more numbers.
    bool barrier() { return (epoch_ += 1 << thread_bits) < last_epoch; }

    /// False also for addresses elsewhere.
    [[gnu::always_inline]] bool passes(const void* address, unsigned bytes, AccessKind kind,
                                       unsigned thread) {
        auto offset = static_cast<size_t>(static_cast<const char*>(address) - variables_.begin);
        Word* words = variables_.words;
        if (offset >= variables_.bytes) {
            offset = static_cast<size_t>(static_cast<const char*>(address) - dynamic_.begin);
            words = dynamic_.words;
            if (offset >= dynamic_.bytes) {
                return false;
            }
        }
        if (offset % bytes != 0) {
            return false;
        }
        Word* const first = words + offset / 4;
        const uint32_t now = epoch_ | thread;
        if (bytes <= 4) {
            return kind == AccessKind::load ? may_read(*first, now)
                                            : bytes == 4 && may_write(*first, now);
        }
        for (unsigned n = 0; n < bytes / 4; ++n) {
            if (!(kind == AccessKind::load ? may_read(first[n], now) : may_write(first[n], now))) {
                return false;
            }
        }
        return true;
    }

    /// When four bytes were written and read last, and by whom: an epoch, and the number of a
    /// thread of the block, or `many`.
    struct Word {
        uint32_t written = 0;
        uint32_t read = 0;
    };

  private:
    static constexpr uint32_t thread_bits = 11, many = 1 << 10;
    static constexpr uint32_t last_epoch = ~uint32_t{0} << thread_bits;

    struct Range {
        const char* begin = nullptr;
        size_t bytes = 0; // a multiple of 16
        Word* words = nullptr;
    };

    bool may_read(Word& word, uint32_t now) const {
        if (word.written != now && (word.written >= epoch_ || word.written < block_begin_)) {
            return false;
        }
        if (word.read != now) {
            word.read = word.read < epoch_ ? now : epoch_ | many;
        }
        return true;
    }
    bool may_write(Word& word, uint32_t now) const {
        if ((word.written >= epoch_ && word.written != now) ||
            (word.read >= epoch_ && word.read != now)) {
            return false;
        }
        word.written = now;
        return true;
    }

    // Epochs begin with barriers and with blocks; they are counted in units of 1 << thread_bits.
    uint32_t epoch_ = 0, block_begin_ = 0;
    Range variables_, dynamic_;
    const Kernel* kernel_ = nullptr; // whose variables they are
};

/// That of this OS thread.
extern constinit thread_local QuickCheck quick_check;

} // namespace flash::simt
