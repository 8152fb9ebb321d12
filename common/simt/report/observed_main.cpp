// Runs another program's main with its kernels watched. scripts/simt links with --wrap=main, which
// calls __wrap_main in the place of main.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iostream>
#include <string>

#include <unistd.h>

#include "common/error.hpp"
#include "common/simt/machine/host_misuse.hpp"
#include "common/simt/machine/run_log.hpp"
#include "common/simt/machine/simt_options.hpp"
#include "common/simt/machine/watchdog.hpp"
#include "common/simt/report/ending.hpp"
#include "common/simt/report/profile.hpp"

/// The program's main; null when that was not wrapped, and then nothing here has a part in the run.
extern "C" [[gnu::weak]] int __real_main(int argc, char** argv);

namespace flash::simt {
namespace {

constexpr int nothing_to_run = 2; // an option that is not understood, or no memory

struct CannotWrite : Error {
    explicit CannotWrite(const std::string& file) : Error("cannot write " + file) {}
};

std::string setting(const char* name) {
    const char* const text = std::getenv(name);
    return text == nullptr ? "" : text;
}

/// False, and it says so, if it cannot be written.
bool write(const std::string& file, const std::string& document) {
    if (file == "-") {
        std::fputs(document.c_str(), stdout);
        return true;
    }
    if (std::ofstream(file) << document << std::flush) {
        return true;
    }
    std::fprintf(stderr, "%s\n", CannotWrite(file).what());
    return false;
}

/// Before the program runs, which may take long. Throws CannotWrite.
void require_writable(const std::string& file) {
    if (!file.empty() && file != "-" && !std::ofstream(file, std::ios::app)) {
        throw CannotWrite(file);
    }
}

int final_code = 0;

/// Says the verdict, and finds the exit code.
void report(int code) {
    std::cout.flush();
    std::fflush(stdout);
    run_log().print_last();
    bool written = true;
    if (const std::string file = setting("FLASH_SIMT_PROFILE"); !file.empty()) {
        written = write(file, to_json(profile()));
    }
    std::fprintf(stderr, "%s\n", ending_line().c_str());
    if (const std::string file = setting("FLASH_SIMT_JSON"); !file.empty()) {
        written = write(file, ending_json(code)) && written;
    }
    final_code = written ? exit_code(code) : nothing_to_run;
}

[[noreturn]] void finish(int code) {
    report(code);
    std::fflush(nullptr);
    _exit(final_code);
}

// exit() was called, by the program or because its main has returned. What is called at exit comes
// in the reverse order of its registration: first we report, then objects of the program's go, and
// at last the exit code takes the place of the program's own.
void report_at_exit(int code, void*) { report(code); }
void leave_at_exit(int, void*) {
    std::fflush(nullptr);
    _exit(final_code);
}
[[gnu::constructor(101)]] void register_leaving() {
    if (__real_main != nullptr) {
        on_exit(leave_at_exit, nullptr);
    }
}

/// What report() needs, made before it is registered, or it would be gone by then.
void make_ready() {
    resolve({LocationId()});
    tallies();
    run_log();
    watchdog().handle_interrupts(finish);
    report_before_abort = [] {
        report(128 + SIGABRT);
        std::signal(SIGABRT, [](int) { _exit(final_code); });
    };
}

/// Puts into the log what ends the run; false when it is nothing of ours.
bool note(const std::exception_ptr& thrown) {
    try {
        std::rethrow_exception(thrown);
    } catch (const Fault& fault) {
        run_log().add_last(fault);
    } catch (const Unsupported& error) {
        run_log().add_unsupported(error.what());
    } catch (...) {
        return false;
    }
    return true;
}

std::terminate_handler terminate_before;

/// A fault in a thread of the program's, or one that it does not let through.
[[noreturn]] void at_terminate() {
    if (const std::exception_ptr thrown = std::current_exception(); thrown && note(thrown)) {
        finish(EXIT_FAILURE);
    }
    report_before_abort();
    terminate_before();
    std::abort();
}

int run_main(int argc, char** argv) {
    try {
        return __real_main(argc, argv);
    } catch (const Error& error) {
        if (note(std::current_exception())) {
            return EXIT_FAILURE;
        }
        std::fprintf(stderr, "%s\n", error.what());
        return nothing_to_run;
    }
}

} // namespace
} // namespace flash::simt

extern "C" int __wrap_main(int argc, char** argv) {
    namespace simt = flash::simt;
    try {
        simt::Options& chosen = simt::options();
        chosen.detect = simt::setting("FLASH_SIMT_DETECT") != "0";
        chosen.count = !simt::setting("FLASH_SIMT_PROFILE").empty();
        simt::require_writable(simt::setting("FLASH_SIMT_PROFILE"));
        simt::require_writable(simt::setting("FLASH_SIMT_JSON"));
    } catch (const flash::Error& error) {
        std::fprintf(stderr, "%s\n", error.what());
        simt::final_code = simt::nothing_to_run;
        return simt::nothing_to_run;
    }
    // Whatever ends this process, what it has printed is not lost in a pipe.
    std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
    simt::make_ready();
    on_exit(simt::report_at_exit, nullptr);
    simt::terminate_before = std::set_terminate(simt::at_terminate);
    std::exit(simt::run_main(argc, argv));
}
