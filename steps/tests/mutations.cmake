# The CUDA rungs without one of the statements that synchronise: the suite must notice. All mutants of a rung are in one
# program (lab mutations --generate), and the environment chooses. Hundreds of runs, so they are built by the target
# mutations alone, scripts/test leaves them out, and `.ci/run mutations` runs them.
if(FLASH_BACKEND STREQUAL "simt" AND Python3_FOUND)
  set(lab ${CMAKE_COMMAND} -E env PYTHONPATH=${PROJECT_SOURCE_DIR}/scripts ${Python3_EXECUTABLE} -B -m lab)
  file(GLOB headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/common/cuda/*/*.hpp)
  add_custom_target(mutations)
  get_property(rungs GLOBAL PROPERTY FLASH_CUDA_RUNGS)
  foreach(rung IN LISTS rungs)
    file(GLOB kernel ${PROJECT_SOURCE_DIR}/steps/${rung}/*.cu)
    set(mutated ${CMAKE_CURRENT_BINARY_DIR}/mutations_${rung}.cu)
    add_custom_command(OUTPUT ${mutated}
      COMMAND ${lab} mutations --generate ${mutated} ${rung}
      DEPENDS ${PROJECT_SOURCE_DIR}/scripts/lab/mutations.py ${kernel} ${headers})
    # Its #line directives make the compiler take it for a header, in which a lambda that holds something of an unnamed
    # namespace would be suspicious.
    set_source_files_properties(${mutated} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS "-x;c++;-Wno-subobject-linkage")
    add_library(mutations_${rung}_objects OBJECT EXCLUDE_FROM_ALL ${mutated})
    target_link_libraries(mutations_${rung}_objects PUBLIC flash_device)
    flash_observe(mutations_${rung}_objects)

    add_executable(mutations_${rung} EXCLUDE_FROM_ALL mutations.cpp)
    target_link_libraries(mutations_${rung} PRIVATE ${rung}_main mutations_${rung}_objects flash_conformance)
    add_dependencies(mutations mutations_${rung})
    add_test(NAME "mutations: ${rung}"
             COMMAND ${lab} mutations ${rung} --jobs 1 --programs ${CMAKE_CURRENT_BINARY_DIR})
    set_tests_properties("mutations: ${rung}" PROPERTIES TIMEOUT 900 LABELS mutations COST 10)
  endforeach()
endif()
