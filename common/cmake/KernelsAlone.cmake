# cmake -DNM=nm -DPROGRAM=kernels_alone -DCXX=c++ -DROOT=folder -DRUNGS=NN_name,NN_name -P KernelsAlone.cmake
#
# Fails unless the kernels of the CUDA rungs know nothing above common/cuda (and its twin, common/simt): their files
# include nothing else, and a program that was linked with them holds no code of the harness or the reference.
string(REPLACE "," ";" rungs "${RUNGS}")
foreach(rung IN LISTS rungs)
  file(GLOB kernels ${ROOT}/steps/${rung}/*.cu)
  foreach(kernel IN LISTS kernels)
    foreach(backend IN ITEMS __NVCC__ FLASH_SIMT) # -MG: the CUDA Toolkit's headers may be missing
      execute_process(COMMAND ${CXX} -std=c++20 -I${ROOT} -MM -MG -D${backend} -x c++ ${kernel}
                      OUTPUT_VARIABLE headers COMMAND_ERROR_IS_FATAL ANY)
      string(REPLACE "${ROOT}/" "" headers "${headers}") # its own name may end in "steps"
      string(REGEX MATCHALL "(common/(harness|cpu)|reference|steps)/[^ \n]*" found "${headers}")
      list(FILTER found EXCLUDE REGEX "^steps/${rung}/")
      if(found)
        list(REMOVE_DUPLICATES found)
        message(FATAL_ERROR "${rung}: the kernel includes ${found}")
      endif()
    endforeach()
  endforeach()
endforeach()

execute_process(COMMAND ${NM} --demangle --defined-only ${PROGRAM} OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
foreach(rung IN LISTS rungs)
  string(REGEX REPLACE "^[0-9][0-9][a-z]?_" "" name ${rung})
  if(NOT symbols MATCHES " ${name}::attention")
    message(FATAL_ERROR "${PROGRAM} does not hold ${name}::attention")
  endif()
endforeach()
string(REGEX MATCHALL "flash::(Backend|Rung|DeviceRun|host_backend|device_backend|reference)[^\n]*" found "${symbols}")
if(found)
  list(GET found 0 first)
  message(FATAL_ERROR "${PROGRAM} holds code of the harness or the reference: ${first}")
endif()
message(STATUS "the kernels of ${RUNGS} stand on common/cuda alone")
