#include "common/harness/device_run.hpp"

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>

#include "common/harness/convert.hpp"
#include "common/harness/limits.hpp"

namespace flash {
namespace {

// An ordinary number in every type (-0.85 as fp32 and bf16, -1.84 as fp16), because a kernel that reads, scales and
// writes back a value outside O would leave a NaN or a zero as it was.
constexpr uint16_t canary = 0xbf5a;

void fill(std::span<std::byte> bytes, std::span<const uint16_t> pattern) {
    for (size_t i = 0; i < bytes.size() / 2; ++i) {
        std::memcpy(bytes.data() + 2 * i, &pattern[i % pattern.size()], 2);
    }
}

/// A quiet NaN of the type, as 16-bit words, lowest first.
std::vector<uint16_t> quiet_nan(DType type) {
    switch (type) {
    case DType::fp16:
        return {0x7e00};
    case DType::bf16:
        return {0x7fc0};
    default:
        return {0x0000, 0x7fc0};
    }
}

/// The tensor in `type`, with NaN before and after it.
std::vector<std::byte> surrounded(DType type, std::span<const float> values, size_t margin) {
    std::vector<std::byte> bits(values.size() * static_cast<size_t>(dtype_bytes(type)) + 2 * margin);
    const std::vector<uint16_t> nan = quiet_nan(type);
    fill(std::span(bits).first(margin), nan);
    fill(std::span(bits).last(margin), nan);
    to_bytes(type, values, bits.data() + margin);
    return bits;
}

/// Where byte `offset` of an allocation lies, seen from the tensor inside it.
std::string place(const char* name, size_t offset, size_t margin, size_t bytes) {
    const std::string tensor(name);
    if (offset < margin) {
        return "memory before " + tensor + " was overwritten, " + std::to_string(margin - offset) +
               " bytes ahead of its start";
    }
    if (offset >= margin + bytes) {
        return "memory after " + tensor + " was overwritten, at byte " + std::to_string(offset - margin - bytes) +
               " past its end";
    }
    return tensor + ", an input, was overwritten at byte " + std::to_string(offset - margin);
}

/// The first byte of `memory` from `offset` on that is not as expected. Read in pieces: a tensor may be large.
std::optional<size_t> first_difference(const Memory& memory, size_t offset, std::span<const std::byte> expected) {
    constexpr size_t piece = 1 << 20;
    std::vector<std::byte> now;
    for (size_t done = 0; done < expected.size(); done += piece) {
        const auto part = expected.subspan(done, std::min(piece, expected.size() - done));
        now.resize(part.size());
        memory.read(offset + done, now.data(), now.size());
        if (const auto [got, want] = std::ranges::mismatch(now, part); got != now.end()) {
            return offset + done + static_cast<size_t>(got - now.begin());
        }
    }
    return std::nullopt;
}

} // namespace

DeviceRun::DeviceRun(const Rung& rung, const Problem& problem, const Inputs& inputs, size_t margin)
    : rung_(rung), problem_(problem), dtype_(inputs.dtype) {
    validate(problem);
    require_supported(rung, problem, inputs.dtype);
    const auto require_size = [](std::span<const float> tensor, int64_t size, const char* name) {
        if (tensor.size() != static_cast<size_t>(size)) {
            throw Error(std::string(name) + " has " + std::to_string(tensor.size()) + " elements, the problem needs " +
                        std::to_string(size));
        }
    };
    require_size(inputs.q, problem.q_size(), "Q");
    require_size(inputs.k, problem.kv_size(), "K");
    require_size(inputs.v, problem.kv_size(), "V");
    if (margin % 256 != 0) {
        throw std::invalid_argument("DeviceRun: the margin must be a multiple of 256, or the tensors lose alignment");
    }

    Backend& backend = rung.backend();
    require_memory(rung, problem, inputs.dtype, margin);
    const auto upload = [&](const char* name, std::span<const float> values, Tensor& tensor,
                            std::vector<std::byte>& bits) {
        bits = surrounded(inputs.dtype, values, margin);
        tensor = {backend.allocate(bits.size()), bits.size() - 2 * margin, margin};
        tensor.memory->write(0, bits.data(), bits.size());
        tensor.memory->declare(margin, tensor.bytes, name);
    };
    upload("Q", inputs.q, q_, q_bits_);
    upload("K", inputs.k, k_, k_bits_);
    upload("V", inputs.v, v_, v_bits_);
    const auto reserve = [&](const char* name, size_t bytes, Tensor& tensor) {
        tensor = {backend.allocate(bytes + 2 * margin), bytes, margin};
        tensor.memory->declare(margin, bytes, name);
    };
    reserve("O", q_.bytes, o_);
    reserve("LSE", static_cast<size_t>(problem.lse_size()) * sizeof(float), lse_);
    poison();
}

void DeviceRun::poison() {
    const auto refill = [](Tensor& tensor, DType type) {
        std::vector<std::byte> bits(tensor.bytes + 2 * tensor.margin);
        fill(std::span(bits).first(tensor.margin), std::span(&canary, 1));
        fill(std::span(bits).last(tensor.margin), std::span(&canary, 1));
        fill(std::span(bits).subspan(tensor.margin, tensor.bytes), quiet_nan(type));
        tensor.memory->write(0, bits.data(), bits.size());
    };
    refill(o_, dtype_);
    refill(lse_, DType::fp32);
}

void DeviceRun::launch() {
    const auto call = [this]<class T>(Forward<T> forward) {
        forward(problem_, static_cast<const T*>(q_.data()), static_cast<const T*>(k_.data()),
                static_cast<const T*>(v_.data()), static_cast<T*>(o_.data()), static_cast<float*>(lse_.data()));
    };
    switch (dtype_) {
    case DType::fp32:
        call(rung_.fp32);
        break;
    case DType::fp16:
        call(rung_.fp16);
        break;
    case DType::bf16:
        call(rung_.bf16);
        break;
    }
}

void DeviceRun::run() {
    launch();
    rung_.backend().synchronize();
}

double DeviceRun::time() {
    Backend& backend = rung_.backend();
    backend.flush_caches();
    return backend.time([this] { launch(); });
}

std::vector<std::byte> DeviceRun::o_bits() const {
    std::vector<std::byte> bits(o_.bytes);
    o_.memory->read(o_.margin, bits.data(), bits.size());
    return bits;
}

std::vector<float> DeviceRun::o() const {
    const std::vector<std::byte> bits = o_bits();
    std::vector<float> values(static_cast<size_t>(problem_.q_size()));
    to_floats(dtype_, bits.data(), values);
    return values;
}

std::vector<float> DeviceRun::lse() const {
    std::vector<float> values(lse_.bytes / sizeof(float));
    lse_.memory->read(lse_.margin, values.data(), lse_.bytes);
    return values;
}

std::string DeviceRun::damage() const {
    const auto broken_canary = [](const Tensor& tensor) {
        std::vector<std::byte> untouched(tensor.margin);
        fill(untouched, std::span(&canary, 1));
        const auto before = first_difference(*tensor.memory, 0, untouched);
        return before ? before : first_difference(*tensor.memory, tensor.margin + tensor.bytes, untouched);
    };
    const auto report = [](const char* name, const Tensor& tensor, std::optional<size_t> offset) {
        return offset ? place(name, *offset, tensor.margin, tensor.bytes) : std::string();
    };
    std::string found = report("O", o_, broken_canary(o_));
    found = !found.empty() ? found : report("LSE", lse_, broken_canary(lse_));
    found = !found.empty() ? found : report("Q", q_, first_difference(*q_.memory, 0, q_bits_));
    found = !found.empty() ? found : report("K", k_, first_difference(*k_.memory, 0, k_bits_));
    found = !found.empty() ? found : report("V", v_, first_difference(*v_.memory, 0, v_bits_));
    return found;
}

} // namespace flash
