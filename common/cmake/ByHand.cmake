# common/by_hand: options for the chapters' commands, which build a rung without CMake, as in
# `g++ ... @common/by_hand/simt.txt`. All of it is written here, because the sources are those of CMake's libraries, and
# committed, because a reader may have no CMake; a test compares. NAME.txt are flags and sources, where one source includes
# all that a library compiles together.
#
# by_hand/NAME.txt in a build folder has the libraries in place of the sources, for when something has built them: the
# tour, or any rung.

# flash_include_all(variable NAME "first lines" SOURCE ...): writes NAME, which includes these sources. `variable` gets its
# path from the root, and that of each source which CMake compiles apart.
function(flash_include_all variable name text)
  set(paths common/by_hand/${name})
  list(SORT ARGN)
  foreach(source IN LISTS ARGN)
    file(RELATIVE_PATH path ${FLASH_ROOT} ${source})
    get_source_file_property(apart ${source} TARGET_DIRECTORY flash_harness SKIP_UNITY_BUILD_INCLUSION)
    if(apart)
      list(APPEND paths ${path})
    else()
      string(APPEND text "#include \"${path}\"\n")
    endif()
  endforeach()
  file(WRITE ${CMAKE_BINARY_DIR}/by_hand/committed/${name} "${text}")
  set(${variable} ${paths} PARENT_SCOPE)
endfunction()

# flash_by_hand_options(NAME.txt FLAGS "..." SOURCES ... [LIBRARIES target ...] [LAST "..."]): both files of this name, the
# second one if it is given libraries.
function(flash_by_hand_options name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "FLAGS;LAST" "SOURCES;LIBRARIES")
  list(JOIN arg_SOURCES "\n" sources)
  file(WRITE ${CMAKE_BINARY_DIR}/by_hand/committed/${name} "${arg_FLAGS}\n${sources}\n${arg_LAST}")
  if(NOT arg_LIBRARIES)
    return()
  endif()
  set(libraries "")
  foreach(target IN LISTS arg_LIBRARIES)
    string(APPEND libraries "$<PATH:RELATIVE_PATH,$<TARGET_FILE:${target}>,${FLASH_ROOT}>\n")
  endforeach()
  if(NOT name MATCHES "^sm_") # to g++, behind -x c++, all that follows would be sources
    string(PREPEND libraries "-x none\n")
  endif()
  file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/by_hand/${name} CONTENT "${arg_FLAGS}\n${libraries}${arg_LAST}")
endfunction()

function(flash_write_by_hand)
  set(first "// For the chapters' commands. Written by CMake (common/cmake/ByHand.cmake).\n// clang-format off\n")
  foreach(library IN ITEMS harness cli reference)
    get_target_property(${library} flash_${library} SOURCES)
  endforeach()
  file(GLOB simt CONFIGURE_DEPENDS ${FLASH_ROOT}/common/simt/instructions/*.cpp ${FLASH_ROOT}/common/simt/language/*.cpp
                                   ${FLASH_ROOT}/common/simt/machine/*.cpp ${FLASH_ROOT}/common/harness/backends/simt/*.cpp)
  file(GLOB cuda CONFIGURE_DEPENDS ${FLASH_ROOT}/common/cuda/launch/*.cu ${FLASH_ROOT}/common/harness/backends/cuda/*.cu)
  flash_include_all(harness harness.cpp "${first}" ${harness})
  flash_include_all(cli command_line.cpp "${first}" ${cli})
  flash_include_all(reference reference.cpp "${first}" ${reference})
  # a kernel that is compiled like this tells nothing of its accesses, so nothing watches it
  flash_include_all(simt simt.cpp "${first}#define FLASH_SIMT_UNWATCHED\n" ${simt})
  flash_include_all(cuda cuda.cu "${first}" ${cuda})

  # Harness and reference work briefly, so -O1, which compiles in two thirds of the time. Of nvcc's it is the host's.
  set(folders "-I. -I/usr/include/eigen3")
  set(nvcc "-Xcompiler -march=native,-fopenmp\n${folders}")
  set(shared ${harness} ${cli} ${reference})
  set(of_cpu flash_cli flash_reference flash_harness)
  set(of_simt "")
  set(of_cuda "")
  if(FLASH_SANITIZE) # these would want a program that is sanitized, too
    set(of_cpu "")
  elseif(FLASH_BACKEND STREQUAL "simt")
    set(of_simt flash_cli flash_reference flash_device_backend flash_harness flash_simt)
  elseif(FLASH_BACKEND STREQUAL "cuda")
    set(of_cuda flash_cli flash_reference flash_device_backend flash_harness flash_device)
  endif()
  flash_by_hand_options(cpu.txt FLAGS "-std=c++20 -O2 -march=native -fopenmp\n${folders}" SOURCES ${shared}
                        LIBRARIES ${of_cpu})
  flash_by_hand_options(simt.txt FLAGS "-std=c++20 -O1 -march=native -fopenmp -Wno-psabi\n${folders}"
                        SOURCES ${shared} ${simt} LAST "-x none -lboost_context -ldw\n" LIBRARIES ${of_simt})
  flash_by_hand_options(sm_80.txt FLAGS "-std=c++20 -O1\n--generate-code=arch=compute_80,code=[sm_80,compute_80] \
--generate-code=arch=compute_90,code=[sm_90,compute_90]\n${nvcc}" SOURCES ${shared} ${cuda} LIBRARIES ${of_cuda})
  flash_by_hand_options(sm_90a.txt FLAGS "-std=c++20 -O1\n--generate-code=arch=compute_90a,code=sm_90a\n${nvcc}"
                        SOURCES ${shared} ${cuda} LIBRARIES ${of_cuda})

  set(arguments -DBUILD=${CMAKE_BINARY_DIR} -DCOMMITTED=${FLASH_ROOT}/common/by_hand
                -P ${FLASH_ROOT}/common/cmake/ByHandFiles.cmake)
  add_custom_target(by_hand COMMAND ${CMAKE_COMMAND} -DCOPY=ON ${arguments} COMMENT "Writing common/by_hand")
  add_test(NAME "by hand: the chapters' commands compile what CMake does" COMMAND ${CMAKE_COMMAND} ${arguments})
  flash_in_short("by hand: the chapters' commands compile what CMake does")
endfunction()
