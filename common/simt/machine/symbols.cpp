#include "common/simt/machine/symbols.hpp"

#include <cxxabi.h>
#include <link.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <map>
#include <mutex>
#include <utility>

#include "common/simt/machine/debug_info.hpp"

namespace flash::simt {
namespace {

struct SymbolTable {
    std::map<uint64_t, std::string> functions; // mangled names
    std::map<uint64_t, SharedVariable> variables;
};

std::string demangle(const std::string& mangled) {
    int status = 0;
    char* const text = abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status);
    std::string name = status == 0 ? text : mangled;
    std::free(text);
    return name;
}

/// "a::b::c" becomes "c".
std::string last_part(const std::string& name) {
    const size_t scope = name.rfind("::");
    return scope == std::string::npos ? name : name.substr(scope + 2);
}

/// A local variable of a function: the function's mangled name is wrapped, _Z3fooi ->
/// _ZZ3fooiE3bar. One more Z for each lambda around it.
bool is_local(const std::string& variable, const std::string& function) {
    const std::string wrapped = "Z" + function.substr(2) + "E";
    return variable.compare(variable.find_first_not_of('Z', 2) - 1, wrapped.size(), wrapped) == 0;
}

/// Whether that function is a kernel: __global__ puts a tag behind its name.
bool is_of_kernel(const std::string& variable) {
    return variable.find("B6kernel") != std::string::npos;
}

SymbolTable read_own_symbols() {
    SymbolTable table;
    for (Symbol& symbol : own_symbols()) {
        if (symbol.is_function) {
            table.functions.emplace(symbol.address, std::move(symbol.name));
        } else if (symbol.name.starts_with("_ZZ")) {
            table.variables.emplace(symbol.address, SharedVariable{std::move(symbol.name),
                                                                   symbol.address, symbol.bytes});
        }
    }
    return table;
}

/// "void flash_attention_2::(anonymous namespace)::sums[abi:kernel]<64>(float const*)" becomes
/// "flash_attention_2::sums<64>".
std::string short_name(std::string name) {
    for (const std::string part : {"(anonymous namespace)::", "[abi:kernel]"}) {
        for (size_t at = name.find(part); at != std::string::npos; at = name.find(part)) {
            name.erase(at, part.size());
        }
    }
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

const SymbolTable& symbols() {
    static const SymbolTable table = read_own_symbols();
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
    if (found == symbols().functions.end()) {
        char text[40];
        std::snprintf(text, sizeof text, "kernel at 0x%llx",
                      static_cast<unsigned long long>(value));
        return {text, "", {}, 0};
    }
    Kernel kernel{short_name(demangle(found->second)), found->second, {}, 0};
    for (const auto& [offset, variable] : symbols().variables) {
        if (is_local(variable.name, kernel.mangled)) {
            kernel.shared.push_back({last_part(demangle(variable.name)), offset, variable.bytes});
            kernel.shared_bytes += variable.bytes;
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

const SharedVariable* shared_variable_near(const Kernel& kernel, size_t offset) {
    const SharedVariable* nearest = nullptr;
    for (const SharedVariable& variable : kernel.shared) { // few, in the order of their offsets
        if (offset >= variable.offset) {
            nearest = &variable;
        }
    }
    const auto next = symbols().variables.upper_bound(offset);
    if (next == symbols().variables.begin() || is_of_kernel(std::prev(next)->second.name)) {
        return nearest;
    }
    return &std::prev(next)->second;
}

Executable executable() {
    Executable found{};
    dl_iterate_phdr( // which shows the executable first
        [](dl_phdr_info* object, size_t, void* result) {
            auto& own = *static_cast<Executable*>(result);
            own.load_address = object->dlpi_addr;
            for (int i = 0; i < object->dlpi_phnum; ++i) {
                const auto& part = object->dlpi_phdr[i];
                const auto* const begin =
                    reinterpret_cast<const char*>(object->dlpi_addr + part.p_vaddr);
                if (part.p_type == PT_LOAD) {
                    own.begin = own.begin == nullptr ? begin : own.begin;
                    own.end = begin + part.p_memsz;
                } else if (part.p_type == PT_TLS) {
                    own.thread_local_segment = {static_cast<char*>(object->dlpi_tls_data),
                                                part.p_memsz};
                }
            }
            return 1;
        },
        &found);
    return found;
}

} // namespace flash::simt
