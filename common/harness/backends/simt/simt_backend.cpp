// The backend of CUDA rungs in a SIMT build: kernels run on this computer's processor.
#include "common/harness/backends/backend.hpp"
#include "common/harness/backends/device_backend.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>

#include "common/harness/files/output_file.hpp"
#include "common/simt/machine/device_memory.hpp"
#include "common/simt/machine/observer_factory.hpp"
#include "common/simt/machine/program.hpp"
#include "common/simt/machine/run_log.hpp"
#include "common/simt/machine/simt_options.hpp"
#ifndef FLASH_SIMT_UNWATCHED // a program of common/by_hand, where nothing can be counted
#include "common/simt/report/profile.hpp"
#endif

namespace flash {
namespace {

/// Memory that the watcher knows by name and by its exact bounds.
class SimtMemory final : public Memory {
  public:
    explicit SimtMemory(size_t bytes) : memory_(bytes) { memory_.track_writes(); }

    void* data() const override { return memory_.data(); }
    size_t bytes() const override { return memory_.bytes(); }
    void write(size_t offset, const void* source, size_t bytes) override {
        std::memcpy(memory_.data() + offset, source, bytes);
        if (memory_.written() != nullptr) {
            memory_.written()->mark(memory_.data() + offset, bytes);
        }
    }
    void read(size_t offset, void* destination, size_t bytes) const override {
        std::memcpy(destination, memory_.data() + offset, bytes);
    }
    void declare(size_t offset, size_t bytes, const std::string& name) override {
        memory_.declare(offset, bytes, name);
    }

  private:
    simt::DeviceMemory memory_;
};

void write(const std::string& path, const std::string& text) {
    require_writable(path);
    OutputFile file(path);
    file.write(text.data(), text.size());
    file.commit();
}

/// Becomes the same program with kernels that are compiled to be watched, if it lies beside this
/// one as NAME_observed. Programs of their own, because being watched costs time even when nobody
/// looks.
void hand_over() {
    std::error_code ignored;
    const std::string twin = simt::program_file() + "_observed";
    if (!std::filesystem::exists(twin, ignored)) {
        return;
    }
    std::vector<std::string> arguments = simt::program_arguments();
    std::vector<char*> pointers;
    for (std::string& argument : arguments) {
        pointers.push_back(argument.data());
    }
    pointers.push_back(nullptr);
    execv(twin.c_str(), pointers.data());
}

class SimtBackend final : public Backend {
  public:
    std::string name() const override { return "simt"; }

    std::string description() const override {
        return "CUDA threads executed on " + host_backend().description() +
               " (no GPU; times say nothing about one)";
    }

    void require_device() const override {
        const simt::Options& options = simt::options(); // refuses what the environment misspells
        simt::arena();
        if ((options.detect || options.count) && !simt::is_instrumented()) {
            hand_over();
            simt::require_instrumented(); // there is no twin
        }
    }

    size_t available_bytes() const override {
        return std::min(host_backend().available_bytes(), simt::arena().bytes);
    }

    std::unique_ptr<Memory> allocate(size_t bytes) override {
        return std::make_unique<SimtMemory>(bytes);
    }

    void flush_caches() override {} // kernels do not run here at a speed that a cache would change

    std::vector<BackendFlag> flags() override {
        return {{"--profile",
                 "Count memory traffic line by line; writes NAME.profile.json for scripts/profile",
                 [] { simt::options().count = true; }},
                {"--detect", "Report races, accesses out of bounds and other faults of the kernel",
                 [] { simt::options().detect = true; }}};
    }

    std::string end_first_run(const std::string& program) override {
        simt::Options& options = simt::options();
        std::string lines;
        const simt::RunLog& log = simt::run_log();
        if (options.keep_going && !log.faults().empty()) { // they have been printed
            throw KernelFault(simt::plural(log.faults().size(), "fault") + " found");
        }
        if (options.detect) {
            lines +=
                "detect    no fault found, " +
                (log.warnings().empty() ? ""
                                        : simt::plural(log.warnings().size(), "warning") + ", ") +
                "schedule " + to_string(options.schedule) + "\n";
        }
#ifndef FLASH_SIMT_UNWATCHED
        if (options.count) {
            const std::string file = program + ".profile.json";
            write(file, simt::to_json(simt::profile()));
            lines += "profile   of one run, line by line: " + file + "; scripts/profile " + file +
                     " shows it\n";
        }
#endif
        options.detect = false; // further runs are for the time
        options.count = false;
        return lines;
    }

    std::optional<size_t> peak_memory_of(const std::function<void()>& work) override {
        return host_backend().peak_memory_of(work); // device memory is this process's own
    }

    double time(const std::function<void()>& work) override {
        const auto start = std::chrono::steady_clock::now();
        work();
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    }
};

} // namespace

Backend& device_backend() {
    static SimtBackend backend;
    return backend;
}

} // namespace flash
