add_custom_target(rungs) # every rung, without the tests

# flash_add_rung(NN_name): the program NN_name and its conformance test test_NN_name, from the folder steps/NN_name.
# Both are the same object files, of main.cpp and of NN_name_kernel (everything else); the program links the command
# line, the test links the conformance suite, and each of these defines rung_main.
# A folder with a .cu file is a CUDA rung: the backend decides how it is built.
function(flash_add_rung name)
  set(folder ${CMAKE_CURRENT_SOURCE_DIR}/${name})
  file(GLOB sources CONFIGURE_DEPENDS ${folder}/*.cpp)
  file(GLOB kernels CONFIGURE_DEPENDS ${folder}/*.cu)
  if(NOT sources AND NOT kernels)
    message(FATAL_ERROR "flash_add_rung(${name}): there is no .cpp or .cu file in ${folder}")
  endif()

  if(kernels AND FLASH_BACKEND STREQUAL "cpu")
    set(reason "needs the simt or cuda backend")
    message(STATUS "left out: ${name} ${reason}")
    set_property(GLOBAL APPEND_STRING PROPERTY FLASH_RUNGS "${name}\tleft out\t${reason}\n")
    return()
  endif()

  set(kernel_sources ${sources} ${kernels})
  list(REMOVE_ITEM kernel_sources ${folder}/main.cpp)
  add_library(${name}_kernel OBJECT ${kernel_sources})
  if(kernels)
    target_link_libraries(${name}_kernel PUBLIC flash_device)
  else()
    target_link_libraries(${name}_kernel PUBLIC flash_cpu)
  endif()
  add_library(${name}_main OBJECT ${folder}/main.cpp)
  target_link_libraries(${name}_main PUBLIC flash_harness flash_reference)
  if(NOT kernels)
    target_link_libraries(${name}_main PUBLIC flash_cpu) # the rung's header may show Eigen's matrices
  endif()
  if(kernels AND FLASH_BACKEND STREQUAL "simt")
    # g++ takes an unknown ending for a linker script; -x names the language.
    set_source_files_properties(${kernels} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS "-x;c++")
  endif()

  add_executable(${name})
  target_link_libraries(${name} PRIVATE ${name}_main ${name}_kernel flash_cli)
  add_dependencies(rungs ${name})
  set_property(GLOBAL APPEND_STRING PROPERTY FLASH_RUNGS "${name}\tbuilt\t$<TARGET_FILE:${name}>\n")

  add_executable(test_${name})
  target_link_libraries(test_${name} PRIVATE ${name}_main ${name}_kernel flash_conformance)
  if(FLASH_SANITIZE)
    # Sanitized products are tens of times slower: the list with N <= 200, with both masks and some other inputs.
    flash_discover_tests(test_${name} ${name} ${name} [detect])
  else()
    flash_discover_tests(test_${name} ${name})
  endif()
  add_test(NAME "${name}: runs its own kernel" COMMAND ${CMAKE_COMMAND} -DNM=${CMAKE_NM} -DRUNG=${name}
           -DPROGRAM=$<TARGET_FILE:test_${name}> -P ${PROJECT_SOURCE_DIR}/scripts/cmake/OwnKernel.cmake)

  if(kernels AND FLASH_BACKEND STREQUAL "simt")
    flash_add_watched_twins(${name} SOURCES ${sources} ${kernels})
  endif()
endfunction()

# rungs.tsv in the build folder: name, "built" or "left out", and the program or the reason. scripts/ read it.
function(flash_write_rung_list)
  get_property(rungs GLOBAL PROPERTY FLASH_RUNGS)
  file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/rungs.tsv CONTENT "${rungs}")
endfunction()
