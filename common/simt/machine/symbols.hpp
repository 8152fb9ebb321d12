// What the executable's own symbol table says about kernels: their names, and the __shared__
// variables they declare.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace flash::simt {

/// One __shared__ variable. It is `static thread_local` here, so it lives in each OS thread's copy
/// of the executable's thread-local segment, at the same offset in all of them.
struct SharedVariable {
    std::string name; // as in the source: "K_smem"
    size_t offset;    // in the thread-local segment
    size_t bytes;
};

struct Kernel {
    std::string name; // "flash_attention_2::flash_attention_2<64>"
    std::string mangled;
    std::vector<SharedVariable> shared;
    size_t shared_bytes = 0; // in all
};

/// Looked up once for each kernel; a stripped executable gives a name like "kernel at 0x1234" and
/// no variables.
const Kernel& kernel_at(const void* address);

/// The variable at an offset of the thread-local segment, or the last one before it: one of the
/// kernel's own or of a __device__ function. Null when there is none, or only another kernel's.
const SharedVariable* shared_variable_near(const Kernel& kernel, size_t offset);

struct Segment {
    char* begin = nullptr;
    size_t bytes = 0;
};

/// The executable in memory.
struct Executable {
    size_t load_address;          // a code address minus this is the one in the file
    const char *begin, *end;      // its constants among them
    Segment thread_local_segment; // this OS thread's copy, where __shared__ variables live
};
Executable executable();

} // namespace flash::simt
