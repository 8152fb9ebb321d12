// What programs use of the CUDA samples' header of this name. (The samples' own, beside a file,
// comes first.)
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#ifndef EXIT_WAIVED
#define EXIT_WAIVED 2
#endif

/// The text behind "--name=", or behind the name; null where the option is not given.
inline const char* option_value(int argc, const char** argv, const char* name) {
    const size_t length = strlen(name);
    for (int i = 1; i < argc; ++i) {
        const char* text = argv[i];
        while (*text == '-') {
            ++text;
        }
        const bool same = strncasecmp(text, name, length) == 0;
        if (same && (text[length] == '=' || text[length] == '\0')) {
            return text[length] == '=' ? text + length + 1 : text + length;
        }
    }
    return nullptr;
}
inline bool checkCmdLineFlag(int argc, const char** argv, const char* name) {
    return option_value(argc, argv, name) != nullptr;
}
inline int getCmdLineArgumentInt(int argc, const char** argv, const char* name) {
    const char* const text = option_value(argc, argv, name);
    return text == nullptr ? 0 : atoi(text);
}
inline float getCmdLineArgumentFloat(int argc, const char** argv, const char* name) {
    const char* const text = option_value(argc, argv, name);
    return text == nullptr ? 0.0f : static_cast<float>(atof(text));
}
inline bool getCmdLineArgumentString(int argc, const char** argv, const char* name, char** value) {
    const char* const text = option_value(argc, argv, name);
    *value = const_cast<char*>(text);
    return text != nullptr;
}
