// The conformance suite's own rung_main. A rung's main.cpp, linked with this library, is the rung's test.
#include <catch2/catch_session.hpp>
#include <catch2/catch_test_macros.hpp>

#include <cstdio>
#include <filesystem>
#include <map>
#include <utility>

#include "common/harness/progress.hpp"
#include "reference/conformance/judge.hpp"

namespace flash {
namespace {

using conformance::Case;

// All cases of one kind and one shape: one test case for Catch2, each case a section of it.
class Group final : public Catch::ITestInvoker {
  public:
    Group(const Rung& rung, std::vector<Case> cases, std::function<void()> done)
        : rung_(rung), cases_(std::move(cases)), done_(std::move(done)) {}

    void invoke() const override {
        for (const Case& c : cases_) {
            DYNAMIC_SECTION(c.name()) {
                for (const std::string& wrong : conformance::judge(rung_, conformance::prepare(c))) {
                    FAIL_CHECK(wrong);
                }
                SUCCEED(); // so that the number of assertions is the number of cases
                done_();
            }
        }
    }

  private:
    const Rung& rung_;
    std::vector<Case> cases_;
    std::function<void()> done_;
};

class Lambda final : public Catch::ITestInvoker {
  public:
    explicit Lambda(std::function<void()> test) : test_(std::move(test)) {}
    void invoke() const override { test_(); }

  private:
    std::function<void()> test_;
};

void add_test(Catch::Detail::unique_ptr<Catch::ITestInvoker> test, const std::string& name, const std::string& tags) {
    Catch::AutoReg(std::move(test), CATCH_INTERNAL_LINEINFO, {}, Catch::NameAndTags{name, tags});
}

void add_groups(const Rung& rung, const conformance::List& list, const std::string& prefix, const std::string& tags,
                const std::function<void()>& done) {
    std::vector<std::pair<std::string, std::vector<Case>>> groups; // in the list's order
    for (const Case& c : list.cases) {
        if (groups.empty() || groups.back().first != c.group()) {
            groups.emplace_back(c.group(), std::vector<Case>{});
        }
        groups.back().second.push_back(c);
    }
    for (auto& [name, cases] : groups) {
        add_test(Catch::Detail::make_unique<Group>(rung, std::move(cases), done), prefix + name, tags);
    }
}

} // namespace

int rung_main(const Rung& rung, int argc, char** argv) {
    const conformance::Scope scope = conformance::scope_of(rung);
    const conformance::List full = conformance::full(scope), detect = conformance::detect(scope);

    ProgressLine progress("conformance of " + rung.name);
    size_t judged = 0;
    double planned = 0; // 0: not known
    const auto done = [&] {
        ++judged;
        if (planned > 0) {
            progress.update(static_cast<double>(judged) / planned);
        }
    };

    add_test(Catch::Detail::make_unique<Lambda>([&] {
                 const std::string program = std::filesystem::path(argv[0]).filename().string();
                 CAPTURE(program, rung.name);
                 CHECK(program.starts_with("test_" + rung.name));
             }),
             "the rung's name is the program's", "[full]");
    add_groups(rung, full, "", "[full]", done);
    add_groups(rung, detect, "detect: ", "[.][detect]", done);

    Catch::Session session;
    if (const int error = session.applyCommandLine(argc, argv); error != 0) {
        return error;
    }
    const Catch::ConfigData& options = session.configData();
    const bool lists = options.listTests || options.listTags || options.listReporters || options.listListeners;
    if (!lists && !options.showHelp) {
        try {
            rung.backend().require_device();
        } catch (const Error& error) {
            std::fprintf(stderr, "test_%s: %s\n", rung.name.c_str(), error.what());
            return 2;
        }
        if (options.testsOrTags.empty()) {
            planned = static_cast<double>(full.cases.size());
            std::printf("%s on %s: %zu cases\nleft out:\n", rung.name.c_str(), rung.backend().description().c_str(),
                        full.cases.size());
            for (const std::string& line : full.left_out) {
                std::printf("  %s\n", line.c_str());
            }
            std::fflush(stdout);
        }
    }
    return session.run();
}

} // namespace flash
