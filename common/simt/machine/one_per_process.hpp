// What has OS threads, in a process that may fork.
#pragma once

#include <unistd.h>

#include <memory>

namespace flash::simt {

/// The T of this process. fork() copies the memory, and of the OS threads only the one that calls
/// it. So the child gets a T of its own at its first call, which must not meet another one; its
/// copy of the parent's is left alone, because a destructor would wait for threads that are not
/// there.
template <class T> T& one_per_process() {
    struct Only {
        std::unique_ptr<T> own;
        pid_t process = 0;
        void leave_what_is_the_parents() {
            if (process != getpid()) {
                static_cast<void>(own.release());
            }
        }
        ~Only() { leave_what_is_the_parents(); }
    };
    static Only only;
    only.leave_what_is_the_parents();
    if (only.own == nullptr) {
        only.own = std::make_unique<T>();
        only.process = getpid();
    }
    return *only.own;
}

} // namespace flash::simt
