#include "common/simt/machine/traps.hpp"

#include <ucontext.h>

#include <memory>

#include "common/simt/machine/block.hpp"

namespace flash::simt {

const void* program_counter(const void* context) {
    const auto& machine = static_cast<const ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
    return reinterpret_cast<const void*>(machine.gregs[REG_RIP]);
#elif defined(__aarch64__)
    return reinterpret_cast<const void*>(machine.pc);
#else
#error "the SIMT backend runs on x86-64 and AArch64"
#endif
}

namespace {

std::string describe(const Block& block, const char* address) {
    const SharedMemory& shared = block.shared();
    if (global_space().contains(address)) {
        const Buffer* const buffer = buffer_around(address);
        return buffer == nullptr ? "out of bounds: no buffer is at this address of global memory"
                                 : "out of bounds: an address " + buffer->outside(address);
    }
    if (shared.is_dynamic(address)) {
        return "out of bounds: an address outside the dynamic shared memory (" +
               plural(shared.dynamic_bytes(), "byte") + ")";
    }
    if (block.stacks().guards(block.current().number, address)) {
        return "the thread's local variables exceed " + std::to_string(Stacks::locals >> 10) +
               " KiB";
    }
    return "";
}

/// Runs on the trap stack and leaves it for good, by switching to the block's scheduler.
void handle(int signal, siginfo_t* info, void* context) {
    if (running_block == nullptr) {
        // not a kernel's doing: the access repeats, and the program ends as it would
        std::signal(signal, SIG_DFL);
        return;
    }
    active_observers = nullptr;
    kernel_at_work = false;
    Block& block = current_block();
    // The processor names no address for a vector access that is not aligned.
    const bool has_address = info->si_code == SEGV_MAPERR || info->si_code == SEGV_ACCERR;
    const std::string known =
        has_address ? describe(block, static_cast<const char*>(info->si_addr)) : "";
    // A stack may end in the runtime, which is no line of the kernel: where it was called, then.
    const uint32_t call = block.current().call;
    const bool no_stack =
        has_address && call != 0 &&
        block.stacks().guards(block.current().number, static_cast<const char*>(info->si_addr));
    const LocationId here =
        no_stack ? place_of_call(call)
                 : LocationId::of_code(static_cast<const char*>(program_counter(context)) + 1,
                                       executable().load_address);
    block.stop(
        {known.starts_with("out of bounds") ? FaultKind::out_of_bounds : FaultKind::invalid_access,
         !known.empty() ? known
         : has_address  ? "an access to an address that is neither in global nor in shared memory"
                        : "an access to an address that is misaligned, or not an address at all",
         block.place(block.current().number,
                     no_stack ? "calls itself, or other functions, too deep" : "makes it", here)});
}

} // namespace

TrapHandlers::TrapHandlers() {
    struct sigaction action {};
    action.sa_sigaction = handle;
    // not blocked: the handler does not return
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigaction(SIGSEGV, &action, &segv_before_);
    sigaction(SIGBUS, &action, &bus_before_);
}

TrapHandlers::~TrapHandlers() {
    sigaction(SIGSEGV, &segv_before_, nullptr);
    sigaction(SIGBUS, &bus_before_, nullptr);
}

void make_trap_stack() {
    constexpr size_t bytes = 128 << 10;
    static thread_local const auto memory = std::make_unique<char[]>(bytes);
    stack_t stack{};
    stack.ss_sp = memory.get();
    stack.ss_size = bytes;
    sigaltstack(&stack, nullptr);
}

} // namespace flash::simt
