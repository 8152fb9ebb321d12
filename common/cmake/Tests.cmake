# flash_discover_tests(target [prefix [label [spec]]]): every Catch2 test case of the program becomes one test of ctest,
# named "prefix: case" (the prefix is the target's name unless given, the label the prefix). `spec` names some cases only,
# for example [detect], which Catch2 hides otherwise.
function(flash_discover_tests target)
  set(prefix ${target})
  if(ARGC GREATER 1)
    set(prefix ${ARGV1})
  endif()
  set(label ${prefix})
  if(ARGC GREATER 2)
    set(label ${ARGV2})
  endif()
  set(spec "")
  if(ARGC GREATER 3)
    set(spec TEST_SPEC ${ARGV3})
  endif()
  # Asked for its cases when ctest runs, not when it is built: a build must not depend on a GPU or on run time.
  # Passive: several tests run at once, and an OpenMP thread that spins while it waits takes a core from another.
  catch_discover_tests(${target} ${spec} TEST_PREFIX "${prefix}: " DISCOVERY_MODE PRE_TEST
                       PROPERTIES TIMEOUT 900 LABELS ${label} ENVIRONMENT OMP_WAIT_POLICY=passive SKIP_RETURN_CODE 4)
endfunction()

# flash_add_test(target [LABEL label] SOURCES ... LIBRARIES ...): a Catch2 program with its own main from Catch2, and its tests.
function(flash_add_test target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "LABEL" "SOURCES;LIBRARIES")
  add_executable(${target} ${arg_SOURCES})
  target_link_libraries(${target} PRIVATE flash_settings ${arg_LIBRARIES} Catch2::Catch2WithMain)
  if(NOT arg_LABEL)
    set(arg_LABEL ${target})
  endif()
  flash_discover_tests(${target} ${target} ${arg_LABEL})
endfunction()
