// memcpy, memset and memmove in code that is watched. g++ tells of no access that they make, so
// they become calls that do. A copy of 1, 2, 4, 8 or 16 bytes stays what it is: a load and a store.
#pragma once

#include <cstddef>
#include <cstring>

#ifdef __clang__
#if __has_feature(thread_sanitizer)
#define FLASH_SIMT_WATCHED
#endif
#elif defined(__SANITIZE_THREAD__)
#define FLASH_SIMT_WATCHED
#endif

// with _FORTIFY_SOURCE the C library has such wrappers itself
#if defined(FLASH_SIMT_WATCHED) && (!defined(__USE_FORTIFY_LEVEL) || __USE_FORTIFY_LEVEL == 0)

extern "C" {

void* flash_simt_memcpy(void* to, const void* from, size_t bytes) noexcept;
void* flash_simt_memmove(void* to, const void* from, size_t bytes) noexcept;
void* flash_simt_memset(void* to, int byte, size_t bytes) noexcept;

#ifndef __clang__
// for the calls that g++ makes by itself, and those in the standard library's headers
void* memcpy(void*, const void*, size_t) noexcept __asm__("flash_simt_memcpy");
void* memmove(void*, const void*, size_t) noexcept __asm__("flash_simt_memmove");
void* memset(void*, int, size_t) noexcept __asm__("flash_simt_memset");
#endif

#define FLASH_SIMT_IN_ITS_PLACE                                                                    \
    extern inline __attribute__((gnu_inline, always_inline, artificial)) void*

FLASH_SIMT_IN_ITS_PLACE memcpy(void* to, const void* from, size_t bytes) noexcept {
    if (__builtin_constant_p(bytes) && bytes <= 16 && (bytes & (bytes - 1)) == 0) {
        return __builtin_memcpy(to, from, bytes);
    }
    return flash_simt_memcpy(to, from, bytes);
}
FLASH_SIMT_IN_ITS_PLACE memmove(void* to, const void* from, size_t bytes) noexcept {
    return flash_simt_memmove(to, from, bytes);
}
FLASH_SIMT_IN_ITS_PLACE memset(void* to, int byte, size_t bytes) noexcept {
    return flash_simt_memset(to, byte, bytes);
}
#undef FLASH_SIMT_IN_ITS_PLACE
}

#endif
#undef FLASH_SIMT_WATCHED
