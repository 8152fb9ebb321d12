#include "common/simt/symbols.hpp"

#include <cxxabi.h>
#include <elf.h>
#include <link.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>

namespace flash::simt {
namespace {

struct Symbol {
    std::string name; // mangled
    uint64_t value;
    uint64_t size;
    bool external;
};

struct SymbolTable {
    std::map<uint64_t, Symbol> functions;
    std::vector<Symbol> thread_locals;
};

template <class T> std::vector<T> read_array(std::ifstream& file, uint64_t offset, uint64_t bytes) {
    std::vector<T> values(bytes / sizeof(T));
    file.seekg(static_cast<std::streamoff>(offset));
    file.read(reinterpret_cast<char*>(values.data()), static_cast<std::streamsize>(values.size() * sizeof(T)));
    return values;
}

SymbolTable read_own_symbols() {
    SymbolTable table;
    std::ifstream file("/proc/self/exe", std::ios::binary);
    const auto header = read_array<Elf64_Ehdr>(file, 0, sizeof(Elf64_Ehdr)).at(0);
    const auto sections = read_array<Elf64_Shdr>(file, header.e_shoff, header.e_shnum * sizeof(Elf64_Shdr));
    for (const Elf64_Shdr& section : sections) {
        if (!file || section.sh_type != SHT_SYMTAB || section.sh_link >= sections.size()) {
            continue;
        }
        const Elf64_Shdr& text = sections[section.sh_link];
        const auto names = read_array<char>(file, text.sh_offset, text.sh_size);
        for (const Elf64_Sym& entry : read_array<Elf64_Sym>(file, section.sh_offset, section.sh_size)) {
            if (entry.st_name >= names.size() || entry.st_shndx == SHN_UNDEF) {
                continue;
            }
            const Symbol symbol{names.data() + entry.st_name, entry.st_value, entry.st_size,
                                ELF64_ST_BIND(entry.st_info) != STB_LOCAL};
            if (ELF64_ST_TYPE(entry.st_info) == STT_FUNC) {
                table.functions.emplace(symbol.value, symbol);
            } else if (ELF64_ST_TYPE(entry.st_info) == STT_TLS) {
                table.thread_locals.push_back(symbol);
            }
        }
    }
    return table;
}

std::string demangle(const std::string& mangled) {
    int status = 0;
    char* const text = abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status);
    std::string name = status == 0 ? text : mangled;
    std::free(text);
    return name;
}

/// "void step08::kernel<64>(float const*)" becomes "step08::kernel<64>": the return type and the parameters go.
std::string short_name(std::string name) {
    int depth = 0; // of angle brackets, so that "kernel<(int)64>" keeps its arguments
    size_t begin = 0;
    for (size_t i = 0; i < name.size(); ++i) {
        depth += name[i] == '<' ? 1 : name[i] == '>' ? -1 : 0;
        if (depth == 0 && name[i] == ' ') {
            begin = i + 1;
        }
        if (depth == 0 && name[i] == '(' && name.compare(i, 21, "(anonymous namespace)") != 0) {
            return name.substr(begin, i - begin);
        }
    }
    return name;
}

Kernel look_up(const void* address) {
    static const SymbolTable table = read_own_symbols();
    const uint64_t value = reinterpret_cast<uint64_t>(address) - load_address();
    const auto found = table.functions.find(value);
    if (found == table.functions.end()) {
        char text[40];
        std::snprintf(text, sizeof text, "kernel at 0x%llx", static_cast<unsigned long long>(value));
        return {text, {}, 0};
    }
    // The mangled name of a function's local variable is that of the function, wrapped: _Z3fooi -> _ZZ3fooiE3bar.
    const std::string& mangled = found->second.name;
    const std::string prefix = "_ZZ" + mangled.substr(2) + "E";
    Kernel kernel{short_name(demangle(mangled)), {}, 0};
    for (const Symbol& variable : table.thread_locals) {
        if (variable.name.starts_with(prefix)) {
            const std::string name = demangle(variable.name);
            const size_t scope = name.rfind("::");
            kernel.shared.push_back({scope == std::string::npos ? name : name.substr(scope + 2), variable.value,
                                     variable.size, variable.external});
            kernel.shared_bytes += variable.size;
        }
    }
    return kernel;
}

} // namespace

const Kernel& kernel_at(const void* address) {
    static std::mutex mutex;
    static std::map<const void*, Kernel> known;
    const std::lock_guard lock(mutex);
    const auto found = known.find(address);
    return found != known.end() ? found->second : known.emplace(address, look_up(address)).first->second;
}

Segment thread_local_segment() {
    Segment segment;
    // The executable is the first object that the callback is shown.
    const auto visit = [](dl_phdr_info* object, size_t, void* result) {
        for (int i = 0; i < object->dlpi_phnum; ++i) {
            if (object->dlpi_phdr[i].p_type == PT_TLS) {
                *static_cast<Segment*>(result) = {static_cast<char*>(object->dlpi_tls_data),
                                                  object->dlpi_phdr[i].p_memsz};
            }
        }
        return 1;
    };
    dl_iterate_phdr(visit, &segment);
    return segment;
}

size_t load_address() {
    size_t address = 0;
    const auto visit = [](dl_phdr_info* object, size_t, void* result) {
        *static_cast<size_t*>(result) = object->dlpi_addr;
        return 1;
    };
    dl_iterate_phdr(visit, &address);
    return address;
}

} // namespace flash::simt
