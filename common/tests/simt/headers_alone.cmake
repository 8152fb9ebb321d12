# cmake -DCXX=c++ -DROOT=folder -P headers_alone.cmake
#
# Fails unless a file that includes nothing but one of CUDA's headers compiles, for each of them. Those that only lead to
# another one are left out.
cmake_minimum_required(VERSION 3.25)
set(folder ${ROOT}/common/simt/headers)
file(GLOB_RECURSE headers RELATIVE ${folder} ${folder}/*.h)
foreach(header IN LISTS headers)
  file(READ ${folder}/${header} text)
  if(text MATCHES "^//[^\n]*\n#pragma once\n\n#include \"[a-zA-Z0-9_]+\\.h\"\n$")
    continue()
  endif()
  list(APPEND checked ${header})
  execute_process(COMMAND ${CXX} -std=c++20 -fsyntax-only -Wall -Wextra -Werror -I${folder} -I${folder}/samples -I${ROOT}
                          -include ${folder}/${header} -x c++ /dev/null
                  RESULT_VARIABLE status ERROR_VARIABLE said)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${header} does not compile alone:\n${said}")
  endif()
endforeach()
list(LENGTH checked count)
if(count LESS 15)
  message(FATAL_ERROR "only ${count} headers found in ${folder}: have they moved?")
endif()
message(STATUS "${count} headers compile alone")
