#pragma once

#include <string>
#include <vector>

namespace flash::test {

struct Outcome {
    int code = -1; // -1: killed by a signal
    std::string out = {}, err = {};
    // lines of stderr that only say how long something takes: on a busy machine there may be some
    std::string progress = {};
};

/// Runs the fake rung with these arguments and waits for its end. `environment` is put before the
/// command in a shell ("FAKE_RUNG=wrong"), `before` is a shell command that runs ahead of it in the
/// same shell.
Outcome run_fake_rung(const std::vector<std::string>& arguments,
                      const std::string& environment = "", const std::string& before = "");

} // namespace flash::test
