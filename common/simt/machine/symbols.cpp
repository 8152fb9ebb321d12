#include "common/simt/machine/symbols.hpp"

#include <cxxabi.h>
#include <link.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "common/simt/machine/debug_info.hpp"

// Of the section in which __managed__ puts its variables; the linker's, if there is one.
extern "C" [[gnu::weak]] char __start_flash_managed, __stop_flash_managed;

namespace flash::simt {
namespace {

struct Range {
    uint64_t begin, bytes;
    bool contains(uint64_t address) const { return address - begin < bytes; }
};

struct SymbolTable {
    std::map<uint64_t, std::string> functions; // mangled names
    std::vector<SharedVariable> shared;        // by their offsets
    std::vector<Variable> variables;           // by their addresses
    std::vector<Variable> device_variables;    // those of them that kernels may use
    std::vector<Range> guards, thread_local_guards;
};

/// "a::b" of _ZN1a1bI..., of which no more can be read.
std::string names_in(const std::string& mangled) {
    std::string name;
    size_t at = mangled.starts_with("_ZN") ? 3 : 2;
    while (at < mangled.size() && mangled[at] >= '1' && mangled[at] <= '9') {
        size_t digits = 0;
        const size_t length = std::stoul(mangled.substr(at), &digits);
        name += (name.empty() ? "" : "::") + mangled.substr(at + digits, length);
        at += digits + length;
    }
    return name.empty() ? mangled : name;
}

std::string demangle(const std::string& mangled) {
    int status = 0;
    char* const text = abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status);
    // libstdc++ cannot read what g++ writes of some lambda expressions
    std::string name = status == 0 ? text : names_in(mangled);
    std::free(text);
    return name;
}

void erase_all(std::string& text, const std::string& part) {
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part)) {
        text.erase(at, part.size());
    }
}

/// Without what the keywords put behind names: "sums[abi:kernel]".
std::string without_tags(std::string name) {
    for (size_t at = name.find("[abi:"); at != std::string::npos; at = name.find("[abi:")) {
        name.erase(at, name.find(']', at) + 1 - at);
    }
    return name;
}

/// "a::b::c" becomes "c".
std::string last_part(const std::string& name) {
    const size_t scope = name.rfind("::");
    return scope == std::string::npos ? name : name.substr(scope + 2);
}

std::string variable_name(const std::string& mangled) {
    return last_part(without_tags(demangle(mangled)));
}

bool has_tag(const std::string& mangled, const char* tag) {
    return mangled.find(tag) != std::string::npos;
}

/// A local variable of a function: the function's mangled name is wrapped, _Z3fooi ->
/// _ZZ3fooiE3bar. One more Z for each lambda around it.
bool is_local(const std::string& variable, const std::string& function) {
    const std::string wrapped = "Z" + function.substr(2) + "E";
    return variable.starts_with("_ZZ") &&
           variable.compare(variable.find_first_not_of('Z', 2) - 1, wrapped.size(), wrapped) == 0;
}

/// What keeps whether a variable has been constructed.
bool is_name_of_guard(const std::string& mangled) {
    return mangled.starts_with("_ZGV") || mangled == "__tls_guard";
}

/// A `static` of a __device__ function is the device's, too.
Variable::Kind kind_of(const std::string& mangled, const char* begin, size_t bytes) {
    const bool is_managed =
        bytes > 0 && begin >= &__start_flash_managed && begin < &__stop_flash_managed;
    return is_managed                                                     ? Variable::managed
           : has_tag(mangled, "B8constant")                               ? Variable::constant
           : has_tag(mangled, "B6device") || has_tag(mangled, "B6kernel") ? Variable::device
                                                                          : Variable::host;
}

SymbolTable read_own_symbols() {
    SymbolTable table;
    const Executable own = executable();
    for (Symbol& symbol : own_symbols()) {
        const bool is_thread_local = symbol.kind == Symbol::thread_local_variable;
        if (symbol.kind == Symbol::function) {
            table.functions.emplace(symbol.address, std::move(symbol.name));
        } else if (is_name_of_guard(symbol.name)) {
            (is_thread_local ? table.thread_local_guards : table.guards)
                .push_back({symbol.address, symbol.bytes});
        } else if (is_thread_local) {
            if (has_tag(symbol.name, "B6shared")) {
                table.shared.push_back({variable_name(symbol.name), symbol.address, symbol.bytes,
                                        std::move(symbol.name)});
            }
        } else {
            auto* const begin = reinterpret_cast<char*>(own.load_address + symbol.address);
            if (static_cast<size_t>(begin - own.variables.begin) < own.variables.bytes) {
                table.variables.push_back(
                    {std::move(symbol.name), Variable::host, begin, symbol.bytes});
            }
        }
    }
    // g++ 14 gives the variables of some templates a second name, which lacks the kernel's tag.
    std::ranges::sort(table.shared, {}, [](const SharedVariable& one) {
        return std::pair(one.offset, !has_tag(one.mangled, "B6kernel"));
    });
    const auto second = std::ranges::unique(table.shared, {}, &SharedVariable::offset);
    table.shared.erase(second.begin(), second.end());
    std::ranges::sort(table.variables, {}, &Variable::begin);
    for (Variable& variable : table.variables) {
        variable.kind = kind_of(variable.name, variable.begin, variable.bytes);
        if (variable.kind != Variable::host) {
            variable.name = variable_name(variable.name);
            table.device_variables.push_back(variable);
        }
    }
    return table;
}

/// "void flash_attention_2::(anonymous namespace)::sums[abi:kernel]<64>(float const*)" becomes
/// "flash_attention_2::sums<64>".
std::string short_name(std::string name) {
    erase_all(name, "(anonymous namespace)::");
    name = without_tags(std::move(name));
    int depth = 0; // of angle brackets, so that "kernel<(int)64>" keeps its arguments
    size_t begin = 0;
    for (size_t i = 0; i < name.size(); ++i) {
        depth += name[i] == '<' ? 1 : name[i] == '>' ? -1 : 0;
        if (depth == 0 && name[i] == ' ') {
            begin = i + 1;
        }
        if (depth == 0 && name[i] == '(') {
            return name.substr(begin, i - begin);
        }
    }
    return name;
}

constinit thread_local bool reads = false;

const SymbolTable& symbols() {
    static const SymbolTable table = [] {
        reads = true;
        SymbolTable read = read_own_symbols();
        reads = false;
        return read;
    }();
    return table;
}

std::mutex kernels_mutex;
std::map<const void*, Kernel>& kernels() {
    static std::map<const void*, Kernel> known;
    return known;
}

Kernel look_up(const void* address) {
    const uint64_t value = reinterpret_cast<uint64_t>(address) - executable().load_address;
    const auto found = symbols().functions.find(value);
    Kernel kernel;
    if (found == symbols().functions.end()) {
        char text[40];
        std::snprintf(text, sizeof text, "kernel at 0x%llx",
                      static_cast<unsigned long long>(value));
        kernel.name = text;
    } else {
        const std::string whole = demangle(found->second);
        kernel.name = short_name(whole);
        kernel.mangled = found->second;
        if (found->second.starts_with("_Z") && whole.find('(') == std::string::npos) {
            static int unread = 0; // several templates may be left with the same names
            kernel.name += " " + std::to_string(++unread);
        }
    }
    for (const SharedVariable& variable : symbols().shared) {
        const bool own = is_own(kernel, variable);
        if (own || !has_tag(variable.mangled, "B6kernel")) {
            kernel.shared.push_back(variable);
            kernel.shared_bytes += own ? variable.bytes : 0;
        }
    }
    return kernel;
}

} // namespace

const Kernel& kernel_at(const void* address) {
    const std::lock_guard lock(kernels_mutex);
    const auto found = kernels().find(address);
    return found != kernels().end() ? found->second
                                    : kernels().emplace(address, look_up(address)).first->second;
}

bool is_own(const Kernel& kernel, const SharedVariable& variable) {
    return !kernel.mangled.empty() && is_local(variable.mangled, kernel.mangled);
}

const SharedVariable* shared_variable_near(const Kernel& kernel, size_t offset) {
    const auto next = std::ranges::upper_bound(kernel.shared, offset, {}, &SharedVariable::offset);
    return next == kernel.shared.begin() ? nullptr : &*std::prev(next);
}

bool reads_symbols() { return reads; }

const std::vector<Variable>& device_variables() { return symbols().device_variables; }

std::optional<Variable> variable_at(const void* address) {
    const auto& all = symbols().variables;
    const auto* const place = static_cast<const char*>(address);
    const auto next = std::ranges::upper_bound(all, place, {}, [](const Variable& variable) {
        return static_cast<const char*>(variable.begin);
    });
    if (next == all.begin() || place >= std::prev(next)->begin + std::prev(next)->bytes) {
        return std::nullopt;
    }
    Variable found = *std::prev(next);
    found.name = found.kind == Variable::host ? variable_name(found.name) : found.name;
    return found;
}

bool is_guard(const char* address, const Segment& thread_local_segment) {
    static const size_t load_address = executable().load_address;
    const auto offset = static_cast<size_t>(address - thread_local_segment.begin);
    const bool is_thread_local = offset < thread_local_segment.bytes;
    const uint64_t place =
        is_thread_local ? offset : reinterpret_cast<size_t>(address) - load_address;
    return std::ranges::any_of(is_thread_local ? symbols().thread_local_guards : symbols().guards,
                               [place](const Range& guard) { return guard.contains(place); });
}

Executable executable() {
    Executable found{};
    dl_iterate_phdr( // which shows the executable first
        [](dl_phdr_info* object, size_t, void* result) {
            auto& own = *static_cast<Executable*>(result);
            own.load_address = object->dlpi_addr;
            const char* read_only = nullptr; // up to there, once the program has been loaded
            for (int i = 0; i < object->dlpi_phnum; ++i) {
                const auto& part = object->dlpi_phdr[i];
                auto* const begin = reinterpret_cast<char*>(object->dlpi_addr + part.p_vaddr);
                if (part.p_type == PT_LOAD) {
                    own.begin = own.begin == nullptr ? begin : own.begin;
                    own.end = begin + part.p_memsz;
                    if ((part.p_flags & PF_W) != 0) {
                        own.variables = {begin, part.p_memsz};
                    }
                } else if (part.p_type == PT_TLS) {
                    own.thread_local_segment = {static_cast<char*>(object->dlpi_tls_data),
                                                part.p_memsz};
                } else if (part.p_type == PT_GNU_RELRO) {
                    read_only = begin + part.p_memsz;
                }
            }
            const auto constant = static_cast<size_t>(read_only - own.variables.begin);
            if (constant < own.variables.bytes) {
                own.variables = {own.variables.begin + constant, own.variables.bytes - constant};
            }
            return 1;
        },
        &found);
    return found;
}

} // namespace flash::simt
