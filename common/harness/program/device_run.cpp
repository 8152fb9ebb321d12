#include "common/harness/program/device_run.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <span>
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
    default:
        return {0x0000, 0x7fc0};
    }
}

/// The tensor in `type`, with NaN before and after it.
std::vector<std::byte> surrounded(DType type, std::span<const float> values, size_t margin) {
    std::vector<std::byte> bits(values.size() * static_cast<size_t>(dtype_bytes(type)) +
                                2 * margin);
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

DeviceRun::DeviceRun(const Rung& rung, const Problem& problem, const Inputs& inputs, size_t margin)
    : DeviceRun(rung, problem, inputs.dtype, margin) {
    const std::span<const float> given[] = {inputs.q, inputs.k,   inputs.v,
                                            inputs.o, inputs.lse, inputs.d_o};
    for (size_t i = 0; i < inputs_.size(); ++i) {
        upload(i, given[i]);
    }
}

DeviceRun::DeviceRun(const Rung& rung, const Problem& problem, DType dtype, size_t margin)
    : rung_(rung), problem_(problem), dtype_(dtype), margin_(margin) {
    validate(problem);
    require_supported(rung, problem, dtype);
    if (margin % 256 != 0) {
        throw std::invalid_argument(
            "DeviceRun: the margin must be a multiple of 256, or the tensors lose alignment");
    }
    if (rung.takes_workspace() && rung.workspace_bytes == nullptr) {
        throw std::invalid_argument(
            "DeviceRun: the rung takes a workspace, and does not say how large");
    }
    require_memory(rung, problem, dtype, margin);
    const auto reserve = [&](const char* name, DType type, int64_t size) {
        const size_t bytes = static_cast<size_t>(size) * static_cast<size_t>(dtype_bytes(type));
        Tensor tensor{name, type, size, bytes, rung_.backend().allocate(bytes + 2 * margin), {}};
        tensor.memory->declare(margin, bytes, name);
        return tensor;
    };
    const int64_t q_size = problem.q_size(), kv_size = problem.kv_size(),
                  lse_size = problem.lse_size();
    inputs_.push_back(reserve("Q", dtype, q_size));
    inputs_.push_back(reserve("K", dtype, kv_size));
    inputs_.push_back(reserve("V", dtype, kv_size));
    if (rung.is_backward()) {
        inputs_.push_back(reserve("O", dtype, q_size));
        inputs_.push_back(reserve("LSE", DType::fp32, lse_size));
        inputs_.push_back(reserve("dO", dtype, q_size));
        outputs_.push_back(reserve("dQ", dtype, q_size));
        outputs_.push_back(reserve("dK", dtype, kv_size));
        outputs_.push_back(reserve("dV", dtype, kv_size));
    } else {
        outputs_.push_back(reserve("O", dtype, q_size));
        outputs_.push_back(reserve("LSE", DType::fp32, lse_size));
    }
    if (rung.takes_workspace()) {
        workspace_ = reserve("the workspace", DType::fp32, (rung.workspace_bytes(problem) + 3) / 4);
    }
    poison();
}

void DeviceRun::upload(size_t i, std::span<const float> values) {
    Tensor& tensor = inputs_[i];
    if (values.size() != static_cast<size_t>(tensor.size)) {
        throw Error(std::string(tensor.name) + " has " + std::to_string(values.size()) +
                    " elements, the problem needs " + std::to_string(tensor.size));
    }
    tensor.uploaded = surrounded(tensor.dtype, values, margin_);
    tensor.memory->write(0, tensor.uploaded.data(), tensor.uploaded.size());
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
    write(margin_, tensor.bytes, pattern);
    write(margin_ + tensor.bytes, margin_, std::span(&canary, 1));
}

void DeviceRun::poison() {
    for (Tensor& tensor : outputs_) {
        poison(tensor, quiet_nan(tensor.dtype));
    }
    // NaN, which is a large number where a rung counts; the next time a small one, as floats nearly
    // 0
    if (workspace_) {
        poison(*workspace_,
               poisonings_++ % 2 == 0 ? quiet_nan(DType::fp32) : std::vector<uint16_t>{3, 0});
    }
}

void DeviceRun::launch() {
    void* const workspace = workspace_ ? data<void>(*workspace_) : nullptr;
    const auto call = [this, workspace]<class T>(Forward<T> forward, Backward<T> backward) {
        const T *Q = data<const T>(inputs_[0]), *K = data<const T>(inputs_[1]),
                *V = data<const T>(inputs_[2]);
        if (rung_.is_backward()) {
            backward(problem_, Q, K, V, data<const T>(inputs_[3]), data<const float>(inputs_[4]),
                     data<const T>(inputs_[5]), data<T>(outputs_[0]), data<T>(outputs_[1]),
                     data<T>(outputs_[2]), workspace);
        } else {
            forward(problem_, Q, K, V, data<T>(outputs_[0]), data<float>(outputs_[1]), workspace);
        }
    };
    switch (dtype_) {
    case DType::fp32:
        call(rung_.fp32, rung_.backward.fp32);
        break;
    case DType::fp16:
        call(rung_.fp16, rung_.backward.fp16);
        break;
    case DType::bf16:
        call(rung_.bf16, rung_.backward.bf16);
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

std::vector<float> DeviceRun::values(const Tensor& tensor, int64_t first, int64_t count) const {
    const auto element = static_cast<size_t>(dtype_bytes(tensor.dtype));
    std::vector<std::byte> bits(static_cast<size_t>(count) * element);
    tensor.memory->read(margin_ + static_cast<size_t>(first) * element, bits.data(), bits.size());
    std::vector<float> values(static_cast<size_t>(count));
    to_floats(tensor.dtype, bits.data(), values);
    return values;
}

std::string DeviceRun::damage() const {
    std::vector<std::byte> untouched(margin_);
    fill(untouched, std::span(&canary, 1));
    const auto damage_around = [&](const Tensor& tensor) -> std::string {
        for (const size_t from : {size_t{0}, margin_ + tensor.bytes}) {
            if (const auto offset = first_difference(*tensor.memory, from, untouched)) {
                return place(tensor.name, *offset, margin_, tensor.bytes);
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
            return place(tensor.name, *offset, margin_, tensor.bytes);
        }
    }
    return {};
}

} // namespace flash
