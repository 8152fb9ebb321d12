# Rungs 12 and 13 with each barrier, wait and mask taken out, one at a time: the suite must notice. All mutants of a rung
# are in one program (scripts/mutations --generate), and the environment chooses.
if(FLASH_BACKEND STREQUAL "simt" AND Python3_FOUND)
  set(mutations ${PROJECT_SOURCE_DIR}/scripts/mutations)
  add_custom_target(mutations)
  foreach(rung IN ITEMS 12_async_pipeline 13_fixed_maximum)
    string(SUBSTRING ${rung} 3 -1 kernel)
    set(mutated ${CMAKE_CURRENT_BINARY_DIR}/mutations_${kernel}.cu)
    add_custom_command(OUTPUT ${mutated}
      COMMAND ${Python3_EXECUTABLE} -B ${mutations} --generate ${rung} ${mutated}
      DEPENDS ${mutations} ${PROJECT_SOURCE_DIR}/scripts/lib/mutants.py ${PROJECT_SOURCE_DIR}/steps/${rung}/${kernel}.cu)
    set_source_files_properties(${mutated} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS "-x;c++")
    add_library(mutations_${rung}_objects OBJECT ${mutated})
    target_link_libraries(mutations_${rung}_objects PUBLIC flash_device)
    flash_watch(mutations_${rung}_objects)

    add_executable(mutations_${rung} mutations.cpp)
    target_link_libraries(mutations_${rung} PRIVATE ${rung}_main mutations_${rung}_objects flash_conformance)
    add_dependencies(mutations mutations_${rung})
    add_test(NAME "mutations: ${rung}" COMMAND ${Python3_EXECUTABLE} -B ${mutations} --only ${rung}
             --programs ${CMAKE_CURRENT_BINARY_DIR})
    set_tests_properties("mutations: ${rung}" PROPERTIES TIMEOUT 900 LABELS mutations RUN_SERIAL ON)
  endforeach()
endif()
