// What the executable's own symbol table says about kernels: their names, and the variables that
// they can reach. The keywords put tags behind names (language/keywords.hpp).
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace flash::simt {

struct Segment {
    char* begin = nullptr;
    size_t bytes = 0;
};

/// One __shared__ variable. It is `static thread_local` here, so it lives in each OS thread's copy
/// of the executable's thread-local segment, at the same offset in all of them.
struct SharedVariable {
    std::string name; // as in the source: "K_smem"
    size_t offset;    // in the thread-local segment
    size_t bytes;
    std::string mangled; // with the name of the function around it
};

struct Kernel {
    std::string name; // "flash_attention_2::flash_attention_2<64>"
    std::string mangled;
    // its own, those of __device__ functions and of files; in the order of their offsets
    std::vector<SharedVariable> shared;
    size_t shared_bytes = 0; // of its own
};

/// One variable of the program that has a fixed address.
struct Variable {
    std::string name; // as in the source
    enum Kind { device, constant, managed, host } kind;
    char* begin;
    size_t bytes;
};

/// Looked up once for each kernel; a stripped executable gives a name like "kernel at 0x1234" and
/// no variables.
const Kernel& kernel_at(const void* address);

/// The variable at an offset of the thread-local segment, or the last one before it, among those
/// that the kernel can reach. Null when there is none.
const SharedVariable* shared_variable_near(const Kernel& kernel, size_t offset);

/// The kernel's own __shared__ variables are in `Kernel::shared_bytes`; whether this is one.
bool is_own(const Kernel& kernel, const SharedVariable& variable);

/// Whether this OS thread is reading the symbol table, so that asking for any of this would not
/// end.
bool reads_symbols();

/// All __device__, __constant__ and __managed__ variables, in the order of their addresses.
const std::vector<Variable>& device_variables();

/// The variable at an address, whosever it is; none when there is none.
std::optional<Variable> variable_at(const void* address);

/// Whether g++ keeps there whether a variable has been constructed: no access of the kernel's.
bool is_guard(const char* address, const Segment& thread_local_segment);

/// The executable in memory.
struct Executable {
    size_t load_address;          // a code address minus this is the one in the file
    const char *begin, *end;      // its constants among them
    Segment variables;            // what can be written
    Segment thread_local_segment; // this OS thread's copy, where __shared__ variables live
};
Executable executable();

} // namespace flash::simt
