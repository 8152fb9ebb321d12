// Bad input of every kind: exit code 2, one to three lines on stderr that say what was wrong and
// what would work, nothing on stdout, no file left behind.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <filesystem>
#include <fstream>
#include <unistd.h>

#include "common/harness/files/safetensors.hpp"
#include "common/tests/harness/subprocess.hpp"
#include "common/tests/harness/temporary_folder.hpp"

using namespace flash;
using namespace flash::test;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;

namespace {

void check_refused(const Outcome& outcome, const std::vector<std::string>& fragments) {
    CHECK(outcome.code == 2);
    CHECK(outcome.out.empty());
    CHECK_THAT(outcome.err, StartsWith("fake_rung: "));
    const auto lines = std::ranges::count(outcome.err, '\n');
    CHECK(lines >= 1);
    CHECK(lines <= 3);
    CHECK(outcome.err.back() == '\n');
    for (const std::string& fragment : fragments) {
        CHECK_THAT(outcome.err, ContainsSubstring(fragment));
    }
}

/// The rung refuses these arguments before it runs, and its message holds all the fragments.
void refuses(const std::vector<std::string>& arguments, const std::vector<std::string>& fragments,
             const std::string& environment = "") {
    CAPTURE(arguments);
    const TemporaryFolder folder;
    const std::string trace = (folder / "ran").string();
    check_refused(run_fake_rung(arguments, environment + " FAKE_RUNG_TRACE='" + trace + "'"),
                  fragments);
    CHECK(folder.names().empty());
}

const std::string q = R"("q":{"dtype":"F32","shape":[1,1,2,16],"data_offsets":[0,128]})";
const std::string k = R"("k":{"dtype":"F32","shape":[1,1,2,16],"data_offsets":[128,256]})";
const std::string v = R"("v":{"dtype":"F32","shape":[1,1,2,16],"data_offsets":[256,384]})";

/// The file with these bytes is refused as --input.
void refuses_file(const std::string& bytes, const std::vector<std::string>& fragments,
                  std::vector<std::string> arguments = {}) {
    const TemporaryFolder folder;
    const std::string path = folder.file("in.safetensors", bytes);
    arguments.insert(arguments.end(), {"--input", path});
    refuses(arguments, fragments);
}

/// The same for a file of this header, each time with 384 bytes of data.
void refuses_header(const std::string& header, const std::vector<std::string>& fragments,
                    const std::vector<std::string>& arguments = {}) {
    refuses_file(safetensors_bytes(header, 384), fragments, arguments);
}

} // namespace

TEST_CASE("refused: unknown options") {
    refuses({"--qlen", "5"}, {"unknown option '--qlen'", "fake_rung --help"});
    refuses({"--kvlen=5"}, {"unknown option '--kvlen=5'"});
    refuses({"-z"}, {"unknown option '-z'"});
    refuses({"128"}, {"unknown option '128'"});
    refuses({"--causal", "\x1b[2J"}, {"unknown option '?[2J'"});
}

TEST_CASE("refused: lengths, in one line, where sequences do not lie on a line") {
    for (const std::vector<std::string>& arguments :
         {std::vector<std::string>{"--lengths", "5,0,70"}, {"--lengths=5"}}) {
        refuses(arguments, {"fake_rung knows no --lengths; the rung packed_sequences does\n"});
        CHECK(std::ranges::count(run_fake_rung(arguments).err, '\n') == 1);
    }
    refuses({"--kv-lengths", "5"}, {"knows no --kv-lengths; the rung packed_sequences does"});
}

TEST_CASE("refused: values that are no values") {
    refuses({"--q-len", "abc"}, {"--q-len: needs a whole number, got 'abc'"});
    refuses({"--q-len", "12x"}, {"--q-len: needs a whole number, got '12x'"});
    refuses({"--q-len", "3.5"}, {"--q-len: needs a whole number"});
    refuses({"--q-len", ""}, {"--q-len: needs"});
    refuses({"--q-len"}, {"--q-len: 1 required"});
    for (const std::string option : {"--heads", "--seed", "--check-rows"}) {
        refuses({option, "99999999999999999999"}, {option + ": ", "99999999999999999999"});
    }
    refuses({"--seed", "-1"}, {"--seed: needs a whole number, 0 or more"});
    refuses({"--scale", "big"}, {"--scale: needs a number, got 'big'"});
    refuses({"--scale", ""}, {"--scale: needs a number, got ''"});
    refuses({"--scale", "1e99"}, {"scale must be from 1.4e-45"});
    refuses({"--dtype", "fp8"}, {"--dtype: fp8 not in {fp32,fp16,bf16}"});
    refuses({"--dtype", "\x1b[2J"}, {"--dtype: ?[2J not in"});
}

TEST_CASE("refused: sizes below one") {
    for (const std::string option : {"batch", "heads", "kv-heads", "q-len", "kv-len", "head-dim"}) {
        refuses({"--" + option, "0"}, {option + " must be at least 1, got 0"});
        refuses({"--" + option, "-7"}, {option + " must be at least 1, got -7"});
    }
}

TEST_CASE("refused: absurd sizes") {
    refuses({"--batch", "2097152", "--heads", "2097152", "--q-len", "2097152"},
            {"Q would have", "more than 2^63"});
    refuses({"--kv-len", "9223372036854775807"}, {"K would have", "more than 2^63"});
    refuses({"--q-len", "100000000000"}, {"not enough memory", "available", "try a smaller"});
}

TEST_CASE("refused: a problem whose tensors fit but whose workspace does not") {
    const std::vector<std::string> arguments = {"--heads", "1",          "--q-len",
                                                "2000000", "--head-dim", "16"};
    refuses(arguments, {"not enough memory", "14.6 TiB of it is workspace of fake_rung"},
            "FAKE_RUNG=hungry");
}

TEST_CASE("refused: windows that are none, and what the rung does not know") {
    refuses({"--window", "0"}, {"window must be at least 1, the query's own key, got 0"});
    refuses({"--window", "-5"}, {"window must be at least 1", "got -5"});
    refuses({"--window", "many"}, {"--window: needs a whole number, got 'many'"});
    refuses({"--window", "5"}, {"knows no window; the rung window does"}, "FAKE_RUNG='no window'");
    refuses({"--sink"}, {"knows no sink; the rung window does"}, "FAKE_RUNG='no window'");
}

TEST_CASE("refused: a head dim of V's own that is none, or that the rung does not know") {
    const std::string knows = "FAKE_RUNG='two head dims'"; // 16 and 32
    refuses({"--head-dim-v", "0"}, {"head-dim-v must be at least 1, got 0"});
    refuses({"--head-dim-v", "wide"}, {"--head-dim-v: needs a whole number, got 'wide'"}, knows);
    refuses({"--head-dim", "16", "--head-dim-v", "32"},
            {"knows no head dim of V's own, such as 32 beside 16; the rung two_head_dims does"});
    refuses({"--head-dim", "16", "--head-dim-v", "16"},
            {"has no version for head dim 16 of V; beside 16 it supports 32"}, knows);
    refuses({"--head-dim", "32"}, {"has no version for head dim 32; it supports 16"}, knows);
    refuses({"--head-dim-v", "9223372036854775807"}, {"V would have", "more than 2^63"});
}

TEST_CASE("refused: heads that do not divide") {
    refuses({"--heads", "6", "--kv-heads", "4"}, {"heads (6) must be a multiple of kv-heads (4)"});
}

TEST_CASE("refused: scales that make no softmax") {
    refuses({"--scale", "nan"}, {"scale must be from 1.4e-45"});
    refuses({"--scale", "inf"}, {"scale must be from 1.4e-45"});
    refuses({"--scale", "1e-50"}, {"to 2.3e+38, got 0;"});        // 0 in fp32
    refuses({"--scale", "2.4e38"}, {"to 2.3e+38, got 2.4e+38;"}); // times log2(e) it is infinite
    refuses({"--scale", "0"}, {"scale must be from 1.4e-45"});
    refuses({"--scale", "-1"}, {"scale must be from 1.4e-45"});
}

TEST_CASE("refused: what the rung does not support, with what it does") {
    refuses({"--head-dim", "48"}, {"no version for head dim 48", "16, 32, 64"});
    refuses({"--dtype", "fp32"}, {"no fp32 version", "fp16, bf16"}, "FAKE_RUNG='half only'");
    refuses({}, {"there is no such device", "use a CPU rung"}, "FAKE_RUNG='no device'");
}

TEST_CASE("refused: memory that runs out in the middle") {
    check_refused(run_fake_rung({}, "FAKE_RUNG='no memory'"), {"out of memory", "try a smaller"});
#ifndef __SANITIZE_ADDRESS__ // which reserves terabytes of addresses for itself
    check_refused(run_fake_rung({"--q-len", "1000000"}, "", "ulimit -v 2000000"),
                  {"this problem needs", "available"});
#endif
}

TEST_CASE("refused: paths that are not input files") {
    const TemporaryFolder folder;
    refuses({"--input", (folder / "absent").string()}, {"absent: ", "No such file"});
    refuses({"--input", (folder / "").string()}, {"is a directory", "safetensors file is needed"});
    refuses({"--input", ""}, {"the input file needs a name"});
    refuses({"--input", "/dev/null"}, {"/dev/null: is not a regular file"});
    refuses({"--input", folder.file("x", ""), "--seed", "1"},
            {"--seed", "--input", "give one of them"});
}

TEST_CASE("refused: truncated files") {
    const std::string whole = safetensors_bytes("{" + q + "," + k + "," + v + "}", 384);
    refuses_file("", {"has 0 bytes, too few"});
    refuses_file(whole.substr(0, 7), {"has 7 bytes, too few"});
    refuses_file(whole.substr(0, 60), {"claims a header of", "the file has only 60", "truncated?"});
    refuses_file(whole.substr(0, whole.size() - 1), {"holds only 383 bytes of data", "truncated?"});
}

TEST_CASE("refused: a header length that lies") {
    const std::string header = "{" + q + "," + k + "," + v + "}";
    refuses_file(safetensors_bytes(header, 384, 0), {"does not begin with '{'"});
    refuses_file(safetensors_bytes(header, 384, 20), {"not valid JSON"});
    refuses_file(safetensors_bytes(header, 384, static_cast<long long>(header.size()) + 4),
                 {"zero byte"});
    refuses_file(safetensors_bytes(header, 384, 100000),
                 {"claims a header of 100000 bytes", "has only"});
    refuses_file(safetensors_bytes(header, 384, 100000001), {"more than the format allows"});
    refuses_file(std::string(8, '\xff') + header,
                 {"18446744073709551615", "more than the format allows"});
}

TEST_CASE("refused: offsets that overlap, leave holes, or lie outside the file") {
    const auto with_k = [](const std::string& offsets) {
        return "{" + q + R"(,"k":{"dtype":"F32","shape":[1,1,2,16],"data_offsets":[)" + offsets +
               "]}," + v + "}";
    };
    refuses_header(with_k("64,192"), {"'k'", "64 to 192", "overlap"});
    refuses_header(with_k("128,384"), {"overlap"});
    refuses_header(with_k("0,128"), {"overlap"});
    refuses_header(with_k("132,256"), {"hole"});
    refuses_header(with_k("256,128"), {"ends before it begins"});
    refuses_header(with_k("18446744073709551488,18446744073709551615"), {"holds only 384 bytes"});
    refuses_header(with_k("-128,0"), {"negative"});
    refuses_header(with_k("128"), {"two data_offsets"});
    refuses_header("{" + q + "," + k + "}", {"last 128 bytes", "belong to no tensor"});
}

TEST_CASE("refused: tensors that are missing, or not what attention needs") {
    refuses_header(R"({"q":{"dtype":"F32","shape":[1,1,6,16],"data_offsets":[0,384]}})",
                   {"has no tensor 'k'", "it holds 'q'"});
    refuses_header("{" + q + "," + k +
                       R"(,"v":{"dtype":"F32","shape":[2,16],"data_offsets":[256,384]}})",
                   {"v has the shape (2, 16)", "4 dimensions"});
    refuses_header("{" + q + "," + k +
                       R"(,"v":{"dtype":"F32","shape":[1,1,1,32],"data_offsets":[256,384]}})",
                   {"shapes disagree", "v (1, 1, 1, 32)", "k and v must have the same shape"});
    refuses_header(R"({"q":{"dtype":"F32","shape":[2,1,1,16],"data_offsets":[0,128]},)" + k + "," +
                       v + "}",
                   {"shapes disagree", "same batch"});
    refuses_header(R"({"q":{"dtype":"F32","shape":[1,1,1,32],"data_offsets":[0,128]},)" + k + "," +
                       v + "}",
                   {"shapes disagree", "same head dim"});
    refuses_header("{" + q + "," + k +
                       R"(,"v":{"dtype":"I32","shape":[1,1,2,16],"data_offsets":[256,384]}})",
                   {"tensor 'v' has the type 'I32'", "F32, F16 and BF16"});
    refuses_header("{" + q + "," + k +
                       R"(,"v":{"dtype":"X9","shape":[1,1,2,16],"data_offsets":[256,384]}})",
                   {"tensor 'v' has the type 'X9'"});
    refuses_header("{" + q + "," + k +
                       R"(,"v":{"dtype":"F32","shape":[1,1,2,15],"data_offsets":[256,384]}})",
                   {"'v' has the shape (1, 1, 2, 15) of 'F32', but 128 bytes"});
    refuses_header(R"({"q":{"dtype":"F32","shape":[1,1,0,16],"data_offsets":[0,0]},)"
                   R"("k":{"dtype":"F32","shape":[1,1,3,16],"data_offsets":[0,192]},)"
                   R"("v":{"dtype":"F32","shape":[1,1,3,16],"data_offsets":[192,384]}})",
                   {"q-len must be at least 1, got 0"});
}

TEST_CASE("refused: options that disagree with the file") {
    const std::string header = "{" + q + "," + k + "," + v + "}";
    refuses_header(header, {"has no tensor 'sink'"}, {"--sink"});
    refuses_file(safetensors_bytes("{" + q + "," + k + "," + v +
                                       R"(,"sink":{"dtype":"F32","shape":[2],)"
                                       R"("data_offsets":[384,392]}})",
                                   392),
                 {"sink has the shape (2)", "each of the 1 query heads"}, {"--sink"});
    for (const std::string option : {"--batch", "--heads", "--kv-heads", "--q-len", "--kv-len"}) {
        refuses_header(
            header, {option + " 3 disagrees with", "q (1, 1, 2, 16)", "leave " + option + " out"},
            {option, "3"});
    }
    refuses_header(header, {"--head-dim 32 disagrees"}, {"--head-dim", "32"});
}

TEST_CASE("refused: a tensor larger than memory, in a file that really is so large") {
    const TemporaryFolder folder;
    const std::string tensor = R"({"dtype":"F16","shape":[1,1,68719476736,16],"data_offsets":)";
    const std::string header = R"({"q":)" + tensor + R"([0,2199023255552]},"k":)" + tensor +
                               R"([2199023255552,4398046511104]},"v":)" + tensor +
                               "[4398046511104,6597069766656]}}";
    const std::string path = folder.file("huge", safetensors_bytes(header, 0));
    std::error_code failure;
    // a hole: takes no space
    std::filesystem::resize_file(path, 8 + header.size() + 6597069766656, failure);
    if (failure) {
        SKIP("this file system has no files of that size");
    }
    refuses({"--input", path}, {"not enough memory", "try a smaller"});
}

TEST_CASE("refused: values too large for the type") {
    const TemporaryFolder folder;
    std::vector<float> x(16, 1.0f), large = x, infinite = x;
    large[5] = 70000;
    infinite[5] = std::numeric_limits<float>::infinity();
    const auto write = [&](const std::string& name, const std::vector<float>& values) {
        const std::string path = (folder / name).string();
        write_safetensors(path, {{"q", DType::fp32, {1, 1, 1, 16}, x},
                                 {"k", DType::fp32, {1, 1, 1, 16}, x},
                                 {"v", DType::fp32, {1, 1, 1, 16}, values}});
        return path;
    };
    const std::string path = write("large", large);
    refuses({"--input", path, "--dtype", "fp16"},
            {"v holds 70000", "element 5", "too large for fp16", "65504"});
    CHECK(run_fake_rung({"--input", path, "--dtype", "bf16"}).code == 0);
    large[5] = 3.4e38f;
    refuses({"--input", write("largest", large), "--dtype", "bf16"},
            {"too large for bf16", "try --dtype fp32"});
    // Infinity is a value of every type; what comes of it is the reference's to say.
    CHECK_THAT(
        run_fake_rung({"--input", write("inf", infinite), "--dtype", "fp16", "--no-check"}).out,
        ContainsSubstring("not checked"));
}

TEST_CASE("refused before anything runs: outputs that cannot be written") {
    const TemporaryFolder folder;
    refuses({"--output", (folder / "absent/o").string()},
            {"cannot write", "there is no directory", "absent"});
    refuses({"--output", (folder / "").string()}, {"cannot write", "it is a directory"});
    refuses({"--output", "/dev/null"}, {"cannot write /dev/null: it is not a regular file"});
    refuses({"--output", ""}, {"needs a name"});
    refuses({"--output", "/dev/null/o.safetensors"}, {"cannot write /dev/null/o.safetensors"});
    CHECK(folder.names().empty());
    if (geteuid() != 0) { // root may write anywhere
        std::filesystem::create_directory(folder / "locked");
        std::filesystem::permissions(folder / "locked", std::filesystem::perms::owner_read |
                                                            std::filesystem::perms::owner_exec);
        refuses({"--output", (folder / "locked/o").string()}, {"Permission denied"});
    }
}

TEST_CASE("a write that fails half way leaves the old file, and no other") {
    const TemporaryFolder folder;
    const std::string path = folder.file("o.safetensors", "as before");
    // No file may grow beyond 1 KiB; the signal that comes with it is ignored, as there is none on
    // a full disk.
    // The first output fails while it is written, the second, which fits a buffer, only when it is
    // closed.
    for (const std::string length : {"300", "15"}) {
        check_refused(
            run_fake_rung({"--heads", "1", "--q-len", length, "--head-dim", "16", "--output", path},
                          "", "trap '' XFSZ; ulimit -f 2"),
            {"cannot write", "too large"});
        CHECK(folder.names() == std::vector<std::string>{"o.safetensors"});
        CHECK(contents_of(path) == "as before");
    }
}

TEST_CASE("refused: a report that cannot be printed") {
    const TemporaryFolder folder;
    const int status =
        std::system(("'" FAKE_RUNG "' >/dev/full 2>'" + (folder / "err").string() + "'").c_str());
    CHECK(WEXITSTATUS(status) == 2);
    CHECK_THAT(contents_of(folder / "err"), ContainsSubstring("cannot write the report"));
}
