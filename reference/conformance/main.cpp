// The conformance suite's own rung_main. A rung's main.cpp, linked with this library, is the rung's
// test.
#include <catch2/catch_session.hpp>
#include <catch2/catch_test_case_info.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/reporters/catch_reporter_event_listener.hpp>
#include <catch2/reporters/catch_reporter_registrars.hpp>

#include <charconv>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/harness/program/progress.hpp"
#include "reference/conformance/judge.hpp"

namespace flash {
namespace {

using conformance::Case;

// All cases of one kind and one shape: one test case for Catch2, each case a section of it.
struct Group {
    const Rung& rung;
    std::vector<Case> cases;
    const int& runs; // of a case that is repeated, in place of its own number; 0: none was given
    std::function<void()> done;

    void run() const {
        for (Case c : cases) {
            DYNAMIC_SECTION(c.name()) {
                c.runs = c.runs > 1 && runs > 0 ? runs : c.runs;
                for (const std::string& wrong : conformance::judge(rung, conformance::prepare(c))) {
                    FAIL_CHECK(wrong);
                }
                SUCCEED(); // so that the number of assertions is the number of cases
                done();
            }
        }
    }
};

// Catch2 registers functions without arguments, and tells a listener which test case it begins.
std::map<std::string, std::function<void()>> tests;
std::string current_test;

struct CurrentTest final : Catch::EventListenerBase {
    using Catch::EventListenerBase::EventListenerBase;
    void testCaseStarting(const Catch::TestCaseInfo& test) override { current_test = test.name; }
};
CATCH_REGISTER_LISTENER(CurrentTest)

void run_current_test() { tests.at(current_test)(); }

void add_test(const std::string& name, const std::string& tags, std::function<void()> test) {
    tests[name] = std::move(test);
    REGISTER_TEST_CASE(run_current_test, name, tags);
}

void add_groups(const Rung& rung, const conformance::List& list, const std::string& prefix,
                const std::string& tags, const int& runs, const std::function<void()>& done) {
    std::vector<std::pair<std::string, std::vector<Case>>> groups; // in the list's order
    for (const Case& c : list.cases) {
        if (groups.empty() || groups.back().first != c.group()) {
            groups.emplace_back(c.group(), std::vector<Case>{});
        }
        groups.back().second.push_back(c);
    }
    for (auto& [name, cases] : groups) {
        add_test(prefix + name, tags,
                 [group = Group{rung, std::move(cases), runs, done}] { group.run(); });
    }
}

} // namespace

int rung_main(Rung& rung, int argc, char** argv) {
    const conformance::Scope scope = conformance::scope_of(rung);
    const conformance::List full = conformance::full(scope);

    ProgressLine progress("conformance of " + rung.name);
    size_t judged = 0;
    double planned = 0; // 0: not known
    int runs = 0;
    const auto done = [&] {
        ++judged;
        if (planned > 0) {
            progress.update(static_cast<double>(judged) / planned);
        }
    };

    add_test("the rung's name is the program's", "[full]", [&] {
        const std::string program = std::filesystem::path(argv[0]).filename().string();
        CAPTURE(program, rung.name);
        CHECK(program.starts_with("test_"));
        CHECK(program.find("_" + rung.name) != std::string::npos); // test_NN_name_observed, too
    });
    add_test("what only some rungs know is refused by the others", "[full]", [&] {
        const Inputs nothing{rung.dtypes.at(0), {}, {}, {}};
        const int64_t d = rung.head_dims.empty() ? 64 : rung.head_dims.front();
        const struct {
            Problem problem;
            bool known;
        } additions[] = {{{.head_dim = d, .causal = true, .window = 1}, rung.window_and_sink},
                         {{.head_dim = d, .sink = true}, rung.window_and_sink},
                         {{.head_dim = d, .head_dim_v = d + 1}, !rung.head_dims_v.empty()}};
        for (const auto& [p, known] : additions) {
            std::string said;
            try {
                rung.on(p, nothing);
            } catch (const Error& error) {
                said = error.what();
            }
            CAPTURE(said);
            const bool refused = said.starts_with(rung.name + " knows no ");
            CHECK(refused != known);
            CHECK(said.find('\n') == std::string::npos);
        }
    });
    add_groups(rung, full, "", "[full]", runs, done);
    add_groups(rung, conformance::detect(scope), "detect: ", "[.][detect]", runs, done);
    add_groups(rung, conformance::schedules(scope), "schedules: ", "[.][schedules]", runs, done);

    Catch::Session session;
    const auto set_runs = [&runs](const std::string& text) {
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), runs);
        return error == std::errc() && *end == 0 && runs >= 2
                   ? Catch::Clara::ParserResult::ok(Catch::Clara::ParseResultType::Matched)
                   : Catch::Clara::ParserResult::runtimeError(
                         "--runs must be a whole number from 2 on, not " + text);
    };
    session.cli(session.cli() |
                Catch::Clara::Opt(set_runs, "number")["--runs"](
                    "how often a case that is repeated is run: all runs must give the same bits"));
    if (session.applyCommandLine(argc, argv) != 0) {
        return 2;
    }
    const Catch::ConfigData& options = session.configData();
    const bool lists =
        options.listTests || options.listTags || options.listReporters || options.listListeners;
    if (!lists && !options.showHelp) {
        try {
            rung.backend().require_device();
        } catch (const Error& error) {
            std::fprintf(stderr, "test_%s: %s\n", rung.name.c_str(), error.what());
            return 2;
        }
        if (options.testsOrTags.empty()) {
            planned = static_cast<double>(full.cases.size());
            std::printf("%s on %s: %zu cases\nleft out:\n", rung.name.c_str(),
                        rung.backend().description().c_str(), full.cases.size());
            for (const std::string& line : full.left_out) {
                std::printf("  %s\n", line.c_str());
            }
            std::fflush(stdout);
        }
    }
    return session.run();
}

} // namespace flash
