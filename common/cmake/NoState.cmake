# cmake -DOBJDUMP=objdump -DRUNGS=NN_name,NN_name -DOBJECTS=NN_name.o,NN_name.o -P NoState.cmake
#
# Fails unless the CUDA rungs keep nothing from one call to the next, and allocate nothing: their object files have no
# variables that could be written, apart from a kernel's __shared__ ones on the SIMT backend, which have the tag
# [abi:kernel], and they call nothing that allocates device memory.
string(REPLACE "," ";" rungs "${RUNGS}")
string(REPLACE "," ";" objects "${OBJECTS}")
foreach(rung object IN ZIP_LISTS rungs objects)
  string(REGEX REPLACE "^[0-9][0-9][a-z]?_" "" name ${rung})
  execute_process(COMMAND ${OBJDUMP} --syms --demangle ${object} OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
  if(NOT symbols MATCHES "${name}::attention")
    message(FATAL_ERROR "${object} does not hold ${name}::attention")
  endif()
  string(REGEX MATCHALL "[^\n]*[ \t][.]t?(data|bss)[^\n]*${name}::[^\n]*" found "${symbols}")
  list(FILTER found EXCLUDE REGEX "[.]data[.]rel[.]ro|\\[abi:kernel\\]")
  if(found)
    list(GET found 0 first)
    string(REGEX REPLACE "^.*(${name}::.*)$" "\\1" first "${first}")
    message(FATAL_ERROR "${rung}: ${first} keeps its value from one call to the next; memory for it is the caller's: "
                        "workspace_bytes and a workspace")
  endif()
  if(symbols MATCHES "[*]UND[*][^\n]*(allocate_device_memory|cudaMalloc)")
    message(FATAL_ERROR "${rung} calls ${CMAKE_MATCH_1}; memory is the caller's: workspace_bytes and a workspace")
  endif()
endforeach()
message(STATUS "${RUNGS} keep nothing from one call to the next, and allocate nothing")
