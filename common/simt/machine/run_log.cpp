#include "common/simt/machine/run_log.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <numeric>

#include "common/simt/machine/simt_options.hpp"

namespace flash::simt {
namespace {

/// "flash_attention_2::flash_attention_2<64>" is called flash_attention_2, too.
std::string plain_name(const std::string& kernel) {
    const std::string name = kernel.substr(0, kernel.find('<'));
    const size_t scope = name.rfind("::");
    return scope == std::string::npos ? name : name.substr(scope + 2);
}

bool is_named(const std::string& kernel, const std::string& wanted) {
    return wanted.empty() || wanted == kernel || wanted == plain_name(kernel) ||
           wanted == kernel.substr(0, kernel.find('<'));
}

bool is_on(const SourceLine& place, const FileLine& line) {
    return place.line == line.line &&
           (place.file == line.file || place.file.ends_with("/" + line.file));
}

void print(const Fault& fault) {
    std::fflush(stdout); // what the program has printed comes first
    std::fprintf(stderr, "%s\n", fault.what());
}

template <class Number>
uint64_t sum(const std::vector<KernelRuns>& kernels, Number KernelRuns::*number) {
    return std::accumulate(
        kernels.begin(), kernels.end(), uint64_t{0},
        [number](uint64_t all, const KernelRuns& one) { return all + one.*number; });
}

} // namespace

FaultKey key_of(const Fault& fault) { return {fault.kind, fault.where.origin, fault.other.origin}; }

RunLog::Watched RunLog::begin_launch(const std::string& kernel) {
    const std::lock_guard lock(mutex_);
    auto found = std::ranges::find(kernels_, kernel, &KernelRuns::name);
    if (found == kernels_.end()) {
        found = kernels_.insert(found, KernelRuns{kernel});
    }
    const Options& chosen = options();
    const bool enough = chosen.launches != 0 && found->watched >= chosen.launches;
    const Watched watched = !chosen.detect || !is_named(kernel, chosen.kernel) ? Watched::no
                            : enough                                           ? Watched::no_more
                                                                               : Watched::yes;
    ++found->launches;
    found->watched += watched == Watched::yes ? 1 : 0;
    return watched;
}

bool RunLog::add_sample(const std::string& kernel) {
    const std::lock_guard lock(mutex_);
    return std::ranges::find(kernels_, kernel, &KernelRuns::name)->sampled++ == 0;
}

void RunLog::add(std::vector<std::pair<uint64_t, Fault>> found) {
    const std::lock_guard lock(mutex_);
    for (auto& [turn, one] : found) {
        if (is_ignored(one)) {
            continue;
        }
        const Fault fault = completed(std::move(one));
        if (told_.emplace(fault.kind, fault.where.line, fault.other.line).second) {
            print(fault);
            (fault.is_warning ? warnings_ : faults_).push_back(fault);
            printed_ += fault.is_warning ? 0 : 1;
        }
    }
}

void RunLog::add_last(const Fault& fault) {
    const std::lock_guard lock(mutex_);
    const auto same = [&](const Fault& known) {
        return std::strcmp(known.what(), fault.what()) == 0;
    };
    if (std::ranges::none_of(faults_, same)) {
        faults_.push_back(fault);
    }
}

void RunLog::add_warning(Fault warning) {
    const std::lock_guard lock(mutex_);
    warning.is_warning = true;
    static_cast<Error&>(warning) = Error(std::string("warning: ") + warning.what());
    if (told_.emplace(warning.kind, warning.where.line, warning.other.line).second) {
        print(warning);
        warnings_.push_back(std::move(warning));
    }
}

void RunLog::print_last() {
    const std::lock_guard lock(mutex_);
    for (; printed_ < faults_.size(); ++printed_) {
        print(faults_[printed_]);
    }
}

void RunLog::add_unsupported(const std::string& what) {
    const std::lock_guard lock(mutex_);
    std::fprintf(stderr, "%s\n", what.c_str());
    unsupported_.push_back(what);
}

uint64_t RunLog::launches() const { return sum(kernels_, &KernelRuns::launches); }
uint64_t RunLog::watched() const { return sum(kernels_, &KernelRuns::watched); }
uint64_t RunLog::sampled() const { return sum(kernels_, &KernelRuns::sampled); }

void RunLog::clear() {
    const std::lock_guard lock(mutex_);
    told_.clear();
    faults_.clear();
    warnings_.clear();
    kernels_.clear();
    unsupported_.clear();
    printed_ = 0;
    interrupted_by_ = 0;
}

RunLog& run_log() {
    static RunLog all;
    return all;
}

bool is_ignored(const Fault& fault) {
    const std::vector<FileLine>& ignored = options().ignore;
    if (ignored.empty()) {
        return false;
    }
    std::vector<LocationId> origins{fault.where.origin};
    if (fault.has_other) {
        origins.push_back(fault.other.origin);
    }
    const std::vector<SourceLine> lines = resolve(origins);
    return std::ranges::any_of(ignored, [&](const FileLine& one) {
        return std::ranges::any_of(lines,
                                   [&](const SourceLine& place) { return is_on(place, one); });
    });
}

} // namespace flash::simt
