#include "common/simt/observers/warp_log.hpp"

#include <bit>

namespace flash::simt {

void WarpLog::add_elsewhere(unsigned lane, RequestKey key, uint32_t value) {
    if (!by_place_ && next_[lane] == requests_.size()) { // this lane is the first to come so far
        requests_.push_back({key, 0});
        values_.emplace_back();
        join(next_[lane], lane, value);
        ++next_[lane];
        return;
    }
    if (!by_place_) {
        by_place_ = true;
        for (size_t i = 0; i < requests_.size(); ++i) {
            AtPlace& place = places_[requests_[i].key];
            place.requests.push_back(static_cast<uint32_t>(i));
            for (uint32_t lanes = requests_[i].lanes; lanes != 0; lanes &= lanes - 1) {
                ++place.used[static_cast<size_t>(std::countr_zero(lanes))];
            }
        }
    }
    AtPlace& place = places_[key];
    const uint32_t turn = place.used[lane]++;
    if (turn == place.requests.size()) {
        place.requests.push_back(static_cast<uint32_t>(requests_.size()));
        requests_.push_back({key, 0});
        values_.emplace_back();
    }
    join(place.requests[turn], lane, value);
}

void WarpLog::clear() {
    requests_.clear();
    values_.clear();
    places_.clear();
    next_.fill(0);
    by_place_ = false;
}

} // namespace flash::simt
