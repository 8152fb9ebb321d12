# cmake -DFOLDER=common/simt -P includes.cmake
#
# Fails unless the includes between the rooms of the SIMT backend run one way: report -> observers -> instructions ->
# language -> machine; headers, which a reader's file sees, know instructions and cublas. Beside common/simt they take
# error.hpp and types.hpp, and nothing else: no harness, no rung, no common/cuda.
cmake_minimum_required(VERSION 3.25)
set(machine machine)
set(language machine language)
set(instructions machine language instructions)
set(observers machine instructions observers)
set(report machine instructions observers report)
set(cublas machine language cublas)
set(headers machine language instructions cublas headers)

set(checked 0)
foreach(room IN ITEMS machine language instructions observers report cublas headers)
  file(GLOB files ${FOLDER}/${room}/*.?pp ${FOLDER}/${room}/*.h ${FOLDER}/${room}/*/*.h)
  foreach(file IN LISTS files)
    file(STRINGS ${file} includes ENCODING UTF-8 REGEX "^ *# *include *\"")
    foreach(include IN LISTS includes)
      string(REGEX REPLACE "^[^\"]*\"([^\"]*)\".*" "\\1" path "${include}")
      math(EXPR checked "${checked} + 1")
      if(path MATCHES "^common/simt/([a-z]+)/")
        if(NOT CMAKE_MATCH_1 IN_LIST ${room})
          list(APPEND wrong "${file}: ${room} must not include ${path}")
        endif()
      elseif(room STREQUAL "headers" AND NOT path MATCHES "/")
        # one of CUDA's names beside it
      elseif(room STREQUAL "headers" AND path STREQUAL "common/simt/cuda_on_cpu.hpp")
        # all of the language
      elseif(NOT path MATCHES "^common/(error|types)\\.hpp$")
        list(APPEND wrong "${file}: ${path} is not below common/simt")
      endif()
    endforeach()
  endforeach()
endforeach()
if(checked LESS 50)
  message(FATAL_ERROR "only ${checked} includes found in ${FOLDER}: have the rooms moved?")
endif()
if(wrong)
  list(JOIN wrong "\n  " text)
  message(FATAL_ERROR "includes that run the wrong way:\n  ${text}")
endif()
message(STATUS "${checked} includes, all one way")
