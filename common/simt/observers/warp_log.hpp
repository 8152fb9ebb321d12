// Puts the accesses of a warp's lanes together into requests.
//
// Lanes run one after the other here, while on a GPU a warp issues one instruction for all its
// lanes. So each lane's accesses are matched with those of the lanes before it: the k-th access
// that a lane makes at one place in the program, since the warp was last together, belongs to the
// same request as the k-th of the others. As long as a lane does what the lanes before it did,
// matching is one comparison; from the first difference on, requests are found by place.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "common/simt/machine/block.hpp"

namespace flash::simt {

/// What the accesses of one request have in common.
struct RequestKey {
    LocationId origin;
    AccessKind kind;
    Space space;
    uint8_t bytes;
    bool async; // part of a cp.async
    friend bool operator==(const RequestKey& a, const RequestKey& b) {
        return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b);
    }
};

class WarpLog {
  public:
    using Values = uint32_t[32];

    /// `value` says where: the sector in global memory, the 4-byte word in shared memory.
    void add(unsigned lane, RequestKey key, uint32_t value) {
        const size_t next = next_[lane];
        if (!by_place_ && next < requests_.size() && requests_[next].key == key) [[likely]] {
            join(next, lane, value);
            next_[lane] = static_cast<uint32_t>(next) + 1;
        } else {
            add_elsewhere(lane, key, value);
        }
    }

    /// Hands each request to `use(key, lanes, values)`, and begins anew.
    template <class Use> void flush(Use use) {
        for (size_t i = 0; i < requests_.size(); ++i) {
            use(requests_[i].key, requests_[i].lanes, values_[i].of_lane);
        }
        clear();
    }

    void clear();

  private:
    struct Request {
        RequestKey key;
        uint32_t lanes = 0;
    };
    struct LaneValues {
        Values of_lane;
        LaneValues() {} // not zeroed: `lanes` says which hold something
    };
    struct AtPlace {
        std::vector<uint32_t> requests;
        std::array<uint32_t, 32> used{}; // by each lane
    };
    struct Hash {
        size_t operator()(const RequestKey& key) const {
            return static_cast<size_t>(std::bit_cast<uint64_t>(key) * 0x9e3779b97f4a7c15u >> 20);
        }
    };

    void add_elsewhere(unsigned lane, RequestKey key, uint32_t value);
    void join(size_t request, unsigned lane, uint32_t value) {
        requests_[request].lanes |= 1u << lane;
        values_[request].of_lane[lane] = value;
    }

    std::vector<Request> requests_;
    // of the same requests; apart, because matching reads only the keys
    std::vector<LaneValues> values_;
    std::array<uint32_t, 32> next_{};
    bool by_place_ = false;
    std::unordered_map<RequestKey, AtPlace, Hash> places_;
};

} // namespace flash::simt
