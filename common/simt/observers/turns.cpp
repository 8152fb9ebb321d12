#include "common/simt/observers/turns.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <string_view>
#include <utility>

namespace flash::simt {
namespace {

enum class Role : uint8_t {
    plain,
    arrival, // at a barrier
    meeting, // an arrival that waits for the others
    wait,    // for a phase of an mbarrier
    copies,  // an arrival that follows the warp's copies
    copy,    // starts one, by cp.async
    commit_copies,
    wait_copies,
    load, // by TMA
    store,
    commit_stores,
    wait_stores,
    product,
    commit_products,
    wait_products,
};

Role role_of(std::string_view operation) {
    static const std::map<std::string_view, Role> roles = {
        {"__syncthreads", Role::meeting},
        {"__syncthreads_or", Role::meeting},
        {"named_barrier_sync", Role::meeting},
        {"named_barrier_arrive", Role::arrival},
        {"mbarrier_arrive", Role::arrival},
        {"mbarrier_expect_tx", Role::arrival},
        {"cp_async_mbarrier_arrive", Role::copies},
        {"mbarrier_wait", Role::wait},
        {"cp.async", Role::copy},
        {"cp_async_commit", Role::commit_copies},
        {"cp_async_wait", Role::wait_copies},
        {"tma_load", Role::load},
        {"bulk_load", Role::load},
        {"tma_store", Role::store},
        {"bulk_store", Role::store},
        {"bulk_reduce_add", Role::store},
        {"bulk_commit", Role::commit_stores},
        {"bulk_wait", Role::wait_stores},
        {"bulk_wait_read", Role::wait_stores},
        {"wgmma", Role::product},
        {"wgmma_commit", Role::commit_products},
        {"wgmma_wait", Role::wait_products},
    };
    const auto found = roles.find(operation);
    return found == roles.end() ? Role::plain : found->second;
}

/// A phase of a barrier: who has come, and what ended it.
struct Phase {
    unsigned awaited = 0; // arrivals of lanes, and loads that begin
    unsigned come = 0;
    bool ends = false;           // in the recording
    std::vector<size_t> landing; // works that land when somebody waits
    int64_t ended_by = -1;
    uint64_t round = 0; // in which the last one came
    bool over() const { return ended_by >= 0; }
};

/// A warp's works of one kind: those that a wait can still be for.
struct Groups {
    std::vector<size_t> open; // steps since the last commit
    std::vector<size_t> committed;
};

class Arranger {
  public:
    Arranger(const Recording& recording, std::optional<Place> last)
        : recording_(recording), last_(last) {
        for (const Site& site : recording.sites) {
            roles_.push_back(role_of(site.operation));
        }
        expect();
    }

    Turns arrange() {
        while (true) {
            ++round_;
            bool moved = false;
            for (unsigned warp = 0; warp < 32; ++warp) {
                moved |= advance(warp, false);
            }
            moved |= land();
            if (!moved && !force()) {
                break;
            }
        }
        for (const auto& waiting : waits_at_) { // of warps that have nothing more to do
            if (waiting) {
                turns_.steps[waiting->turn].ended_by = phases_[waiting->first].ended_by;
            }
        }
        return std::move(turns_);
    }

  private:
    using Key = std::pair<const void*, int64_t>;

    const Step* next(unsigned warp) const {
        const auto& steps = recording_.warps[warp];
        return at_[warp] < steps.size() ? &steps[at_[warp]] : nullptr;
    }
    const Site& site(const Step& step) const { return recording_.sites[step.site]; }

    /// The four warps of a warpgroup meet for a product.
    Key meeting_of_product(unsigned warp, const Step& step) const {
        return {&recording_.warps[warp / 4 * 4], step.number};
    }

    Key key_of(unsigned warp, const Step& step) const {
        return roles_[step.site] == Role::product ? meeting_of_product(warp, step)
                                                  : Key{site(step).at, step.number};
    }

    /// How many come to each phase.
    void expect() {
        for (unsigned warp = 0; warp < 32; ++warp) {
            for (const Step& step : recording_.warps[warp]) {
                const Role role = roles_[step.site];
                if (role == Role::arrival || role == Role::meeting || role == Role::copies ||
                    role == Role::load || role == Role::product) {
                    Phase& phase = phases_[key_of(warp, step)];
                    phase.awaited += weight(step);
                    const auto ended = recording_.phases.find(site(step).at);
                    phase.ends = role == Role::product ||
                                 (ended != recording_.phases.end() && step.number < ended->second);
                }
            }
        }
        for (auto& [key, phase] : phases_) {
            if (recording_.warps.data() <= key.first &&
                key.first < recording_.warps.data() + recording_.warps.size()) {
                phase.ends = phase.awaited == 4;
            }
        }
    }

    unsigned weight(const Step& step) const {
        const Role role = roles_[step.site];
        return role == Role::load || role == Role::product
                   ? 1
                   : static_cast<unsigned>(std::popcount(step.lanes));
    }

    /// The warp's next instruction, if it waits for nothing.
    bool advance(unsigned warp, bool forced) {
        const Step* const step = next(warp);
        if (step == nullptr ||
            (!forced && last_ && last_->warp == warp && last_->index == at_[warp])) {
            return false;
        }
        if (waits_at_[warp]) {
            const auto [key, turn] = *waits_at_[warp];
            const Phase& phase = phases_[key];
            if (!phase.over() && !forced) {
                return false;
            }
            turns_.steps[turn].ended_by = phase.ended_by;
            waits_at_[warp].reset();
        }
        issue(warp, *step);
        return true;
    }

    void issue(unsigned warp, const Step& step) {
        const size_t turn = turns_.steps.size();
        turns_.steps.push_back({warp, at_[warp]++});
        const Role role = roles_[step.site];
        switch (role) {
        case Role::plain:
            break;
        case Role::arrival:
        case Role::meeting:
            come(warp, step, turn);
            break;
        case Role::copies:
            phases_[key_of(warp, step)].landing.push_back(close(copies_[warp], "cp.async", warp));
            come(warp, step, turn);
            break;
        case Role::wait:
            break;
        case Role::copy:
            copies_[warp].open.push_back(turn);
            break;
        case Role::commit_copies:
            commit(copies_[warp], "cp.async", warp);
            break;
        case Role::wait_copies:
            end_groups(copies_[warp], step.number, turn);
            break;
        case Role::load:
            phases_[key_of(warp, step)].landing.push_back(turns_.works.size());
            turns_.works.push_back({site(step).operation, warp, {turn}, -1, site(step).at});
            come(warp, step, turn);
            break;
        case Role::store:
            stores_[warp].open.push_back(turn);
            break;
        case Role::commit_stores:
            commit(stores_[warp], "store", warp);
            break;
        case Role::wait_stores:
            end_groups(stores_[warp], step.number, turn);
            break;
        case Role::product:
            products_[warp].open.push_back(turn);
            come(warp, step, turn);
            break;
        case Role::commit_products:
            commit(products_[warp], "wgmma", warp);
            break;
        case Role::wait_products:
            end_groups(products_[warp], step.number, turn);
            break;
        }
        // The phase before the first has ended.
        const bool waits = role == Role::wait && step.number >= 0;
        if (role == Role::meeting || waits || role == Role::product) {
            waits_at_[warp] = {key_of(warp, step), turn};
        }
    }

    void come(unsigned warp, const Step& step, size_t turn) {
        Phase& phase = phases_[key_of(warp, step)];
        phase.come += weight(step);
        if (phase.come == phase.awaited && phase.ends) {
            phase.round = round_;
            if (phase.landing.empty()) {
                phase.ended_by = static_cast<int64_t>(turn);
            }
        }
    }

    size_t close(Groups& groups, const char* kind, unsigned warp) {
        turns_.works.push_back({kind, warp, std::exchange(groups.open, {})});
        return turns_.works.size() - 1;
    }

    void commit(Groups& groups, const char* kind, unsigned warp) {
        groups.committed.push_back(close(groups, kind, warp));
    }

    /// A wait: all groups but the last few are over.
    void end_groups(Groups& groups, int64_t in_flight, size_t turn) {
        const auto count = static_cast<int64_t>(groups.committed.size()) - in_flight;
        for (int64_t i = 0; i < count; ++i) {
            turns_.works[groups.committed[static_cast<size_t>(i)]].end = static_cast<int64_t>(turn);
        }
        groups.committed.erase(groups.committed.begin(),
                               groups.committed.begin() + std::max<int64_t>(count, 0));
    }

    /// What somebody waits for, and nothing else is missing, lands: a round after it could.
    bool land() {
        bool moved = false;
        for (const auto& waiting : waits_at_) {
            if (!waiting) {
                continue;
            }
            Phase& phase = phases_[waiting->first];
            if (phase.over() || !phase.ends || phase.come < phase.awaited) {
                continue;
            }
            moved = true;
            if (phase.round == round_) {
                continue;
            }
            for (const size_t work : phase.landing) {
                if (turns_.works[work].end < 0 && !turns_.works[work].steps.empty()) {
                    turns_.works[work].end = static_cast<int64_t>(turns_.steps.size());
                    turns_.steps.push_back({engine, work});
                }
            }
            phase.ended_by = static_cast<int64_t>(turns_.steps.size()) - 1;
        }
        return moved;
    }

    /// Nobody can go on: a deadlock, or the lanes of a warp went ways that its list does not show.
    bool force() {
        bool moved = false;
        for (unsigned warp = 0; warp < 32 && !moved; ++warp) {
            const bool held = last_ && last_->warp == warp && last_->index == at_[warp];
            moved = !held && next(warp) != nullptr && advance(warp, true);
        }
        return moved || (last_ && at_[last_->warp] == last_->index && advance(last_->warp, true));
    }

    const Recording& recording_;
    std::optional<Place> last_;
    std::vector<Role> roles_; // of each site
    std::map<Key, Phase> phases_;
    std::array<size_t, 32> at_{};
    struct Waiting {
        Key first;
        size_t turn;
    };
    std::array<std::optional<Waiting>, 32> waits_at_;
    std::array<Groups, 32> copies_, stores_, products_;
    uint64_t round_ = 0;
    Turns turns_;
};

} // namespace

Turns take_turns(const Recording& recording, std::optional<Place> last) {
    return Arranger(recording, last).arrange();
}

} // namespace flash::simt
