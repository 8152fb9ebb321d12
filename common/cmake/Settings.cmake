# Language level, build type, instruction set and warnings for our own targets.
if(CMAKE_SOURCE_DIR STREQUAL CMAKE_BINARY_DIR)
  message(FATAL_ERROR "Build in a folder of its own: cmake -B build")
endif()

get_filename_component(FLASH_ROOT ${CMAKE_CURRENT_LIST_DIR}/../.. ABSOLUTE) # of the repository
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

option(FLASH_NATIVE "Compile for this computer's instruction set (-march=native)" ON)
option(FLASH_WERROR "Treat warnings in this project's own code as errors (.ci/run does)" OFF)
option(FLASH_TOGETHER "Compile a library's files at once: faster, but editors find no single one (preset dev)" ON)
option(FLASH_SANITIZE "Find memory errors and undefined behaviour at run time (ASan and UBSan)" OFF)

# Everything of ours links this; dependencies' headers are system headers and stay silent.
# nvcc's own options stand in Backend.cmake: it takes none of these without a prefix.
add_library(flash_settings INTERFACE)
target_include_directories(flash_settings INTERFACE ${FLASH_ROOT})
set(options -Wall -Wextra -Wpedantic -Wshadow)
if(FLASH_WERROR)
  list(APPEND options -Werror)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # Two false alarms of g++ 12: `"text" + std::string` as an overlapping copy (GCC bug 105651), and its own AVX-512
  # intrinsics, which Eigen uses, as reads of uninitialised variables (105593).
  list(APPEND options -Wno-restrict -Wno-maybe-uninitialized)
endif()
if(FLASH_NATIVE)
  list(APPEND options -march=native)
endif()
if(FLASH_SANITIZE)
  # Without "recover" a finding ends the program, so that a test cannot pass over it.
  set(sanitizers -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
  list(APPEND options ${sanitizers})
  # What UBSan asks of each pointer doubles the time to compile Eigen, json and Catch2; a pointer that is null or outside of
  # what it points into ASan finds as well. Misaligned ones it does not: the harness, which reads files, is asked for all.
  list(APPEND options "$<$<NOT:$<BOOL:$<TARGET_PROPERTY:FLASH_EVERY_POINTER>>>:\
-fno-sanitize=null,alignment,pointer-overflow,object-size>")
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # False alarms of g++ 13 on vector = {x}, as it looks with sanitizers.
    list(APPEND options -Wno-array-bounds -Wno-stringop-overread)
  endif()
  target_link_options(flash_settings INTERFACE ${sanitizers})
endif()
target_compile_options(flash_settings INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${options}>")

# gold, which comes with g++'s binutils, links in a third of the time.
if(FLASH_TOGETHER AND FLASH_BACKEND STREQUAL "simt" AND CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64")
  find_program(FLASH_GOLD ld.gold)
  if(FLASH_GOLD)
    target_link_options(flash_settings INTERFACE -fuse-ld=gold)
  endif()
endif()

# flash_compile_together(target [APART FILE ...]): with FLASH_TOGETHER, all sources but those are one to the compiler. The
# preset dev compiles each by itself, so none may live on what another includes.
function(flash_compile_together target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "APART")
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${FLASH_TOGETHER} UNITY_BUILD_BATCH_SIZE 0)
  set_source_files_properties(${arg_APART} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()
