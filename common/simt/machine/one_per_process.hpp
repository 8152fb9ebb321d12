// What has OS threads, in a process that may fork.
#pragma once

#include <pthread.h>

#include <memory>

namespace flash::simt {

/// The T of this process. fork() copies the memory, and of the OS threads only the one that calls
/// it. So the child gets a T of its own at its first call, which must not meet another one; its
/// copy of the parent's is left alone, because a destructor would wait for threads that are not
/// there.
template <class T> T& one_per_process() {
    static std::unique_ptr<T> own;
    static const int in_the_child =
        pthread_atfork(nullptr, nullptr, [] { static_cast<void>(own.release()); });
    static_cast<void>(in_the_child);
    if (own == nullptr) {
        own = std::make_unique<T>();
    }
    return *own;
}

} // namespace flash::simt
