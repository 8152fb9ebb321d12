# flash_add_rung(NN_name): the program NN_name and its conformance test test_NN_name, from the folder steps/NN_name.
# Both are the same object files; the program links the command line, the test links the conformance suite,
# and each of these defines rung_main.
function(flash_add_rung name)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${name}/*.cpp)
  add_library(${name}_objects OBJECT ${sources})
  target_link_libraries(${name}_objects PUBLIC flash_cpu flash_harness flash_reference)

  add_executable(${name})
  target_link_libraries(${name} PRIVATE ${name}_objects flash_cli)

  add_executable(test_${name})
  target_link_libraries(test_${name} PRIVATE ${name}_objects flash_conformance)
  add_test(NAME conformance.${name} COMMAND test_${name})
endfunction()
