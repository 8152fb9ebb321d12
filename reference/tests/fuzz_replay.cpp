// One input for each answer of the reader, of those that fuzzing found, in every test run.
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

TEST_CASE("the safetensors reader survives the fuzzing corpus") {
    int files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(FLASH_FUZZ_CORPUS)) {
        std::ifstream file(entry.path(), std::ios::binary);
        const std::string bytes{std::istreambuf_iterator<char>(file), {}};
        CAPTURE(entry.path());
        CHECK(LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()),
                                     bytes.size()) == 0);
        ++files;
    }
    CHECK(files > 30);
}
