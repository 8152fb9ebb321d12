#include "common/simt/machine/layout.hpp"

#ifdef FLASH_SIMT_WITHOUT_LIBDW

namespace flash::simt {
std::vector<Region> dynamic_layout(const void*, size_t) { return {}; }
std::vector<Region> static_layout(const void*, const SharedVariable&) { return {}; }
} // namespace flash::simt

#else

#include <dwarf.h>
#include <elfutils/libdw.h>

#include <functional>
#include <numeric>
#include <optional>

#include "common/simt/machine/debug_info.hpp"

namespace flash::simt {
namespace {

using Die = Dwarf_Die;
constexpr size_t most_parts = 16; // of an array of structs that are told one by one

std::string name_of_die(Die die) {
    const char* const name = dwarf_diename(&die);
    return name == nullptr ? "" : name;
}

std::optional<Dwarf_Word> number(Die die, unsigned attribute) {
    Dwarf_Attribute found;
    Dwarf_Word value = 0;
    if (dwarf_attr_integrate(&die, attribute, &found) == nullptr ||
        dwarf_formudata(&found, &value) != 0) {
        return std::nullopt;
    }
    return value;
}

size_t bytes_of(Die type) {
    Dwarf_Word bytes = 0;
    return dwarf_aggregate_size(&type, &bytes) == 0 ? bytes : 0;
}

std::optional<Die> type_of(Die die) {
    Dwarf_Attribute found;
    Die type;
    if (dwarf_attr_integrate(&die, DW_AT_type, &found) == nullptr ||
        dwarf_formref_die(&found, &type) == nullptr) {
        return std::nullopt;
    }
    Die plain; // without typedef and const
    return dwarf_peel_type(&type, &plain) == 0 ? plain : type;
}

std::vector<Die> children(Die die) {
    std::vector<Die> all;
    Die child;
    for (int end = dwarf_child(&die, &child); end == 0; end = dwarf_siblingof(&child, &child)) {
        all.push_back(child);
    }
    return all;
}

bool is_struct(Die type) {
    const int tag = dwarf_tag(&type);
    return tag == DW_TAG_structure_type || tag == DW_TAG_class_type || tag == DW_TAG_union_type;
}

std::vector<Die> members(Die type) {
    std::vector<Die> all;
    for (const Die& child : children(type)) {
        Die member = child;
        if (dwarf_tag(&member) == DW_TAG_member && number(member, DW_AT_external) != 1) {
            all.push_back(member);
        }
    }
    return all;
}

std::vector<size_t> dims_of(Die array) {
    std::vector<size_t> dims;
    for (const Die& range : children(array)) {
        if (const auto last = number(range, DW_AT_upper_bound)) {
            dims.push_back(*last + 1);
        } else if (const auto count = number(range, DW_AT_count)) {
            dims.push_back(*count);
        }
    }
    return dims;
}

/// Structs that count as one thing.
bool is_whole(Die type) {
    const std::string name = name_of_die(type);
    return name == "Half" || name == "Bfloat16" || name.starts_with("SwizzledTile<");
}

/// "[1][3]": of element `number` of an array.
std::string indices(size_t number, const std::vector<size_t>& dims) {
    std::string text;
    for (size_t i = dims.size(); i-- > 0;) {
        text = "[" + std::to_string(number % dims[i]) + "]" + text;
        number /= dims[i];
    }
    return text;
}

class Flattener {
  public:
    std::vector<Region> parts;

    void add(Die type, size_t offset, const std::string& name) {
        if (dwarf_tag(&type) == DW_TAG_array_type) {
            add_array(type, offset, name);
        } else if (is_struct(type) && !is_whole(type)) {
            add_members(type, offset, name);
        } else {
            parts.push_back({name, offset, bytes_of(type), name_of_die(type), bytes_of(type), {}});
        }
    }

  private:
    void add_array(Die array, size_t offset, const std::string& name) {
        const std::optional<Die> element = type_of(array);
        if (!element) {
            return;
        }
        std::vector<size_t> dims = dims_of(array);
        const size_t count =
            std::accumulate(dims.begin(), dims.end(), size_t{1}, std::multiplies<>());
        const size_t bytes = bytes_of(*element);
        const bool tiles = name_of_die(*element).starts_with("SwizzledTile<");
        const bool barriers = bytes == 8 && !is_struct(*element) && count <= most_parts;
        if (((is_struct(*element) && !is_whole(*element)) || tiles || barriers) &&
            count <= most_parts) {
            for (size_t i = 0; i < count; ++i) {
                add(*element, offset + i * bytes, name + indices(i, dims));
            }
            return;
        }
        if (is_struct(*element) && !is_whole(*element)) { // many small ones: rows of numbers
            const std::vector<Die> own = members(*element);
            const std::optional<Die> first = own.empty() ? std::nullopt : type_of(own.front());
            if (first && !is_struct(*first) && bytes_of(*first) * own.size() == bytes) {
                dims.push_back(own.size());
                parts.push_back(
                    {name, offset, count * bytes, name_of_die(*first), bytes_of(*first), dims});
                return;
            }
        }
        parts.push_back({name, offset, count * bytes, name_of_die(*element), bytes, dims});
    }

    /// What shares its place with the member before it, as in a union, gives only its name.
    void add_members(Die type, size_t offset, const std::string& name) {
        const bool is_union = dwarf_tag(&type) == DW_TAG_union_type;
        std::string names;
        for (const Die& member : members(type)) {
            names += (names.empty() ? "" : "/") + name_of_die(member);
        }
        for (const Die& child : children(type)) {
            Die base = child;
            const std::optional<Die> own =
                dwarf_tag(&base) == DW_TAG_inheritance ? type_of(base) : std::nullopt;
            if (own) {
                add(*own, offset + number(base, DW_AT_data_member_location).value_or(0), name);
            }
        }
        for (const Die& member : members(type)) {
            const std::optional<Die> own = type_of(member);
            if (!own) {
                continue;
            }
            const size_t place = offset + number(member, DW_AT_data_member_location).value_or(0);
            std::string full = is_union ? names : name_of_die(member);
            full = name.empty() ? full : full.empty() ? name : name + "." + full;
            add(*own, place, full);
            if (is_union) {
                return;
            }
        }
    }
};

/// Calls `use` with what the debug information has of the kernel.
template <class Use> void with_kernel(Die die, Dwarf_Addr address, Use use) {
    for (const Die& one : children(die)) {
        Die child = one;
        const int tag = dwarf_tag(&child);
        Dwarf_Addr own = 0;
        if (tag == DW_TAG_namespace) {
            with_kernel(child, address, use);
        } else if (tag == DW_TAG_subprogram && dwarf_lowpc(&child, &own) == 0 && own == address) {
            use(child);
        }
    }
}

/// Calls `use(variable, its type)` with each variable in a function.
template <class Use> void for_variables(Die scope, Use use) {
    for (const Die& one : children(scope)) {
        Die child = one;
        const int tag = dwarf_tag(&child);
        if (tag == DW_TAG_variable || tag == DW_TAG_formal_parameter) {
            if (const std::optional<Die> type = type_of(child)) {
                use(child, *type);
            }
        } else if (tag == DW_TAG_lexical_block) {
            for_variables(child, use);
        }
    }
}

template <class Use> void for_variables_of(const void* kernel, Use use) {
    const uint64_t address = reinterpret_cast<uint64_t>(kernel) - executable().load_address;
    Dwarf* const info = own_debug_info();
    Dwarf_CU* unit = nullptr;
    Die top;
    while (info != nullptr &&
           dwarf_get_units(info, unit, &unit, nullptr, nullptr, &top, nullptr) == 0) {
        with_kernel(top, address, [&](Die function) { for_variables(function, use); });
    }
}

} // namespace

std::vector<Region> dynamic_layout(const void* kernel, size_t bytes) {
    Flattener found;
    for_variables_of(kernel, [&](Die, Die type) {
        const int tag = dwarf_tag(&type);
        const bool points = tag == DW_TAG_reference_type || tag == DW_TAG_pointer_type;
        const std::optional<Die> target = points ? type_of(type) : std::nullopt;
        if (found.parts.empty() && target && is_struct(*target) && bytes_of(*target) > 0 &&
            bytes_of(*target) == bytes) {
            found.add(*target, 0, "");
        }
    });
    return found.parts;
}

std::vector<Region> static_layout(const void* kernel, const SharedVariable& variable) {
    Flattener found;
    for_variables_of(kernel, [&](Die die, Die type) {
        if (found.parts.empty() && name_of_die(die) == variable.name &&
            bytes_of(type) == variable.bytes) {
            found.add(type, 0, variable.name);
        }
    });
    return found.parts;
}

} // namespace flash::simt

#endif
