# Toolchain file: builds for arm64 Linux on another Linux, and runs what it has built under qemu-user.
# docs/building_appendix.md says which packages it takes.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu) # where Debian has the libraries of another architecture
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L /)
