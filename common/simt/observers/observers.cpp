#include "common/simt/observers/observers.hpp"

#include <mutex>
#include <optional>

#include "common/simt/machine/observer_factory.hpp"
#include "common/simt/observers/detector.hpp"
#include "common/simt/observers/recorder.hpp"

namespace flash::simt {
namespace {

// Of this OS thread and its block. They outlive a launch: global memory remembers the detector's
// epochs.
thread_local std::optional<Detector> detector;
thread_local std::optional<Counting> counting;
thread_local std::optional<Recorder> recorder;

class Watch final : public ObserverFactory {
  public:
    void begin_launch() override {
        counted_.clear();
        past_.begin_launch();
    }

    Observers observers(Block& block) override {
        Observers chosen;
        if (options().count) {
            (counting ? *counting : counting.emplace(block)).begin_launch();
            chosen.push_back(&*counting);
            const std::lock_guard lock(mutex_);
            counted_.push_back(&*counting);
        }
        if (recording_wanted()) {
            (recorder ? *recorder : recorder.emplace(block)).add_to(chosen);
        }
        sole_detector = nullptr;
        if (options().detect) {
            Detector& own = detector ? *detector : detector.emplace(block, past_);
            own.begin_launch();
            sole_detector = chosen.size() == 0 ? &own : nullptr;
            chosen.push_back(&own); // last, because it may stop the block
        }
        return chosen;
    }

    void end_launch(const Launch& launch, const Kernel& kernel) override {
        if (options().detect) {
            past_.tell_touches();
        }
        if (counted_.empty()) {
            return;
        }
        auto found = std::ranges::find(tallies(), kernel.name, &KernelTally::name);
        if (found == tallies().end()) {
            found = tallies().emplace(found);
            found->name = kernel.name;
        }
        ++found->launches;
        found->grid = launch.grid;
        found->block = launch.block;
        found->shared_bytes = launch.smem_bytes + kernel.shared_bytes;
        for (const Counting* const one : counted_) {
            found->tally += one->tally();
        }
        for (const auto& [offset, bytes] : found->tally.borrowed) {
            found->shared_bytes += bytes;
        }
    }

  private:
    std::mutex mutex_;
    std::vector<const Counting*> counted_; // during this launch
    GlobalPast& past_ = *new GlobalPast;   // workers and their detectors may end later
};

} // namespace

constinit thread_local Detector* sole_detector = nullptr;

void start_watching() {
    static Watch watch;
    observer_factory = &watch;
}

std::vector<KernelTally>& tallies() {
    static std::vector<KernelTally> all;
    return all;
}

} // namespace flash::simt
