# cmake -DNM=nm -DPROGRAM=test_NN_name -DRUNG=NN_name -P OwnKernel.cmake
#
# Fails unless the program holds code of namespace stepNN and of no other rung. Two rungs in one program that define the
# same template link without an error, both run the first one, and both pass the suite: all rungs compute one function.
string(REGEX MATCH "^[0-9][0-9]" number "${RUNG}")
execute_process(COMMAND ${NM} --demangle --defined-only ${PROGRAM} OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "step[0-9][0-9]::" namespaces "${symbols}")
list(REMOVE_DUPLICATES namespaces)
if(NOT namespaces STREQUAL "step${number}::")
  message(FATAL_ERROR "${PROGRAM} should hold code of step${number}:: alone; it holds: '${namespaces}'")
endif()
message(STATUS "${PROGRAM}: code of step${number}:: alone")
