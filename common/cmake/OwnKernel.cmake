# cmake -DNM=nm -DPROGRAM=test_NN_name -DRUNG=NN_name -DLADDER=LADDER.TXT -P OwnKernel.cmake
#
# Fails unless the program holds the namespace of its rung, and that of no other. Two rungs in one program that define
# the same template link without an error, both run the first one, and both pass the suite: all rungs compute one function.
execute_process(COMMAND ${NM} --demangle --defined-only ${PROGRAM} OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
file(STRINGS ${LADDER} lines ENCODING UTF-8 REGEX "^[0-9]")
foreach(line IN LISTS lines)
  string(REGEX REPLACE "^([0-9][0-9][a-z]?_([a-z0-9_]+)).*" "\\1;\\2" rung "${line}")
  list(GET rung 1 name)
  if(symbols MATCHES " ${name}::attention(_backward)?[<(]")
    list(APPEND held ${rung})
  endif()
endforeach()
list(GET held 1 name)
if(NOT held STREQUAL "${RUNG};${name}")
  message(FATAL_ERROR "${PROGRAM} should hold the kernel of ${RUNG} alone; it holds: '${held}'")
endif()
message(STATUS "${PROGRAM}: code of ${name}:: alone")
