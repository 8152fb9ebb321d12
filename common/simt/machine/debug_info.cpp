#include "common/simt/machine/debug_info.hpp"

#ifdef FLASH_SIMT_WITHOUT_LIBDW // the PyTorch operator, whose program is Python

namespace flash::simt {
std::vector<Symbol> own_symbols() { return {}; }
std::vector<Frame> frames_at(uint64_t) { return {}; }
} // namespace flash::simt

#else

#include <dwarf.h>
#include <elfutils/libdw.h>
#include <elfutils/libdwfl.h>

#include <map>
#include <mutex>

#include "common/simt/machine/program.hpp"

namespace flash::simt {
namespace {

/// The program's file as libdw sees it, placed at address 0.
class OwnFile {
  public:
    OwnFile() : session_(dwfl_begin(&callbacks)) {
        // null: it is not there any more
        module_ = dwfl_report_elf(session_, "", program_file().c_str(), -1, 0, true);
        dwfl_report_end(session_, nullptr, nullptr);
    }
    ~OwnFile() { dwfl_end(session_); }
    OwnFile(const OwnFile&) = delete;
    OwnFile& operator=(const OwnFile&) = delete;

    Dwfl_Module* module() const { return module_; }

  private:
    /// Not libdw's own search, which may ask a server.
    static int no_other_file(Dwfl_Module*, void**, const char*, Dwarf_Addr, const char*,
                             const char*, GElf_Word, char**) {
        return -1;
    }
    static constexpr Dwfl_Callbacks callbacks{nullptr, no_other_file, nullptr, nullptr};

    Dwfl* session_;
    Dwfl_Module* module_;
};

SourceLine line_of_call(Dwarf_Die unit, Dwarf_Die call) {
    const auto number = [&call](unsigned name) {
        Dwarf_Attribute attribute;
        Dwarf_Word value = 0;
        dwarf_formudata(dwarf_attr(&call, name, &attribute), &value);
        return value;
    };
    Dwarf_Files* files = nullptr;
    dwarf_getsrcfiles(&unit, &files, nullptr);
    const char* const file = dwarf_filesrc(files, number(DW_AT_call_file), nullptr, nullptr);
    return file == nullptr ? SourceLine{}
                           : SourceLine{file, static_cast<int>(number(DW_AT_call_line))};
}

std::string name_of(Dwarf_Die function) {
    const char* const name = dwarf_diename(&function);
    return name == nullptr ? "" : name;
}

/// Puts the calls that were inlined at an address, outermost last, behind `frames`, and names the
/// functions.
void add_inlined(Dwarf_Die unit, Dwarf_Die scope, Dwarf_Addr address, std::vector<Frame>& frames) {
    Dwarf_Die child;
    for (int end = dwarf_child(&scope, &child); end == 0; end = dwarf_siblingof(&child, &child)) {
        const int tag = dwarf_tag(&child);
        const bool may_hold_functions = tag == DW_TAG_namespace || tag == DW_TAG_structure_type ||
                                        tag == DW_TAG_class_type || tag == DW_TAG_union_type;
        const bool covers = dwarf_haspc(&child, address) == 1;
        if (covers || may_hold_functions) {
            add_inlined(unit, child, address, frames);
        }
        if (covers && (tag == DW_TAG_inlined_subroutine || tag == DW_TAG_subprogram)) {
            frames.back().function = name_of(child);
        }
        if (covers && tag == DW_TAG_inlined_subroutine) {
            frames.push_back({"", line_of_call(unit, child)});
        }
        if (covers) {
            return;
        }
    }
}

std::vector<Frame> frames_in(Dwarf_Die unit, Dwarf_Addr address) {
    Dwarf_Line* const row = dwarf_getsrc_die(&unit, address);
    const char* const file = dwarf_linesrc(row, nullptr, nullptr); // null when there is no row
    if (file == nullptr) {
        return {};
    }
    std::vector<Frame> frames{{"", {file, 0}}};
    dwarf_lineno(row, &frames.front().line.line);
    add_inlined(unit, unit, address, frames);
    return frames;
}

} // namespace

std::vector<Symbol> own_symbols() {
    const OwnFile file;
    std::vector<Symbol> symbols;
    // -1 when there is none
    const int count = file.module() == nullptr ? 0 : dwfl_module_getsymtab(file.module());
    for (int i = 0; i < count; ++i) {
        GElf_Sym entry;
        const char* const name = dwfl_module_getsym(file.module(), i, &entry, nullptr);
        const int type = GELF_ST_TYPE(entry.st_info);
        if (name != nullptr && entry.st_shndx != SHN_UNDEF &&
            (type == STT_FUNC || type == STT_TLS || type == STT_OBJECT)) {
            symbols.push_back({name, entry.st_value, entry.st_size,
                               type == STT_FUNC  ? Symbol::function
                               : type == STT_TLS ? Symbol::thread_local_variable
                                                 : Symbol::variable});
        }
    }
    return symbols;
}

Dwarf* own_debug_info() {
    static const OwnFile file;
    Dwarf_Addr bias = 0;
    return file.module() == nullptr ? nullptr : dwfl_module_getdwarf(file.module(), &bias);
}

namespace {

std::vector<Frame> look_up(uint64_t address) {
    Dwarf* const info = own_debug_info();
    Dwarf_CU* number = nullptr;
    Dwarf_Die unit; // one by one: clang++ makes no table of addresses
    while (info != nullptr &&
           dwarf_get_units(info, number, &number, nullptr, nullptr, &unit, nullptr) == 0) {
        if (dwarf_haspc(&unit, address) == 1) {
            return frames_in(unit, address);
        }
    }
    return {};
}

} // namespace

std::vector<Frame> frames_at(uint64_t address) {
    static std::mutex one_at_a_time;
    static std::map<uint64_t, std::vector<Frame>> known;
    const std::lock_guard lock(one_at_a_time);
    const auto found = known.find(address);
    return found != known.end() ? found->second
                                : known.emplace(address, look_up(address)).first->second;
}

} // namespace flash::simt

#endif
