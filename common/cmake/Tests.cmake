add_custom_target(short_tests) # the programs of the tests with the label "short", which scripts/test runs

# flash_add_cases("name" target [SPEC cases] [SHORT] [LABELS label ...] [PROPERTIES name value ...]): one test of ctest,
# which runs Catch2's cases of this program in one process: all that are not hidden, or those that SPEC names. Catch2 says
# which one failed. SHORT: scripts/test runs it, and builds the program for it; the others are for scripts/test --all.
function(flash_add_cases name target)
  cmake_parse_arguments(PARSE_ARGV 2 arg "SHORT" "SPEC" "LABELS;PROPERTIES")
  add_test(NAME "${name}" COMMAND ${target} ${arg_SPEC})
  # Passive: several tests run at once, and an OpenMP thread that spins while it waits takes a core from another.
  set_tests_properties("${name}" PROPERTIES TIMEOUT 1800 ENVIRONMENT OMP_WAIT_POLICY=passive SKIP_RETURN_CODE 4
                       ${arg_PROPERTIES} LABELS "${arg_LABELS}")
  if(arg_SHORT)
    flash_in_short("${name}" ${target})
  endif()
endfunction()

# flash_in_short("name" [target ...]): scripts/test runs this test, which needs these.
function(flash_in_short name)
  set_property(TEST "${name}" APPEND PROPERTY LABELS short)
  if(ARGN)
    add_dependencies(short_tests ${ARGN})
  endif()
endfunction()
