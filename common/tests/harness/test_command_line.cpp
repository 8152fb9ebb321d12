// What a user of a rung sees: options, report, files and exit codes.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "common/harness/files/safetensors.hpp"
#include "common/tests/harness/subprocess.hpp"
#include "common/tests/harness/temporary_folder.hpp"

using namespace flash;
using namespace flash::test;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;
using Json = nlohmann::json;

namespace {

const std::vector<std::string> small = {"--heads",  "2", "--q-len",    "9",
                                        "--kv-len", "7", "--head-dim", "16"};

std::vector<std::string> operator+(std::vector<std::string> left,
                                   const std::vector<std::string>& right) {
    left.insert(left.end(), right.begin(), right.end());
    return left;
}

/// Bytes of the tensor o, and then lse, that a run with these arguments writes.
std::string output_bits(const std::vector<std::string>& arguments) {
    const TemporaryFolder folder;
    const std::string path = (folder / "out").string();
    REQUIRE(run_fake_rung(arguments + std::vector<std::string>{"--output", path}).code == 0);
    return contents_of(path);
}

} // namespace

TEST_CASE("option --help explains every option, with examples, and succeeds") {
    const Outcome outcome = run_fake_rung({"--help"});
    CHECK(outcome.code == 0);
    CHECK(outcome.err.empty());
    for (const char* option :
         {"--batch",    "--heads",    "--kv-heads",       "--q-len",
          "--kv-len",   "--head-dim", "--causal",         "--scale",
          "--dtype",    "--seed",     "--input",          "--output",
          "--no-check", "--bench",    "--json",           "--help",
          "Examples:",  "16, 32, 64", "fp32, fp16, bf16", "O, LSE = attention(Q, K, V)"}) {
        CHECK_THAT(outcome.out, ContainsSubstring(option));
    }
}

TEST_CASE("a run without options checks a small random problem") {
    const Outcome outcome = run_fake_rung({});
    CHECK(outcome.code == 0);
    CHECK(outcome.err.empty());
    CHECK_THAT(outcome.out, StartsWith("fake_rung\nproblem "));
    CHECK_THAT(outcome.out,
               ContainsSubstring("B=1 H=4 H_kv=4 N_q=256 N_kv=256 d=64, full, scale 0.125, fp32"));
    CHECK_THAT(outcome.out, ContainsSubstring("cpu: "));
    CHECK_THAT(outcome.out, ContainsSubstring("\npassed\n"));
}

TEST_CASE("the first supported type is the default") {
    CHECK_THAT(run_fake_rung(small, "FAKE_RUNG='half only'").out, ContainsSubstring(" fp16,"));
    CHECK_THAT(run_fake_rung(small + std::vector<std::string>{"--dtype", "bf16"}).out,
               ContainsSubstring(" bf16,"));
}

TEST_CASE("of an option given twice the last one counts") {
    CHECK_THAT(run_fake_rung(small + std::vector<std::string>{"--q-len", "5"}).out,
               ContainsSubstring("N_q=5 "));
}

TEST_CASE("option --kv-heads and --kv-len follow --heads and --q-len unless given") {
    CHECK_THAT(run_fake_rung({"--heads", "6", "--q-len", "5"}).out,
               ContainsSubstring("H=6 H_kv=6 N_q=5 N_kv=5 "));
    CHECK_THAT(
        run_fake_rung({"--heads", "6", "--kv-heads", "2", "--q-len", "5", "--kv-len", "3"}).out,
        ContainsSubstring("H=6 H_kv=2 N_q=5 N_kv=3 "));
}

TEST_CASE("a wrong result is told with its place and size, and exit code 1") {
    const Outcome outcome = run_fake_rung(small, "FAKE_RUNG=wrong");
    CHECK(outcome.code == 1);
    CHECK_THAT(outcome.out, ContainsSubstring("O element 144"));
    CHECK_THAT(outcome.out, ContainsSubstring("O         error 0.25, allowed 1e-05"));
    CHECK_THAT(outcome.out, ContainsSubstring("exp overflows"));
    CHECK_THAT(outcome.out, ContainsSubstring("\nFAILED\n"));

    CHECK(run_fake_rung(small, "FAKE_RUNG=nan").code == 1);

    const Outcome unchecked =
        run_fake_rung(small + std::vector<std::string>{"--no-check"}, "FAKE_RUNG=wrong");
    CHECK(unchecked.code == 0);
    CHECK_THAT(unchecked.out, ContainsSubstring("\nnot checked\n"));
}

TEST_CASE("a write outside the output fails, with or without the check") {
    for (const std::string option : {"--causal", "--no-check"}) {
        const Outcome outcome =
            run_fake_rung(small + std::vector<std::string>{option}, "FAKE_RUNG=outside");
        CHECK(outcome.code == 1);
        CHECK_THAT(outcome.out, ContainsSubstring("memory after O was overwritten, at byte"));
    }
}

TEST_CASE("option --json prints one document with everything in it") {
    const auto arguments = small + std::vector<std::string>{
                                       "--json",     "--causal", "--seed",  "5", "--scale", "0.5",
                                       "--kv-heads", "1",        "--batch", "3", "--dtype", "fp16"};
    const Outcome outcome = run_fake_rung(arguments);
    REQUIRE(outcome.code == 0);
    const Json json = Json::parse(outcome.out);
    CHECK(json["rung"] == "fake_rung");
    CHECK(json["ok"] == true);
    CHECK(json["backend"] == "cpu");
    CHECK(json["description"].get<std::string>().find("thread") != std::string::npos);
    CHECK(json["problem"] == Json{{"batch", 3},
                                  {"heads", 2},
                                  {"kv_heads", 1},
                                  {"q_len", 9},
                                  {"kv_len", 7},
                                  {"head_dim", 16},
                                  {"head_dim_v", 16},
                                  {"causal", true},
                                  {"window", nullptr},
                                  {"sink", false},
                                  {"scale", 0.5}});
    CHECK(json["dtype"] == "fp16");
    CHECK(json["seed"] == 5);
    CHECK(json["input"].is_null());
    CHECK(json["flops"] == 4.0 * 3 * 2 * 9 * 7 * 16 / 2);
    CHECK(json["seconds"] > 0);
    CHECK(json["benchmark"].is_null());
    CHECK(json["check"]["ok"] == true);
    CHECK(json["check"]["o_bound"] == 1e-2);
    CHECK(json["check"]["o_error"] <= 1e-2);
    CHECK(json["damage"] == "");

    const Json failed = Json::parse(run_fake_rung(arguments, "FAKE_RUNG=nan").out);
    CHECK(failed["ok"] == false);
    CHECK(failed["check"]["message"].get<std::string>().find("LSE element 0") == 0);
}

TEST_CASE("options --window and --sink") {
    const std::vector<std::string> both = {"--window", "3", "--sink"};
    const Outcome outcome = run_fake_rung(small + both);
    CHECK(outcome.code == 0);
    CHECK_THAT(outcome.out, ContainsSubstring("d=16, window 3, sink, scale"));
    const Json json =
        Json::parse(run_fake_rung(small + both + std::vector<std::string>{"--json"}).out);
    CHECK(json["problem"]["causal"] == true);
    CHECK(json["problem"]["window"] == 3);
    CHECK(json["problem"]["sink"] == true);
    CHECK(json["flops"] == 4.0 * 2 * 16 * (1 + 2 + 3 * 5)); // of nine queries two see nothing
    CHECK_THAT(run_fake_rung({"--help"}).out, ContainsSubstring("--window"));
    CHECK_THAT(run_fake_rung({"--help"}, "FAKE_RUNG='no window'").out,
               !ContainsSubstring("--window"));
}

TEST_CASE("option --head-dim-v, for rungs that know it") {
    const std::string knows = "FAKE_RUNG='two head dims'"; // 16 and 32
    const Outcome outcome = run_fake_rung(small, knows);
    CHECK(outcome.code == 0);
    CHECK_THAT(outcome.out, ContainsSubstring("d=16 d_v=32, full"));
    const Json json = Json::parse(
        run_fake_rung(small + std::vector<std::string>{"--head-dim-v", "32", "--json"}, knows).out);
    CHECK(json["problem"]["head_dim"] == 16);
    CHECK(json["problem"]["head_dim_v"] == 32);
    CHECK(json["flops"] == 2.0 * 2 * 9 * 7 * (16 + 32));
    CHECK_THAT(run_fake_rung({"--help"}, knows).out, ContainsSubstring("--head-dim-v"));
    CHECK_THAT(run_fake_rung({"--help"}).out, !ContainsSubstring("--head-dim-v"));
    CHECK(run_fake_rung(small + std::vector<std::string>{"--head-dim-v", "16"}).code == 0);
}

TEST_CASE("V and O of another width than Q and K, random and from a file") {
    const TemporaryFolder folder;
    const std::string input = (folder / "in.safetensors").string(),
                      output = (folder / "o.safetensors").string(),
                      knows = "FAKE_RUNG='two head dims'";
    std::vector<float> values(64);
    for (size_t x = 0; x < values.size(); ++x) {
        values[x] = static_cast<float>(x);
    }
    const std::vector<float> zeros(32);
    write_safetensors(input, {{"q", DType::fp32, {1, 1, 2, 16}, zeros},
                              {"k", DType::fp32, {1, 1, 2, 16}, zeros},
                              {"v", DType::fp32, {1, 1, 2, 32}, values}});
    REQUIRE(run_fake_rung({"--input", input, "--output", output}, knows).code == 0);
    SafetensorsReader file(output);
    CHECK(file.info("o").shape == std::vector<int64_t>{1, 1, 2, 32});
    CHECK(file.info("lse").shape == std::vector<int64_t>{1, 1, 2});
    CHECK(file.read("o")[32 + 5] == 5 + 16); // the mean of both rows of V
    const Outcome refused = run_fake_rung({"--input", input});
    CHECK(refused.code == 2);
    CHECK_THAT(refused.err, ContainsSubstring("knows no head dim of V's own"));
    const Outcome other = run_fake_rung({"--input", input, "--head-dim-v", "16"}, knows);
    CHECK(other.code == 2);
    CHECK_THAT(other.err, ContainsSubstring("--head-dim-v 16 disagrees with"));
}

TEST_CASE("a sink is one more score, random or from a file") {
    const TemporaryFolder folder;
    const std::string input = (folder / "in.safetensors").string(),
                      output = (folder / "o.safetensors").string();
    // Two keys with the scores 0 and V = 1, one head with the sink log 2 and one without a weight.
    const float log_2 = 0.693147181f, none = -std::numeric_limits<float>::infinity();
    const std::vector<float> zeros(32), ones(32, 1.0f), sinks = {log_2, none};
    write_safetensors(input, {{"q", DType::fp32, {1, 2, 1, 16}, zeros},
                              {"k", DType::fp32, {1, 1, 2, 16}, zeros},
                              {"v", DType::fp32, {1, 1, 2, 16}, ones},
                              {"sink", DType::fp32, {2}, sinks}});
    const auto run = [&](const std::vector<std::string>& more) {
        REQUIRE(run_fake_rung(std::vector<std::string>{"--input", input, "--output", output} + more)
                    .code == 0);
        SafetensorsReader file(output);
        return std::pair{file.read("o"), file.read("lse")};
    };
    const auto [o, lse] = run({"--sink"});
    CHECK(std::abs(o[0] - 0.5f) < 1e-6f);
    CHECK(std::abs(lse[0] - 2 * log_2) < 1e-6f);
    CHECK(std::abs(o[16] - 1) < 1e-6f);
    CHECK(std::abs(lse[1] - log_2) < 1e-6f);
    CHECK(run({}).second[0] == lse[1]); // a tensor that nobody asks for
    for (const float wrong : {std::numeric_limits<float>::quiet_NaN(), -none}) {
        const std::vector<float> one_wrong = {0.5f, wrong};
        write_safetensors(input, {{"q", DType::fp32, {1, 2, 1, 16}, zeros},
                                  {"k", DType::fp32, {1, 1, 2, 16}, zeros},
                                  {"v", DType::fp32, {1, 1, 2, 16}, ones},
                                  {"sink", DType::fp32, {2}, one_wrong}});
        const Outcome refused = run_fake_rung({"--input", input, "--sink"});
        CHECK(refused.code == 2);
        CHECK_THAT(refused.err, ContainsSubstring("sink has a logit of"));
    }
    CHECK(output_bits(small + std::vector<std::string>{"--sink"}) != output_bits(small));
}

TEST_CASE("option --check-rows says how many rows were compared") {
    const Outcome all = run_fake_rung(small);
    CHECK(all.out.find("not compared") == std::string::npos);
    // 1 batch, 2 heads
    const Outcome some = run_fake_rung(small + std::vector<std::string>{"--check-rows", "2"});
    CHECK(some.code == 0);
    CHECK_THAT(some.out, ContainsSubstring("of 4 rows; the other 14 were not compared"));
    CHECK(Json::parse(run_fake_rung(small + std::vector<std::string>{"--check-rows", "2", "--json"})
                          .out)["check"]["rows"] == 4);
    for (const char* rows : {"0", "-3"}) {
        const Outcome refused = run_fake_rung({"--check-rows", rows});
        CHECK(refused.code == 2);
        CHECK_THAT(refused.err, ContainsSubstring("--check-rows: Value "));
    }
}

TEST_CASE("option --bench times at least twenty runs") {
    const Outcome outcome = run_fake_rung(small + std::vector<std::string>{"--bench", "--json"});
    REQUIRE(outcome.code == 0);
    const Json json = Json::parse(outcome.out);
    const Json& bench = json["benchmark"];
    CHECK(bench["repetitions"] >= 20);
    CHECK(bench["seconds"].size() == bench["repetitions"]);
    CHECK(bench["cut_short"] == false);
    CHECK(bench["warm_ups"] >= 1);
    CHECK(bench["min_s"] > 0);
    CHECK(bench["min_s"] <= bench["median_s"]);
    CHECK(bench["median_s"] <= bench["max_s"]);
    CHECK(json["seconds"] == bench["median_s"]);

    // --bench goes without saying
    const Outcome three = run_fake_rung(small + std::vector<std::string>{"--repetitions", "3"});
    CHECK_THAT(three.out, ContainsSubstring("median of 3 runs"));
    const Outcome none = run_fake_rung({"--repetitions", "0"});
    CHECK(none.code == 2);
    CHECK_THAT(none.err, ContainsSubstring("--repetitions: Value 0 not in range"));

    const Outcome text = run_fake_rung(small + std::vector<std::string>{"--bench"});
    CHECK_THAT(text.out, ContainsSubstring("median of "));
    if (std::filesystem::exists("/proc/self/clear_refs")) { // else the system does not tell
        CHECK_THAT(text.out, ContainsSubstring("beyond inputs and outputs"));
    }
}

TEST_CASE("option --bench measures the memory of a rung that holds all scores") {
#ifdef __SANITIZE_ADDRESS__
    SKIP("AddressSanitizer keeps memory that was freed");
#endif
    const std::vector<std::string> problem = {
        "--heads", "1", "--q-len", "1024", "--head-dim", "16", "--no-check", "--bench", "--json"};
    const double scores = 1024.0 * 1024 * 4;
    const auto peak = [&](const std::string& environment) -> double {
        const Json json = Json::parse(run_fake_rung(problem, environment).out);
        const Json& bytes = json["benchmark"]["peak_memory_bytes"];
        if (bytes.is_null()) {
            SKIP("this system does not tell the peak of resident memory");
        }
        return bytes;
    };
    const double hungry = peak("FAKE_RUNG=hungry");
    CHECK(hungry > 0.95 * scores);
    CHECK(hungry < 1.5 * scores);
    CHECK(peak("") < 0.25 * scores);
}

TEST_CASE("option --output holds o in the rung's type and lse in F32, and reads back") {
    const TemporaryFolder folder;
    const std::string path = (folder / "o.safetensors").string();
    const Outcome outcome = run_fake_rung(
        small + std::vector<std::string>{"--dtype", "bf16", "--output", path, "--causal"});
    REQUIRE(outcome.code == 0);
    CHECK(folder.names() == std::vector<std::string>{"o.safetensors"});
    SafetensorsReader file(path);
    CHECK(file.info("o").dtype == "BF16");
    CHECK(file.info("o").shape == std::vector<int64_t>{1, 2, 9, 16});
    CHECK(file.info("lse").dtype == "F32");
    CHECK(file.info("lse").shape == std::vector<int64_t>{1, 2, 9});
    CHECK(file.metadata().at("rung") == "fake_rung");
    CHECK(file.metadata().at("causal") == "true");
    // 9 queries and 7 keys: the first two rows see nothing, the third sees one key.
    const std::vector<float> o = file.read("o"), lse = file.read("lse");
    CHECK(lse[0] == -std::numeric_limits<float>::infinity());
    CHECK(o[0] == 0);
    CHECK(std::isfinite(lse[2]));
    CHECK(o[2 * 16] != 0);
}

TEST_CASE("option --input takes the shape and the values from a file") {
    const TemporaryFolder folder;
    const std::string input = (folder / "qkv.safetensors").string(),
                      output = (folder / "o.safetensors").string();
    // One key: O is V, LSE the score.
    std::vector<float> q(2 * 3 * 16, 0.5f), k(16, 0.25f), v(16);
    for (size_t i = 0; i < v.size(); ++i) {
        v[i] = static_cast<float>(i);
    }
    write_safetensors(input, {{"q", DType::fp32, {1, 2, 3, 16}, q},
                              {"k", DType::fp16, {1, 1, 1, 16}, k},
                              {"v", DType::bf16, {1, 1, 1, 16}, v}});
    const Outcome outcome =
        run_fake_rung({"--input", input, "--output", output, "--heads", "2", "--json"});
    REQUIRE(outcome.code == 0);
    const Json json = Json::parse(outcome.out);
    CHECK(json["input"] == input);
    CHECK(json["seed"].is_null());
    CHECK(json["problem"]["q_len"] == 3);
    SafetensorsReader file(output);
    const std::vector<float> o = file.read("o"), lse = file.read("lse");
    // 16 * 0.5 * 0.25 / sqrt(16)
    CHECK(std::ranges::all_of(lse, [](float x) { return x == 0.5f; }));
    CHECK(std::equal(v.begin(), v.end(), o.begin()));
    CHECK(o.size() == 6 * v.size());
}

TEST_CASE("an input may be overwritten by the output") {
    const TemporaryFolder folder;
    const std::string path = (folder / "x.safetensors").string();
    const std::vector<float> x(16, 1.0f);
    write_safetensors(path, {{"q", DType::fp32, {1, 1, 1, 16}, x},
                             {"k", DType::fp32, {1, 1, 1, 16}, x},
                             {"v", DType::fp32, {1, 1, 1, 16}, x}});
    REQUIRE(run_fake_rung({"--input", path, "--output", path}).code == 0);
    CHECK(SafetensorsReader(path).tensors().size() == 2);
    CHECK(folder.names() == std::vector<std::string>{"x.safetensors"});
}

TEST_CASE("a seed decides every bit of the result") {
    const std::string first = output_bits(small + std::vector<std::string>{"--seed", "7"});
    CHECK(first == output_bits(small + std::vector<std::string>{"--seed", "7"}));
    CHECK(first != output_bits(small + std::vector<std::string>{"--seed", "8"}));
    CHECK(output_bits(small) == output_bits(small + std::vector<std::string>{"--seed", "0"}));
}

TEST_CASE("a wrong result is not written, unless nobody checks") {
    const TemporaryFolder folder;
    const std::string path = folder.file("o.safetensors", "as before");
    const Outcome outcome =
        run_fake_rung(small + std::vector<std::string>{"--output", path}, "FAKE_RUNG=wrong");
    CHECK(outcome.code == 1);
    CHECK_THAT(outcome.err, ContainsSubstring("was not written, because the result is wrong"));
    CHECK(contents_of(path) == "as before");
    CHECK(folder.names() == std::vector<std::string>{"o.safetensors"});
    CHECK(run_fake_rung(small + std::vector<std::string>{"--output", path, "--no-check"},
                        "FAKE_RUNG=wrong")
              .code == 0);
    CHECK(SafetensorsReader(path).tensors().contains("o"));
}

TEST_CASE("progress is shown on stderr after two seconds, and not before") {
    const Outcome slow = run_fake_rung(small, "FAKE_RUNG=slow");
    CHECK(slow.code == 0);
    CHECK(slow.err.empty());
    CHECK_THAT(slow.progress, StartsWith("running fake_rung, 2 s\n"));
    CHECK(run_fake_rung(small).progress.empty());
}

TEST_CASE("on a terminal, progress is one line that is wiped in the end") {
    if (std::system("script -qec true /dev/null >/dev/null 2>&1 </dev/null") != 0) {
        SKIP("no program `script`, or no /dev/pts for it, to stand for a terminal");
    }
    const TemporaryFolder folder;
    const std::string shown = (folder / "shown").string();
    const std::string command =
        "FAKE_RUNG=slow script -qec \"'" FAKE_RUNG "' --q-len 4 --head-dim 16\" /dev/null >'";
    REQUIRE(std::system((command + shown + "' </dev/null").c_str()) == 0);
    const std::string text = contents_of(shown);
    CHECK_THAT(text, ContainsSubstring("\r\033[Krunning fake_rung, 2 s\r\033[K"));
    CHECK(text.find("2 s\r\n") == std::string::npos);
    CHECK_THAT(text, ContainsSubstring("\r\033[Kfake_rung")); // wiped, then the report
}
