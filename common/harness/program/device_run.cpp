#include "common/harness/program/device_run.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "common/harness/files/convert.hpp"
#include "common/harness/program/limits.hpp"

namespace flash {
namespace {

// An ordinary number in every type (-0.85 as fp32 and bf16, -1.84 as fp16), because a kernel that
// reads, scales and writes back a value outside O would leave a NaN or a zero as it was.
constexpr uint16_t canary = 0xbf5a;

constexpr size_t piece = 1 << 20; // bytes that are copied at once: a tensor may be large

void fill(std::span<std::byte> bytes, std::span<const uint16_t> pattern) {
    if (bytes.empty()) { // memcpy must not be given a null pointer, even for nothing
        return;
    }
    // four bytes at a time: margins are large
    const std::array<uint16_t, 2> two{pattern.front(), pattern.back()};
    const size_t rest = bytes.size() % sizeof two;
    for (size_t at = 0; at < bytes.size() - rest; at += sizeof two) {
        std::memcpy(bytes.data() + at, two.data(), sizeof two);
    }
    std::memcpy(bytes.data() + bytes.size() - rest, two.data(), rest);
}

/// A quiet NaN of the type, as 16-bit words, lowest first.
std::vector<uint16_t> quiet_nan(DType type) {
    switch (type) {
    case DType::fp16:
        return {0x7e00};
    case DType::bf16:
        return {0x7fc0};
    case DType::e4m3:
        return {0x7f7f};
    default:
        return {0x0000, 0x7fc0};
    }
}

/// Where byte `offset` of an allocation lies, seen from the tensor inside it.
std::string place(const char* name, size_t offset, size_t margin, size_t bytes) {
    const std::string tensor(name);
    if (offset < margin) {
        return "memory before " + tensor + " was overwritten, " + std::to_string(margin - offset) +
               " bytes ahead of its start";
    }
    if (offset >= margin + bytes) {
        return "memory after " + tensor + " was overwritten, at byte " +
               std::to_string(offset - margin - bytes) + " past its end";
    }
    return tensor + ", an input, was overwritten at byte " + std::to_string(offset - margin);
}

/// The first byte of `memory` from `offset` on that is not as expected. Read in pieces: a tensor
/// may be large.
std::optional<size_t> first_difference(const Memory& memory, size_t offset,
                                       std::span<const std::byte> expected) {
    std::vector<std::byte> now;
    for (size_t done = 0; done < expected.size(); done += piece) {
        const auto part = expected.subspan(done, std::min(piece, expected.size() - done));
        now.resize(part.size());
        memory.read(offset + done, now.data(), now.size());
        // many times as fast as looking for the byte
        if (std::memcmp(now.data(), part.data(), now.size()) != 0) {
            const auto got = std::ranges::mismatch(now, part).in1;
            return offset + done + static_cast<size_t>(got - now.begin());
        }
    }
    return std::nullopt;
}

} // namespace

int64_t TensorSpec::size() const {
    return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

DeviceRun::Tensor DeviceRun::reserve(const TensorSpec& spec) const {
    Tensor tensor{spec, call_.backend->allocate(spec.bytes() + 2 * margin_), {}};
    tensor.memory->declare(margin_, spec.bytes(), spec.name);
    return tensor;
}

DeviceRun::DeviceRun(Call call, size_t margin) : call_(std::move(call)), margin_(margin) {
    if (margin % 256 != 0) {
        throw std::invalid_argument(
            "DeviceRun: the margin must be a multiple of 256, or the tensors lose alignment");
    }
    if (call_.takes_workspace && !call_.workspace_bytes) {
        throw std::invalid_argument(
            "DeviceRun: the rung takes a workspace, and does not say how large");
    }
    require_memory(call_, margin);
    for (const TensorSpec& spec : call_.inputs) {
        pointers_.inputs.push_back(data(inputs_.emplace_back(reserve(spec))));
    }
    for (const TensorSpec& spec : call_.outputs) {
        pointers_.outputs.push_back(data(outputs_.emplace_back(reserve(spec))));
    }
    if (call_.takes_workspace) {
        workspace_ = reserve({"the workspace", DType::fp32, {(call_.workspace_bytes() + 3) / 4}});
        pointers_.workspace = data(*workspace_);
    }
    poison();
}

DeviceRun::DeviceRun(Call call, const std::vector<std::span<const float>>& inputs, size_t margin)
    : DeviceRun(std::move(call), margin) {
    for (size_t i = 0; i < inputs_.size(); ++i) {
        upload(i, inputs.at(i));
    }
}

void DeviceRun::upload(size_t i, size_t elements, const std::function<void(std::byte*)>& copy) {
    Tensor& tensor = inputs_[i];
    if (elements != static_cast<size_t>(tensor.spec.size())) {
        throw Error(std::string(tensor.spec.name) + " has " + std::to_string(elements) +
                    " elements, the problem needs " + std::to_string(tensor.spec.size()));
    }
    std::vector<std::byte>& bits = tensor.uploaded;
    bits.resize(tensor.spec.bytes() + 2 * margin_);
    const std::vector<uint16_t> nan = quiet_nan(tensor.spec.dtype);
    fill(std::span(bits).first(margin_), nan);
    fill(std::span(bits).last(margin_), nan);
    copy(bits.data() + margin_);
    tensor.memory->write(0, bits.data(), bits.size());
}

void DeviceRun::upload(size_t i, std::span<const float> values) {
    upload(i, values.size(), [&](std::byte* to) { to_bytes(inputs_[i].spec.dtype, values, to); });
}

void DeviceRun::upload(size_t i, std::span<const int> numbers) {
    upload(i, numbers.size(),
           [&](std::byte* to) { std::memcpy(to, numbers.data(), numbers.size_bytes()); });
}

void DeviceRun::poison(Tensor& tensor, std::span<const uint16_t> pattern) {
    const auto write = [&tensor](size_t begin, size_t bytes, std::span<const uint16_t> words) {
        std::vector<std::byte> bits(std::min(bytes, piece));
        fill(bits, words);
        for (size_t done = 0; done < bytes; done += bits.size()) {
            tensor.memory->write(begin + done, bits.data(), std::min(bits.size(), bytes - done));
        }
    };
    write(0, margin_, std::span(&canary, 1));
    write(margin_, tensor.spec.bytes(), pattern);
    write(margin_ + tensor.spec.bytes(), margin_, std::span(&canary, 1));
}

void DeviceRun::poison() {
    for (Tensor& tensor : outputs_) {
        poison(tensor, quiet_nan(tensor.spec.dtype));
    }
    // NaN, which is a large number where a rung counts; the next time a small one, as floats nearly
    // 0
    if (workspace_) {
        poison(*workspace_,
               poisonings_++ % 2 == 0 ? quiet_nan(DType::fp32) : std::vector<uint16_t>{3, 0});
    }
}

void DeviceRun::launch() { call_.function(pointers_); }

void DeviceRun::run() {
    launch();
    call_.backend->synchronize();
}

double DeviceRun::time() {
    call_.backend->flush_caches();
    return call_.backend->time([this] { launch(); });
}

std::vector<float> DeviceRun::output(size_t i, int64_t first, int64_t count) const {
    const Tensor& tensor = outputs_[i];
    const auto element = static_cast<size_t>(dtype_bytes(tensor.spec.dtype));
    std::vector<std::byte> bits(static_cast<size_t>(count) * element);
    tensor.memory->read(margin_ + static_cast<size_t>(first) * element, bits.data(), bits.size());
    std::vector<float> values(static_cast<size_t>(count));
    to_floats(tensor.spec.dtype, bits.data(), values);
    return values;
}

std::string DeviceRun::damage() const {
    std::vector<std::byte> untouched(margin_);
    fill(untouched, std::span(&canary, 1));
    const auto damage_around = [&](const Tensor& tensor) -> std::string {
        for (const size_t from : {size_t{0}, margin_ + tensor.spec.bytes()}) {
            if (const auto offset = first_difference(*tensor.memory, from, untouched)) {
                return place(tensor.spec.name, *offset, margin_, tensor.spec.bytes());
            }
        }
        return {};
    };
    for (const Tensor& tensor : outputs_) {
        if (std::string found = damage_around(tensor); !found.empty()) {
            return found;
        }
    }
    if (workspace_) {
        if (std::string found = damage_around(*workspace_); !found.empty()) {
            return found;
        }
    }
    for (const Tensor& tensor : inputs_) {
        if (const auto offset = first_difference(*tensor.memory, 0, tensor.uploaded)) {
            return place(tensor.spec.name, *offset, margin_, tensor.spec.bytes());
        }
    }
    return {};
}

} // namespace flash
