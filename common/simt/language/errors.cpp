#include "common/simt/language/errors.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace flash::simt {
namespace {

struct Entry {
    cudaError_t code;
    const char* name;
    const char* text;
};

constexpr Entry errors[] = {
#define FLASH_SIMT_ERROR(name, number, text) {name, #name, text},
    FLASH_SIMT_ERRORS(FLASH_SIMT_ERROR)
#undef FLASH_SIMT_ERROR
};

const Entry* find(cudaError_t code) {
    const Entry* const found =
        std::ranges::find_if(errors, [code](const Entry& error) { return error.code == code; });
    return found == std::end(errors) ? nullptr : found;
}

constinit thread_local cudaError_t last_error = cudaSuccess;

} // namespace

cudaError_t noted(cudaError_t error) {
    last_error = error == cudaSuccess ? last_error : error;
    return error;
}

} // namespace flash::simt

using namespace flash::simt;

const char* cudaGetErrorName(cudaError_t error) {
    const auto* const found = find(error);
    return found == nullptr ? "unrecognized error code" : found->name;
}
const char* cudaGetErrorString(cudaError_t error) {
    const auto* const found = find(error);
    return found == nullptr ? "unrecognized error code" : found->text;
}
cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
cudaError_t cudaPeekAtLastError() { return last_error; }
