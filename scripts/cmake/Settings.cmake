# Language level, build type and warnings for our own targets.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

option(FLASH_NATIVE "Compile for this machine's instruction set (-march=native)" ON)
option(FLASH_WERROR "Treat warnings in this project's own code as errors" ON)

# Everything of ours links this; dependencies' headers are system headers and stay silent.
add_library(flash_settings INTERFACE)
target_include_directories(flash_settings INTERFACE ${CMAKE_SOURCE_DIR})
target_compile_options(flash_settings INTERFACE -Wall -Wextra -Wpedantic -Wshadow)
if(FLASH_WERROR)
  target_compile_options(flash_settings INTERFACE -Werror)
endif()
if(FLASH_NATIVE)
  target_compile_options(flash_settings INTERFACE -march=native)
endif()
