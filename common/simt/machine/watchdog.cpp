#include "common/simt/machine/watchdog.hpp"

#include <algorithm>
#include <bit>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <map>
#include <set>

#include "common/simt/machine/one_per_process.hpp"
#include "common/simt/machine/printing.hpp"
#include "common/simt/machine/run_log.hpp"
#include "common/simt/machine/simt_options.hpp"
#include "common/simt/machine/symbols.hpp"
#include "common/simt/machine/traps.hpp"

namespace flash::simt {
namespace {

using namespace std::chrono_literals;

// Ignored unless somebody handles it, and hardly used by programs.
constexpr int hold_signal = SIGURG;

constexpr auto look_every = 100ms;
constexpr auto between_attempts = 1ms;
constexpr int attempts = 3000;    // at a worker that is hardly ever in the kernel's own code
constexpr int samples = 20;       // of where a thread spins
constexpr unsigned patience = 10; // times the timeout, for kernels whose threads meet on and on

const Executable own_code = executable();

std::string text_of(LocationId place) {
    const SourceLine line = resolve({place}).front();
    return line.line == 0 ? "" : line.file + ":" + std::to_string(line.line);
}

/// "warps 0-3", "warp 4 (8 lanes)"
class Warps {
  public:
    void add(unsigned warp, uint32_t lanes) { lanes_[warp] |= lanes; }
    unsigned first() const { return lanes_.begin()->first; }

    std::string text(unsigned threads) const {
        std::string ranges, partial;
        unsigned whole = 0;
        for (auto one = lanes_.begin(); one != lanes_.end();) {
            if (!is_whole(*one, threads)) {
                partial += (partial.empty() ? "" : ", ") + std::to_string(one->first) + " (" +
                           plural(static_cast<unsigned>(std::popcount(one->second)), "lane") + ")";
                ++one;
                continue;
            }
            const unsigned begin = one->first;
            unsigned end = begin;
            for (; one != lanes_.end() && one->first == end && is_whole(*one, threads); ++one) {
                ++end;
            }
            whole += end - begin;
            ranges += (ranges.empty() ? "" : ", ") + std::to_string(begin) +
                      (end - begin > 1 ? "-" + std::to_string(end - 1) : "");
        }
        const bool both = !ranges.empty() && !partial.empty();
        return (lanes_.size() == 1 ? "warp " : "warps ") + ranges + (both ? ", " : "") + partial;
    }

  private:
    static bool is_whole(const std::pair<const unsigned, uint32_t>& one, unsigned threads) {
        const unsigned lanes = std::min(threads - one.first * 32, 32u);
        return one.second == full_mask >> (32 - lanes);
    }

    std::map<unsigned, uint32_t> lanes_;
};

} // namespace

constinit thread_local Watchdog::Worker* Watchdog::own_ = nullptr;
constinit std::atomic<Watchdog::Finish> Watchdog::finish_ = nullptr;
constinit std::atomic<int> Watchdog::signal_ = 0;

Watchdog::Watchdog() : thread_([this](const std::stop_token& closing) { serve(closing); }) {
    struct sigaction action {};
    action.sa_sigaction = obey;
    // not blocked: the handler may leave without returning
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER | SA_RESTART;
    sigaction(hold_signal, &action, nullptr);
}

Watchdog::~Watchdog() = default;

void Watchdog::handle_interrupts(Finish finish) {
    finish_ = finish;
    struct sigaction action {};
    action.sa_handler = note_interrupt;
    action.sa_flags = SA_RESTART;
    sigaction(SIGINT, &action, nullptr);
    sigaction(SIGTERM, &action, nullptr);
}

void Watchdog::note_interrupt(int signal) {
    if (signal_.exchange(signal) != 0) {
        _exit(128 + signal); // the second one: at once
    }
}

Watchdog::Shift::Shift(Block& block) {
    Watchdog& dog = watchdog();
    const std::lock_guard lock(dog.mutex_);
    own_ = &dog.workers_.emplace_back(block);
    dog.without_meeting_ = dog.without_end_ = 0;
}

Watchdog::Shift::~Shift() {
    Watchdog& dog = watchdog();
    const std::lock_guard lock(dog.mutex_);
    dog.workers_.remove_if([](const Worker& worker) { return &worker == own_; });
    own_ = nullptr;
}

void Watchdog::Worker::wait_to_be_released() const {
    while (state == State::held) {
        const timespec moment{0, 1000000};
        nanosleep(&moment, nullptr);
    }
}

std::optional<Fault> Watchdog::hold_spinning_block() {
    Worker* const own = own_;
    State asked = State::asked;
    if (own == nullptr || own->state != asked) {
        return std::nullopt;
    }
    own->place = own->block->current().look.origin;
    if (!own->state.compare_exchange_strong(asked, State::held)) {
        return std::nullopt;
    }
    own->wait_to_be_released();
    return own->state == State::given_up ? std::exchange(own->fault, std::nullopt) : std::nullopt;
}

/// The signal's handler, on the trap stack of a worker.
void Watchdog::obey(int, siginfo_t*, void* context) {
    Worker* const own = own_;
    const char* const code = static_cast<const char*>(program_counter(context));
    const bool in_kernel = kernel_at_work && code >= own_code.begin && code < own_code.end;
    if (own == nullptr || own->state != State::asked || !in_kernel) {
        return;
    }
    own->place = LocationId::of_code(code + 1, own_code.load_address);
    own->state = State::held;
    own->wait_to_be_released();
    if (own->state == State::given_up) {
        const RuntimeCode runtime;
        own->block->stop(*std::move(own->fault));
    }
}

/// True when the worker waits in the kernel's own code; else it was nowhere to be had.
bool Watchdog::hold(Worker& worker) {
    for (int i = 0; i < attempts; ++i) {
        worker.state = State::asked;
        pthread_kill(worker.thread, hold_signal);
        std::this_thread::sleep_for(between_attempts);
        State asked = State::asked;
        if (!worker.state.compare_exchange_strong(asked, State::at_work)) {
            return true;
        }
    }
    return false;
}

/// Where a line of the kernel is known, as well; there is none of the calls that tell of accesses.
bool Watchdog::hold_at_line(Worker& worker) {
    constexpr int at_calls = 500; // at most: where accesses are watched, most time goes by there
    for (int i = 0; i < at_calls && hold(worker); ++i) {
        if (!text_of(worker.place).empty()) {
            return true;
        }
        worker.state = State::released;
    }
    return hold(worker);
}

void Watchdog::serve(const std::stop_token& closing) {
    std::unique_lock lock(mutex_);
    auto last = std::chrono::steady_clock::now();
    while (!closing.stop_requested()) {
        wake_.wait_for(lock, closing, look_every, [] { return false; });
        if (const int signal = signal_; signal != 0 && finish_.load() != nullptr) {
            say_where_threads_stand(signal);
        }
        const auto now = std::chrono::steady_clock::now();
        const std::chrono::seconds limit(options().seconds);
        if (int none = 0; limit != 0s && now - begin_ >= limit) {
            signal_.compare_exchange_strong(none, out_of_time);
        }
        // A process that was stopped, by a debugger say, has not run all the time.
        const double seconds = std::min(std::chrono::duration<double>(now - last).count(), 0.5);
        last = now;
        if (!workers_.empty() && !makes_progress(seconds)) {
            end_launch();
        }
    }
}

bool Watchdog::makes_progress(double seconds) {
    uint64_t meetings = 0, ends = 0;
    for (const Worker& worker : workers_) {
        meetings += worker.block->meetings();
        ends += worker.block->ends();
    }
    const bool met = meetings != meetings_, ended = ends != ends_;
    without_meeting_ = met || ended ? 0 : without_meeting_ + seconds;
    without_end_ = ended ? 0 : without_end_ + seconds;
    meetings_ = meetings;
    ends_ = ends;
    const unsigned limit = options().timeout;
    return limit == 0 || (without_meeting_ < limit && without_end_ < patience * limit);
}

std::string Watchdog::standing(const Worker& worker) const {
    const Block& block = *worker.block;
    std::map<std::string, Warps> places;
    for (const Standing& one : block.standing(worker.place)) {
        const std::string place = one.place ? text_of(*one.place) : "";
        places[place.empty() ? one.what : place + ", " + one.what].add(one.warp, one.lanes);
    }
    std::vector<std::pair<unsigned, std::string>> lines; // by their first warp
    for (const auto& [place, warps] : places) {
        lines.emplace_back(warps.first(), warps.text(block.thread_count()) + ": " + place);
    }
    std::ranges::sort(lines);
    std::string text;
    for (const auto& [first, line] : lines) {
        text += "\n    " + line;
    }
    return text;
}

/// Stops every worker of the launch, the one that spins with what it did.
void Watchdog::end_launch() {
    const bool meet = without_meeting_ < options().timeout;
    const std::string time = plural(options().timeout * (meet ? patience : 1), "second");
    for (Worker& worker : workers_) {
        std::set<std::string> lines;
        for (int i = 0; i < samples && hold(worker); ++i) {
            lines.insert(text_of(worker.place));
            worker.state = State::released;
        }
        lines.erase("");
        std::string text = "no progress for " + time + ": ";
        text += meet ? "threads meet again and again, and none leaves the kernel"
                     : "no thread has come to a barrier or to its end";
        const char* between = lines.size() > 1 ? "\n  these lines are executed again and again: "
                                               : "\n  this line is executed again and again: ";
        for (const std::string& line : lines) {
            text += between + line;
            between = ", ";
        }
        if (!hold_at_line(worker)) {
            continue;
        }
        text += "\n  of this block" + standing(worker);
        const unsigned thread = worker.block->current().number;
        worker.fault.emplace(FaultKind::timeout, text,
                             worker.block->place(thread, "is running", worker.place),
                             "a kernel that only needs longer wants --timeout SECONDS");
        worker.state = State::given_up;
    }
    without_meeting_ = without_end_ = 0;
}

void Watchdog::say_where_threads_stand(int signal) {
    run_log().interrupt(signal);
    printing().end_launch(~uint64_t{0});
    constexpr size_t most = 8; // blocks
    std::string text = "interrupted";
    if (signal == out_of_time) {
        text = "out of time: the program was given " + plural(options().seconds, "second") +
               " (--seconds), and was";
    }
    text += workers_.empty() ? " outside of any kernel" : " in ";
    size_t shown = 0;
    for (Worker& worker : workers_) {
        if (shown == most) {
            text += "\n  and " + plural(workers_.size() - most, "more block");
            break;
        }
        if (shown++ == 0) {
            text += worker.block->kernel().name;
        }
        text += "\n  block " + to_string(dim3(worker.block->index())) + ":";
        text += hold_at_line(worker) ? standing(worker) : " busy in the emulator";
    }
    if (signal == out_of_time && options().sample == 0) {
        text += "\n--sample 64 runs so many blocks of each launch, and looks for faults in these";
    }
    std::fprintf(stderr, "%s\n", text.c_str());
    finish_.load()(signal == out_of_time ? EXIT_FAILURE : 128 + signal);
}

Watchdog& watchdog() { return one_per_process<Watchdog>(); }

} // namespace flash::simt
