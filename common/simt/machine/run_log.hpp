// What was found in this run, over all of its launches.
#pragma once

#include <atomic>
#include <csignal>
#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "common/simt/machine/fault.hpp"

namespace flash::simt {

/// What makes a fault or a warning another one than those before: its kind and its two places.
using FaultKey = std::tuple<FaultKind, LocationId, LocationId>;
FaultKey key_of(const Fault& fault);

struct KernelRuns {
    std::string name;
    uint64_t launches = 0;
    uint64_t watched = 0; // by the detector
    uint64_t sampled = 0; // not all blocks ran
};

/// The signal in whose name a program ends that has had all of its Options::seconds.
constexpr int out_of_time = SIGXCPU;

class RunLog {
  public:
    /// A launch of `kernel` begins: whether the detector watches it, as options() say.
    enum class Watched { no, yes, no_more };
    Watched begin_launch(const std::string& kernel);

    /// Of the launch that has begun a sample of the blocks runs; true for the first one of
    /// `kernel`.
    bool add_sample(const std::string& kernel);

    /// What was found in a launch, each with the turn of its block, in the order in which it is to
    /// be told. What is new and not to be ignored is completed, kept, and printed on stderr.
    void add(std::vector<std::pair<uint64_t, Fault>> found);

    /// A fault that is thrown, completed. It is kept once, and whoever catches it prints it.
    void add_last(const Fault& fault);

    /// A warning of the host's calls, complete but for that it is one: told once for each place.
    void add_warning(Fault warning);

    /// Prints those that nobody has printed so far. Who has caught one may have.
    void print_last();

    void add_unsupported(const std::string& what);
    void interrupt(int signal) { interrupted_by_ = signal; }

    const std::vector<Fault>& faults() const { return faults_; }
    const std::vector<Fault>& warnings() const { return warnings_; }
    const std::vector<KernelRuns>& kernels() const { return kernels_; }
    uint64_t launches() const;
    uint64_t watched() const;
    uint64_t sampled() const;
    const std::vector<std::string>& unsupported() const { return unsupported_; }
    int interrupted_by() const { return interrupted_by_; } // a signal; 0: none
    void clear();

  private:
    std::mutex mutex_;
    std::set<std::tuple<FaultKind, SourceLine, SourceLine>> told_;
    std::vector<Fault> faults_, warnings_;
    size_t printed_ = 0; // of faults_
    std::vector<std::string> unsupported_;
    std::atomic<int> interrupted_by_ = 0;
    std::vector<KernelRuns> kernels_; // in the order of their first launch
};

RunLog& run_log();

/// Whether one of the fault's accesses stands on a line that options() say to ignore. Finds out
/// lines, so it wants more stack than a fiber has.
bool is_ignored(const Fault& fault);

} // namespace flash::simt
