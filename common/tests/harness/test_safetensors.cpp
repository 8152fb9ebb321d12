#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstring>
#include <sstream>

#include "common/attention.hpp"
#include "common/harness/files/safetensors.hpp"
#include "common/harness/files/safetensors_header.hpp"
#include "common/tests/harness/temporary_folder.hpp"

using namespace flash;
using namespace flash::test;
using Catch::Matchers::ContainsSubstring;

namespace {

SafetensorsReader reader(const std::string& bytes) {
    return {std::make_unique<std::istringstream>(bytes), "test"};
}

/// The message with which this file is refused.
std::string refusal(const std::string& header, size_t data_bytes = 8) {
    try {
        reader(safetensors_bytes(header, data_bytes));
    } catch (const Error& error) {
        return error.what();
    }
    return "accepted";
}

std::string tensor(const std::string& fields) { return R"({"a":{)" + fields + "}}"; }

} // namespace

TEST_CASE("what was written is read back, in every type") {
    const TemporaryFolder folder;
    const std::string path = (folder / "x.safetensors").string();
    const std::vector<float> values = {0,      -0.0f,    1.5f,
                                       -65504, 0x1p-14f, std::numeric_limits<float>::infinity()};
    const std::map<std::string, std::string> metadata = {{"a", "text"},
                                                         {"quote \" and \n", "\u00fc"}};
    write_safetensors(path,
                      {{"half", DType::fp16, {2, 3}, values},
                       {"brain", DType::bf16, {1}, std::span(values).subspan(2, 1)},
                       {"float", DType::fp32, {6, 1}, values},
                       {"scalar", DType::fp32, {}, std::span(values).first(1)},
                       {"empty", DType::fp16, {4, 0}, {}}},
                      metadata);
    SafetensorsReader file(path);
    CHECK(file.tensors().size() == 5);
    CHECK(file.metadata() == metadata);
    for (const char* name : {"half", "float"}) {
        const std::vector<float> got = file.read(name);
        REQUIRE(got.size() == values.size());
        CHECK(std::memcmp(got.data(), values.data(), got.size() * sizeof(float)) == 0);
    }
    CHECK(file.read("brain") == std::vector<float>{1.5f});
    CHECK(file.read("scalar") == std::vector<float>{0});
    CHECK(file.read("empty").empty());
    CHECK(file.info("half").shape == std::vector<int64_t>{2, 3});
    CHECK(file.read_double("half")[3] == -65504.0);

    CHECK(folder.names() == std::vector<std::string>{"x.safetensors"});
}

TEST_CASE("every tensor is aligned to its element, as readers that map the file expect") {
    const TemporaryFolder folder;
    const std::string path = (folder / "x").string();
    const std::vector<float> values = {1, 2, 3};
    for (size_t length = 1; length <= 8; ++length) { // of the name, and so of the header
        const std::string name(length, 'n');
        write_safetensors(path,
                          {{"half", DType::fp16, {3}, values}, {name, DType::fp32, {3}, values}});
        const std::string bytes = contents_of(path);
        uint64_t header = 0;
        std::memcpy(&header, bytes.data(), sizeof header);
        CHECK(header % 8 == 0);
        CHECK(bytes[8] == '{');
        SafetensorsReader file(path);
        CHECK(file.info(name).begin % 4 == 0);
        CHECK(file.read("half") == values);
    }
}

TEST_CASE("values are rounded to the type when written") {
    const TemporaryFolder folder;
    const std::string path = (folder / "x").string();
    const std::vector<float> third = {1.0f / 3};
    write_safetensors(path, {{"h", DType::fp16, {1}, third}, {"b", DType::bf16, {1}, third}});
    SafetensorsReader file(path);
    CHECK(file.read("h")[0] == 0.333251953125f);
    CHECK(file.read("b")[0] == 0.333984375f);
}

TEST_CASE("a tensor longer than the reader's pieces") {
    const TemporaryFolder folder;
    const std::string path = (folder / "x").string();
    std::vector<float> values(200'001);
    for (size_t i = 0; i < values.size(); ++i) {
        values[i] = static_cast<float>(i % 2048);
    }
    write_safetensors(
        path, {{"a", DType::fp16, {200'001}, values}, {"b", DType::fp32, {200'001}, values}});
    SafetensorsReader file(path);
    CHECK(file.read("a") == values);
    CHECK(file.read("b") == values);
}

TEST_CASE("float64 is read as double only") {
    std::string bytes =
        safetensors_bytes(tensor(R"("dtype":"F64","shape":[1],"data_offsets":[0,8])"), 0);
    const double value = 0.1;
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
    SafetensorsReader file = reader(bytes);
    CHECK(file.read_double("a") == std::vector<double>{0.1});
    CHECK_THROWS_AS(file.read("a"), Error);
}

TEST_CASE("a type that nobody asks for does no harm") {
    SafetensorsReader file =
        reader(safetensors_bytes(R"({"new":{"dtype":"F3","shape":[5],"data_offsets":[0,2]},)"
                                 R"("a":{"dtype":"F16","shape":[3],"data_offsets":[2,8]}})",
                                 8));
    // at an odd place: alignment is not assumed
    CHECK(file.read("a") == std::vector<float>{0, 0, 0});
    CHECK_THROWS_AS(file.read("new"), Error);
}

TEST_CASE("empty tensors, scalars and blanks after the header are part of the format") {
    CHECK(refusal(tensor(R"("dtype":"F64","shape":[],"data_offsets":[0,8])")) == "accepted");
    CHECK(refusal(R"({"e":{"dtype":"F32","shape":[0,7],"data_offsets":[0,0]},)"
                  R"("f":{"dtype":"F32","shape":[0],"data_offsets":[8,8]},)"
                  R"("a":{"dtype":"I64","shape":[1,1],"data_offsets":[0,8]}})") == "accepted");
    CHECK(refusal(tensor(R"("data_offsets":[0,8],"shape":[2],"dtype":"F32")") + "   \n") ==
          "accepted");
    CHECK(refusal(R"({"__metadata__":{"k":"v"}})", 0) == "accepted");
    CHECK(refusal("{}", 0) == "accepted");
    CHECK(refusal(tensor(R"("dtype":"F4","shape":[16],"data_offsets":[0,8])")) == "accepted");
}

TEST_CASE("headers that the format does not allow are refused, each with its reason") {
    const auto refused = [](const std::string& header, const std::string& reason) {
        CAPTURE(header);
        CHECK_THAT(refusal(header), ContainsSubstring(reason));
    };
    const std::string a = R"("a":{"dtype":"F64","shape":[1],"data_offsets":[0,8]})";
    refused("[]", "begin with '{'");
    refused(" {}", "begin with '{'");
    refused("{" + a, "not valid JSON");
    refused("{" + a + "} x", "not valid JSON");
    refused("{" + a + "}" + std::string(1, '\0') + "x", "zero byte");
    refused("{\"\xff\":1}", "not valid JSON"); // not UTF-8
    refused("{" + a + "," + a + "}", "'a' twice");
    refused(tensor(R"("dtype":"F64","dtype":"F32","shape":[1],"data_offsets":[0,8])"),
            "'dtype' twice in 'a'");
    refused(R"({"__metadata__":{"x":"1","x":"2"}})", "'x' twice in '__metadata__'");
    refused(R"({"__metadata__":{"x":1}})", "the number 1 for 'x' in __metadata__");
    refused(R"({"__metadata__":"x"})", "a text for '__metadata__'");
    refused(R"({"a":[1]})", "a list for 'a'");
    refused(R"({"a":null})", "null for 'a'");
    refused(R"({"a":true})", "true or false for 'a'");
    refused(R"({"a":{"dtype":{}}})", "an object for the dtype of tensor 'a'");
    refused(tensor(R"("dtype":"F64","shape":[1])"), "lacks one of dtype, shape and data_offsets");
    refused(tensor(R"("dtype":"F64","shape":[1],"data_offsets":[0,8],"x":1)"), "unknown field 'x'");
    refused(tensor(R"("dtype":1,"shape":[1],"data_offsets":[0,8])"), "the number 1 for the dtype");
    refused(tensor(R"("dtype":"F64","shape":"1","data_offsets":[0,8])"), "a text for the shape");
    refused(tensor(R"("dtype":"F64","shape":[[1]],"data_offsets":[0,8])"), "a list for the shape");
    refused(tensor(R"("dtype":"F64","shape":[-1],"data_offsets":[0,8])"), "a negative number");
    refused(tensor(R"("dtype":"F64","shape":[1.0],"data_offsets":[0,8])"), "not whole");
    refused(tensor(R"("dtype":"F64","shape":[9223372036854775808],"data_offsets":[0,8])"),
            "9223372036854775808");
    refused(tensor(R"("dtype":"F64","shape":[99999999999999999999],"data_offsets":[0,8])"),
            "too large");
    refused(tensor(R"("dtype":"F64","shape":[1],"data_offsets":[0,8,8])"), "two data_offsets");
    refused(tensor(R"("dtype":"F64","shape":[2],"data_offsets":[0,8])"), "but 8 bytes");
    // 60 bits are no whole number of bytes.
    CHECK_THAT(refusal(tensor(R"("dtype":"F4","shape":[15],"data_offsets":[0,7])"), 7),
               ContainsSubstring("but 7 bytes"));
}

TEST_CASE("shapes whose product overflows are refused") {
    // 2^32 * 2^32 elements wrap to 0, and 2^61 elements of 64 bits wrap to 0 bits: either would
    // look like no data.
    CHECK_THAT(
        refusal(tensor(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0])"), 0),
        ContainsSubstring("more than 2^63 elements"));
    CHECK_THAT(
        refusal(tensor(R"("dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,0])"), 0),
        ContainsSubstring("2^64 bits"));
    CHECK_THAT(
        refusal(tensor(R"("dtype":"new","shape":[4294967296,4294967296],"data_offsets":[0,0])"), 0),
        ContainsSubstring("more than 2^63 elements"));
}

TEST_CASE("names from a file cannot upset a terminal or flood it") {
    const std::string name = "\\u001b[2J" + std::string(500, 'n');
    const std::string message =
        refusal(R"({")" + name + R"(":{"dtype":"F32","shape":[1],"data_offsets":[0,8]}})");
    CHECK_THAT(message, ContainsSubstring("'?[2Jnnn"));
    CHECK(message.size() < 250);
    CHECK(format_shape(std::vector<int64_t>(10'000, 1)) == "(1, 1, 1, 1, 1, 1, 1, 1, ...)");
}

TEST_CASE("a tensor that is not there is answered with those that are") {
    SafetensorsReader file =
        reader(safetensors_bytes(R"({"x":{"dtype":"F64","shape":[1],"data_offsets":[0,8]}})", 8));
    try {
        file.info("q");
        FAIL("not refused");
    } catch (const Error& error) {
        CHECK(std::string(error.what()) == "test: has no tensor 'q'; it holds 'x'");
    }
}
