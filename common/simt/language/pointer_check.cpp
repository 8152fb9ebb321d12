#include "common/simt/language/pointer_check.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "common/simt/machine/host_misuse.hpp"
#include "common/simt/machine/symbols.hpp"

namespace flash::simt {
namespace {

using Kind = DeviceMemory::Kind;

/// Freed memory whose addresses nobody has again: its name.
std::map<const void*, std::string>& freed() {
    static std::map<const void*, std::string> names;
    return names;
}
std::mutex freed_mutex;

std::string name_of_freed(const void* address) {
    const std::lock_guard lock(freed_mutex);
    const auto found = freed().find(address);
    return found == freed().end() ? "" : found->second;
}

/// How memory of a kind is freed.
const char* deallocator(Kind kind) {
    return kind == Kind::pinned ? "cudaFreeHost"
           : kind == Kind::heap ? "free or delete, by a kernel"
                                : "cudaFree";
}

const char* describe(Kind kind) {
    return kind == Kind::managed  ? ", managed memory"
           : kind == Kind::pinned ? ", pinned memory of the host"
                                  : ", device memory";
}

/// Stops a call that uses bytes beyond the end of a memory.
void check_end(const HostCall& call, const char* role, const void* address, size_t bytes,
               const std::string& name, const char* begin, size_t size) {
    const auto before = static_cast<size_t>(static_cast<const char*>(address) - begin);
    if (before > size || bytes > size - before) {
        call.refuse(plural(bytes, "byte") + " are more than " + role + " has from there on: " +
                    name + ", ends after " + plural(before > size ? 0 : size - before, "byte"));
    }
}

} // namespace

void HostCall::refuse(const std::string& why) const { throw host_misuse(name, why, place); }

Memory memory_at(const void* address) {
    if (arena().contains(address)) {
        return {memory_around(address), nullptr, address};
    }
    const Buffer* const near =
        global_space().is_variable(address) ? buffer_around(address) : nullptr;
    return {nullptr, near != nullptr && near->contains(address, 1) ? near : nullptr, address};
}

bool Memory::is_of_device() const { return arena().contains(address) || variable != nullptr; }

bool Memory::is_of_host() const {
    if (arena().contains(address)) {
        return memory != nullptr && memory->kind() != Kind::device;
    }
    return variable == nullptr || variable->host_may_touch;
}

std::string Memory::name() const {
    if (memory != nullptr) {
        return memory->name() + describe(memory->kind());
    }
    if (variable != nullptr) {
        return variable->name + ", a variable of the device";
    }
    if (!arena().contains(address)) {
        return describe_host_memory(address);
    }
    const std::string name = name_of_freed(address);
    return name.empty() ? "device memory that was freed or never allocated"
                        : name + ", device memory that has been freed";
}

void require_device(const HostCall& call, const char* role, const void* address, size_t bytes) {
    const Memory at = memory_at(address);
    if (at.memory == nullptr && at.variable == nullptr) {
        call.refuse(std::string(role) + " must be device memory, but it is " + at.name());
    }
    if (at.memory != nullptr) {
        check_end(call, role, address, bytes, at.name(), at.memory->data(), at.memory->bytes());
    } else {
        check_end(call, role, address, bytes, at.name(), at.variable->begin, at.variable->bytes());
    }
}

void require_host(const HostCall& call, const char* role, const void* address, size_t bytes) {
    const Memory at = memory_at(address);
    if (!at.is_of_host() || address == nullptr) {
        call.refuse(std::string(role) + " must be memory of the host, but it is " + at.name());
    }
    if (at.memory != nullptr) {
        check_end(call, role, address, bytes, at.name(), at.memory->data(), at.memory->bytes());
    } else if (const auto variable = variable_at(address)) {
        check_end(call, role, address, bytes, variable->name + ", a variable of the host",
                  variable->begin, variable->bytes);
    }
}

void note_written(const void* address, size_t bytes) {
    const Memory at = memory_at(address);
    if (at.memory != nullptr && at.memory->written() != nullptr) {
        at.memory->written()->mark(static_cast<const char*>(address), bytes);
    }
}

namespace {

/// Bytes that nobody has written come to the host. Gaps between the members of structs may.
void check_source(const HostCall& call, const DeviceMemory& memory, const char* from,
                  size_t bytes) {
    const WrittenBytes& written = *memory.written();
    const char* const end = from + bytes;
    const bool may_be_one_struct = bytes == memory.bytes() && bytes <= 128;
    const char* first = nullptr;
    size_t count = 0;
    for (auto gap = written.next_unwritten(from, end); !gap.empty();
         gap = written.next_unwritten(gap.data() + gap.size(), end)) {
        const bool is_padding = written.any(from, bytes) && gap.size() < 8 &&
                                (may_be_one_struct || written.is_padding(gap.data(), gap.size()));
        if (!is_padding) {
            first = first == nullptr ? gap.data() : first;
            count += gap.size();
        }
    }
    if (count > 0) {
        host_doubt(call.name,
                   "it copies " + plural(count, "byte") + " of " + memory.name() +
                       " that neither the host nor a kernel has written; the first is byte " +
                       std::to_string(first - memory.data()),
                   call.place);
    }
}

} // namespace

void note_copied(const HostCall& call, const void* to, const void* from, size_t bytes) {
    const Memory source = memory_at(from);
    const Memory destination = memory_at(to);
    if (source.memory == nullptr || source.memory->written() == nullptr) {
        note_written(to, bytes);
        return;
    }
    if (destination.memory == nullptr || destination.memory->kind() != Kind::device) {
        check_source(call, *source.memory, static_cast<const char*>(from), bytes);
    } else if (destination.memory->written() != nullptr) {
        destination.memory->written()->copy(static_cast<const char*>(to), *source.memory->written(),
                                            static_cast<const char*>(from), bytes);
    }
}

void free_memory(const HostCall& call, void* address, Kind kind, Kind other) {
    if (address == nullptr) {
        return;
    }
    const Memory at = memory_at(address);
    if (at.memory == nullptr) {
        const std::string name = name_of_freed(address);
        call.refuse(name.empty() ? "it frees " + at.name() : name + " has been freed before");
    }
    const Kind own = at.memory->kind();
    if (own != kind && own != other) {
        call.refuse(at.name() + ", is freed by " + deallocator(own));
    }
    if (at.memory->data() != address) {
        call.refuse(
            "its pointer is not the beginning of " + at.name() + ", but " +
            plural(static_cast<size_t>(static_cast<char*>(address) - at.memory->data()), "byte") +
            " after it");
    }
    const std::lock_guard lock(freed_mutex);
    freed()[address] = at.memory->name();
    delete at.memory;
}

void* allocate(size_t bytes, const char* argument, Kind kind) {
    const char* const name = std::strrchr(argument, '&');
    auto memory = std::make_unique<DeviceMemory>(bytes, kind);
    memory->declare(0, bytes, name != nullptr ? name + 1 : argument);
    if (kind == Kind::device) {
        memory->track_writes();
    }
    const std::lock_guard lock(freed_mutex);
    freed().erase(memory->data());
    return memory.release()->data();
}

} // namespace flash::simt
