#include "common/simt/observers/trace.hpp"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "common/simt/instructions/warpgroup.hpp"
#include "common/simt/machine/layout.hpp"
#include "common/simt/machine/program.hpp"
#include "common/simt/observers/turns.hpp"

namespace flash::simt {
namespace {

using nlohmann::json;

json triple(dim3 size) { return {size.x, size.y, size.z}; }

std::string base64(const std::vector<uint8_t>& bytes) {
    constexpr char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string text;
    for (size_t i = 0; i < bytes.size(); i += 3) {
        const auto byte = [&](size_t place) -> uint32_t {
            return place < bytes.size() ? bytes[place] : 0;
        };
        const uint32_t three = byte(i) << 16 | byte(i + 1) << 8 | byte(i + 2);
        for (unsigned digit = 0; digit < 4; ++digit) {
            const bool filler = i + digit > bytes.size();
            text += filler ? '=' : digits[three >> (18 - 6 * digit) & 63];
        }
    }
    return text;
}

class TraceWriter {
  public:
    TraceWriter(Recording& recording, Block& block) : recording_(recording), block_(block) {
        std::vector<LocationId> origins;
        for (const Site& site : recording.sites) {
            origins.push_back(site.origin);
        }
        lines_ = resolve(origins);
        drop_known_lines();
    }

    json document(const std::map<LocationId, Counters>& counted, const Fault* fault) {
        const Launch& launch = block_.launch();
        std::optional<Place> where, other;
        if (fault != nullptr) {
            where = find(fault->where);
            other = fault->has_other ? find(fault->other) : std::nullopt;
        }
        turns_ = take_turns(recording_, where);
        json all = {{"format", "flash-steps trace"}, {"version", 1}};
        all["run"] = {{"arguments", program_arguments()},
                      {"kernel", block_.kernel().name},
                      {"grid", triple(launch.grid)},
                      {"block", triple(launch.block)},
                      {"index", triple(dim3(block_.index()))},
                      {"schedule", to_string(options().schedule)},
                      {"copies", options().cp_async == CpAsync::late ? "late" : "early"}};
        all["shared"] = shared();
        all["buffers"] = buffers();
        all["barriers"] = json::array(); // filled by sites()
        all["sites"] = sites(all["barriers"]);
        all["patterns"] = patterns();
        all["steps"] = steps();
        all["works"] = works();
        all["costs"] = costs(counted);
        all["files"] = files_;
        if (fault != nullptr) {
            const Fault told = completed(*fault);
            all["fault"] = {{"name", told.name},
                            {"text", told.what()},
                            {"summary", told.summary},
                            {"hint", told.hint},
                            {"where", action(told.where, where)}};
            if (told.has_other) {
                all["fault"]["other"] = action(told.other, other);
            }
            all["files"] = files_;
        }
        return all;
    }

  private:
    bool is_line(const Step& step) const {
        return std::string_view(recording_.sites[step.site].operation) == "line";
    }

    /// That a warp comes to a line is told only where no instruction beside it tells it.
    void drop_known_lines() {
        for (auto& steps : recording_.warps) {
            std::vector<Step> kept;
            for (size_t i = 0; i < steps.size(); ++i) {
                const SourceLine& own = lines_[steps[i].site];
                const bool known =
                    is_line(steps[i]) &&
                    (own.line == 0 || (!kept.empty() && lines_[kept.back().site] == own) ||
                     (i + 1 < steps.size() && lines_[steps[i + 1].site] == own));
                if (!known) {
                    kept.push_back(std::move(steps[i]));
                }
            }
            steps = std::move(kept);
        }
    }

    /// The last time that a thread was there.
    std::optional<Place> find(const ThreadAction& action) const {
        const dim3 size = block_.launch().block;
        const uint3 own = block_.index();
        if (action.block.x != own.x || action.block.y != own.y || action.block.z != own.z) {
            return std::nullopt;
        }
        const unsigned thread =
            action.thread.x + size.x * (action.thread.y + size.y * action.thread.z);
        const SourceLine line = resolve({action.origin}).front();
        const auto& steps = recording_.warps[thread / 32];
        for (size_t i = steps.size(); i-- > 0;) {
            if (!is_line(steps[i]) && lines_[steps[i].site] == line &&
                (steps[i].lanes >> thread % 32 & 1) != 0) {
                return Place{thread / 32, i};
            }
        }
        return std::nullopt;
    }

    json action(const ThreadAction& action, std::optional<Place> place) {
        json told = {{"block", triple(action.block)},
                     {"thread", triple(action.thread)},
                     {"action", action.action},
                     {"file", file(action.line.file)},
                     {"line", action.line.line}};
        for (size_t i = 0; place && i < turns_.steps.size(); ++i) {
            if (turns_.steps[i].warp == place->warp && turns_.steps[i].index == place->index) {
                told["step"] = i;
            }
        }
        return told;
    }

    size_t file(const std::string& name) {
        const auto found = std::ranges::find(files_, name);
        if (found == files_.end()) {
            files_.push_back(name);
            return files_.size() - 1;
        }
        return static_cast<size_t>(found - files_.begin());
    }

    static json described(const Region& region, int64_t place) {
        return {{"name", region.name},       {"at", place + static_cast<int64_t>(region.offset)},
                {"bytes", region.bytes},     {"type", region.type},
                {"element", region.element}, {"dims", region.dims}};
    }

    json shared() const {
        const SharedMemory& memory = block_.shared();
        json variables = json::array();
        int64_t end = static_cast<int64_t>(memory.dynamic_bytes());
        for (const Region& region :
             dynamic_layout(block_.launch().kernel, memory.dynamic_bytes())) {
            variables.push_back(described(region, 0));
        }
        for (const SharedVariable& variable : block_.kernel().shared) {
            const int64_t place = recording_.static_base + static_cast<int64_t>(variable.offset);
            const std::vector<Region> parts = static_layout(block_.launch().kernel, variable);
            for (const Region& region : parts) {
                variables.push_back(described(region, place));
            }
            if (parts.empty()) {
                variables.push_back(
                    {{"name", variable.name}, {"at", place}, {"bytes", variable.bytes}});
            }
            end = std::max(end, place + static_cast<int64_t>(variable.bytes));
        }
        return {{"bytes", end}, {"dynamic", memory.dynamic_bytes()}, {"variables", variables}};
    }

    json buffers() const {
        json all = json::array();
        for (const auto& [number, buffer] : recording_.buffers) {
            all.push_back({{"name", buffer.name}, {"at", buffer.base}, {"bytes", buffer.bytes}});
        }
        return all;
    }

    json barrier(const void* at) {
        const SharedMemory& memory = block_.shared();
        const auto* const address = static_cast<const char*>(at);
        json own = {{"phases", recording_.phases[at]}};
        const auto& named = block_.state<NamedBarriers>().at;
        const auto* const known = static_cast<const NamedBarrier*>(at);
        if (at == &block_) {
            own["kind"] = "block";
        } else if (!std::less<>()(known, named.data()) &&
                   std::less<>()(known, named.data() + named.size())) {
            own["kind"] = "named";
            own["number"] = known - named.data();
        } else {
            own["kind"] = "mbarrier";
            own["at"] = memory.is_dynamic(address)
                            ? address - memory.dynamic()
                            : recording_.static_base + (address - memory.segment().begin);
        }
        return own;
    }

    json sites(json& barriers) {
        std::vector<const void*> known;
        json all = json::array();
        for (size_t i = 0; i < recording_.sites.size(); ++i) {
            const Site& site = recording_.sites[i];
            json own = {{"operation", site.operation},
                        {"file", file(lines_[i].file)},
                        {"line", lines_[i].line}};
            if (site.space != Space::elsewhere) {
                own["space"] = site.space == Space::shared ? "shared" : "global";
            }
            if (site.bytes != 0) {
                own["bytes"] = site.bytes;
            }
            if (site.async) {
                own["async"] = true;
            }
            if (site.at != nullptr) {
                auto found = std::ranges::find(known, site.at);
                if (found == known.end()) {
                    barriers.push_back(barrier(site.at));
                    found = known.insert(found, site.at);
                }
                own["barrier"] = found - known.begin();
            }
            all.push_back(own);
        }
        return all;
    }

    json patterns() const {
        json all = json::array();
        for (const Pattern& pattern : recording_.patterns) {
            json own = {{"lanes", pattern.lanes}};
            if (!pattern.offsets.empty()) {
                own["offsets"] = pattern.offsets;
            }
            if (!pattern.runs.empty()) {
                own["runs"] = pattern.runs;
            }
            all.push_back(own);
        }
        return all;
    }

    /// Columns; an address is told as its distance from the one before of the same warp and site.
    json steps() const {
        std::vector<int64_t> warp, site, pattern, base, pattern2, base2, number, ended_by;
        std::vector<uint8_t> data;
        std::map<std::pair<unsigned, uint32_t>, std::pair<int64_t, int64_t>> before;
        for (const Turn& turn : turns_.steps) {
            warp.push_back(turn.warp == engine ? -1 : static_cast<int64_t>(turn.warp));
            ended_by.push_back(turn.ended_by);
            if (turn.warp == engine) {
                for (auto* const column : {&site, &pattern, &base, &pattern2, &base2}) {
                    column->push_back(0);
                }
                number.push_back(static_cast<int64_t>(turn.index));
                continue;
            }
            const Step& step = recording_.warps[turn.warp][turn.index];
            auto& [first, second] = before[{turn.warp, step.site}];
            site.push_back(step.site);
            pattern.push_back(step.first.pattern);
            base.push_back(step.first.base - std::exchange(first, step.first.base));
            pattern2.push_back(step.second.pattern);
            base2.push_back(step.second.base - std::exchange(second, step.second.base));
            number.push_back(step.number);
            data.insert(data.end(), step.data.begin(), step.data.end());
        }
        return {{"warp", warp},     {"site", site},         {"pattern", pattern},
                {"base", base},     {"pattern2", pattern2}, {"base2", base2},
                {"number", number}, {"ended_by", ended_by}, {"data", base64(data)}};
    }

    json works() const {
        json all = json::array();
        for (const RecordedWork& work : turns_.works) {
            all.push_back({{"kind", work.kind},
                           {"warp", work.warp},
                           {"steps", work.steps},
                           {"end", work.end}});
        }
        return all;
    }

    json costs(const std::map<LocationId, Counters>& counted) {
        std::vector<LocationId> origins;
        for (const auto& [origin, counters] : counted) {
            origins.push_back(origin);
        }
        const std::vector<SourceLine> lines = resolve(origins);
        std::map<SourceLine, Counters> by_line;
        for (size_t i = 0; i < origins.size(); ++i) {
            by_line[lines[i]] += counted.at(origins[i]);
        }
        json all = json::array();
        for (const auto& [line, own] : by_line) {
            uint64_t products = 0;
            for (const uint64_t count : own.wgmma) {
                products += count;
            }
            GlobalTraffic global = own.global_load;
            global += own.global_store;
            SharedTraffic shared = own.shared_load;
            shared += own.shared_store;
            shared += own.async_store;
            all.push_back(
                {{"file", file(line.file)},
                 {"line", line.line},
                 {"global_requests", global.requests},
                 {"sectors", global.sectors},
                 {"ideal_sectors", global.ideal},
                 {"shared_requests", shared.requests},
                 {"wavefronts", shared.wavefronts},
                 {"ideal_wavefronts", shared.ideal},
                 {"barriers", own.barriers},
                 {"collectives", own.collectives},
                 {"mma", own.mma},
                 {"ldmatrix", own.ldmatrix},
                 {"cp_async", own.cp_async},
                 {"atomics", own.atomics},
                 {"tma", own.tma_load.requests + own.tma_store.requests + own.bulk_reduce.requests},
                 {"wgmma", products}});
        }
        return all;
    }

    Recording& recording_;
    Block& block_;
    std::vector<SourceLine> lines_; // of each site
    Turns turns_;
    std::vector<std::string> files_;
};

void write(const std::string& path, const json& document) {
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    file << document.dump() << '\n';
    if (!file.flush()) {
        throw Error("cannot write the recording, '" + path + "'");
    }
}

} // namespace

void write_trace(const std::string& path, Recording& recording, Block& block,
                 const std::map<LocationId, Counters>& counted, const Fault* fault) {
    write(path, TraceWriter(recording, block).document(counted, fault));
}

void write_elsewhere(const std::string& path, const Fault& fault) {
    const Fault told = completed(fault);
    write(path, {{"kernel", told.kernel}, {"index", triple(told.where.block)}});
}

} // namespace flash::simt
