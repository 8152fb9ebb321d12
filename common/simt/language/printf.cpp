// printf() in a kernel. The C library's functions have their twins here, under the names that
// programs are linked with; compilers make some calls of printf() to others of them.
#include <cstdarg>
#include <cstdio>
#include <string>

#include "common/simt/machine/block.hpp"
#include "common/simt/machine/observer.hpp"
#include "common/simt/machine/printing.hpp"

extern "C" {
int simt_printf(const char* format, ...) __asm__("printf");
int simt_printf_checked(int level, const char* format, ...) __asm__("__printf_chk");
int simt_puts(const char* text) __asm__("puts");
int simt_putchar(int character) __asm__("putchar");
}

namespace {

[[gnu::format(printf, 1, 0)]] int print(const char* format, va_list arguments) {
    if (!flash::simt::kernel_at_work) {
        return std::vfprintf(stdout, format, arguments);
    }
    const flash::simt::RuntimeCode runtime;
    va_list again;
    va_copy(again, arguments);
    const int size = std::vsnprintf(nullptr, 0, format, arguments);
    if (size > 0) {
        std::string text(static_cast<size_t>(size) + 1, '\0'); // it writes a zero behind the text
        std::vsnprintf(text.data(), text.size(), format, again);
        text.pop_back();
        flash::simt::printing().print(text);
    }
    va_end(again);
    return size;
}

} // namespace

int simt_printf(const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    const int size = print(format, arguments);
    va_end(arguments);
    return size;
}

int simt_printf_checked(int, const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    const int size = print(format, arguments);
    va_end(arguments);
    return size;
}

int simt_puts(const char* text) {
    if (!flash::simt::kernel_at_work) {
        return std::fputs(text, stdout) == EOF ? EOF : std::fputc('\n', stdout);
    }
    const flash::simt::RuntimeCode runtime;
    flash::simt::printing().print(std::string(text) + "\n");
    return 1;
}

int simt_putchar(int character) {
    if (!flash::simt::kernel_at_work) {
        return std::fputc(character, stdout);
    }
    const flash::simt::RuntimeCode runtime;
    flash::simt::printing().print(std::string(1, static_cast<char>(character)));
    return character;
}
