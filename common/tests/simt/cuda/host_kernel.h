// What host.c calls.
#pragma once

#ifdef __cplusplus
extern "C" {
#endif
void run(int* a);
#ifdef __cplusplus
}
#endif
