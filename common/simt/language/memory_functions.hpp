// The C library's functions for memory, in code that is watched. g++ tells of no access that memcpy
// and its kin make, so they become calls that do; a copy of 1, 2, 4, 8 or 16 bytes stays what it
// is, a load and a store. malloc in a kernel gives memory of the device.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <cstring>

#ifdef __clang__
#if __has_feature(thread_sanitizer)
#define FLASH_SIMT_WATCHED
#endif
#elif defined(__SANITIZE_THREAD__)
#define FLASH_SIMT_WATCHED
#endif

#ifdef FLASH_SIMT_WATCHED
#define FLASH_SIMT_IN_ITS_PLACE extern inline __attribute__((gnu_inline, always_inline, artificial))

extern "C" {
void* flash_simt_malloc(size_t bytes) noexcept;
void flash_simt_free(void* address) noexcept;

FLASH_SIMT_IN_ITS_PLACE void* malloc(size_t bytes) noexcept { return flash_simt_malloc(bytes); }
FLASH_SIMT_IN_ITS_PLACE void free(void* address) noexcept { flash_simt_free(address); }
}

// with _FORTIFY_SOURCE the C library has such wrappers itself
#if !defined(__USE_FORTIFY_LEVEL) || __USE_FORTIFY_LEVEL == 0

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

FLASH_SIMT_IN_ITS_PLACE void* memcpy(void* to, const void* from, size_t bytes) noexcept {
    if (__builtin_constant_p(bytes) && bytes <= 16 && (bytes & (bytes - 1)) == 0) {
        return __builtin_memcpy(to, from, bytes);
    }
    return flash_simt_memcpy(to, from, bytes);
}
FLASH_SIMT_IN_ITS_PLACE void* memmove(void* to, const void* from, size_t bytes) noexcept {
    return flash_simt_memmove(to, from, bytes);
}
FLASH_SIMT_IN_ITS_PLACE void* memset(void* to, int byte, size_t bytes) noexcept {
    return flash_simt_memset(to, byte, bytes);
}
}
#endif

#undef FLASH_SIMT_IN_ITS_PLACE
#endif
#undef FLASH_SIMT_WATCHED
