# Where the kernels of the CUDA rungs run. One build folder holds one backend, because CMake keeps a source's
# language once a directory: a .cu file cannot be C++ for one target and CUDA for another.
#   cpu   they are left out
#   simt  g++ compiles them, and the SIMT backend executes them on the CPU, thread by thread
#   cuda  nvcc compiles them for a GPU
# The CPU rungs are built with each.
set(FLASH_BACKEND cpu CACHE STRING "Where the CUDA rungs run: cpu (left out), simt (emulated on the CPU), cuda (GPU)")
set_property(CACHE FLASH_BACKEND PROPERTY STRINGS cpu simt cuda)
if(NOT FLASH_BACKEND MATCHES "^(cpu|simt|cuda)$")
  message(FATAL_ERROR "FLASH_BACKEND is '${FLASH_BACKEND}'; it can be cpu, simt or cuda")
endif()
if(FLASH_SANITIZE AND NOT FLASH_BACKEND STREQUAL "cpu")
  message(FATAL_ERROR "FLASH_SANITIZE works with FLASH_BACKEND=cpu only: "
                      "AddressSanitizer takes the stack switches of the SIMT backend for errors")
endif()

if(FLASH_BACKEND STREQUAL "cuda")
  include(Architectures) # flash_choose_architectures()
  find_program(FLASH_NVCC nvcc HINTS ENV CUDACXX ENV CUDA_PATH /usr/local/cuda PATH_SUFFIXES bin)
  if(NOT FLASH_NVCC AND NOT DEFINED ENV{CUDACXX} AND NOT CMAKE_CUDA_COMPILER)
    message(FATAL_ERROR
      "FLASH_BACKEND=cuda needs nvcc of the CUDA Toolkit 12.4 or later, and there is none in PATH or /usr/local/cuda.\n"
      "Install the toolkit, or name its compiler: CUDACXX=/path/to/nvcc cmake --preset cuda\n"
      "Without it the same kernels run on the CPU: cmake --preset simt")
  endif()
  if(FLASH_NVCC AND NOT DEFINED ENV{CUDACXX} AND NOT CMAKE_CUDA_COMPILER)
    set(CMAKE_CUDA_COMPILER ${FLASH_NVCC})
  endif()

  set(nvcc ${CMAKE_CUDA_COMPILER})
  if(NOT nvcc)
    set(nvcc $ENV{CUDACXX})
  endif()
  flash_choose_architectures("${nvcc}")
  enable_language(CUDA)
  set(CMAKE_CUDA_STANDARD 20) # not before enable_language: CMake's own test of the compiler would fail
  if(CMAKE_VERSION VERSION_LESS 3.26) # it does not know yet how to ask nvcc for C++20
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  endif()
  if(CMAKE_CUDA_COMPILER_ID STREQUAL "NVIDIA" AND CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 12.4)
    message(FATAL_ERROR "${CMAKE_CUDA_COMPILER} is version ${CMAKE_CUDA_COMPILER_VERSION}; 12.4 or later is needed")
  endif()

  set(options -Xcompiler=-Wall,-Wextra,-Wshadow)
  if(FLASH_WERROR)
    list(APPEND options -Xcompiler=-Werror --Werror=all-warnings)
  endif()
  target_compile_options(flash_settings INTERFACE "$<$<COMPILE_LANGUAGE:CUDA>:${options}>")
endif()

message(STATUS "flash-steps: backend ${FLASH_BACKEND}, ${CMAKE_BUILD_TYPE} build")
