# For the chapters' commands, which build a rung without CMake: `g++ ... @common/by_hand/simt.txt`.
#
# common/by_hand/*.txt are options: flags, folders, and what a rung's program has beside the rung. From nothing that is a
# file for each library, which includes all of its sources. These lists are written here, so that they are CMake's own;
# they are committed, and a test compares. In a build folder by_hand/*.txt are the same options with the libraries
# themselves, once something has built them: the tour, or any rung.

# flash_include_all(FILE "what it is" SOURCE ...): a file of common/by_hand as it should be, in by_hand/sources.
function(flash_include_all file title)
  set(text "// ${title}, for the chapters' commands (common/cmake/ByHand.cmake writes this list).\n// clang-format off\n")
  if(file STREQUAL "simt.cpp")
    string(APPEND text "#define FLASH_SIMT_UNWATCHED // such a kernel tells nothing of its accesses\n")
  endif()
  list(SORT ARGN)
  foreach(source IN LISTS ARGN)
    file(RELATIVE_PATH source ${FLASH_ROOT} ${source})
    string(APPEND text "#include \"${source}\"\n")
  endforeach()
  file(WRITE ${CMAKE_BINARY_DIR}/by_hand/sources/${file} "${text}")
endfunction()

# flash_options_with_libraries(NAME.txt TARGET ...): the options of common/by_hand, with these libraries for the sources.
function(flash_options_with_libraries file)
  file(STRINGS ${FLASH_ROOT}/common/by_hand/${file} lines)
  list(FILTER lines EXCLUDE REGEX "^common/by_hand/")
  list(FILTER lines EXCLUDE REGEX "^-x none")
  list(JOIN lines "\n" flags)
  set(text "${flags}\n")
  if(NOT FLASH_BACKEND STREQUAL "cuda")
    string(APPEND text "-x none\n") # what follows is no source
  endif()
  foreach(target IN LISTS ARGN)
    string(APPEND text "$<PATH:RELATIVE_PATH,$<TARGET_FILE:${target}>,${FLASH_ROOT}>\n")
  endforeach()
  if(FLASH_BACKEND STREQUAL "simt" AND file STREQUAL "simt.txt")
    string(APPEND text "-lboost_context -ldw\n")
  endif()
  file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/by_hand/${file} CONTENT "${text}")
endfunction()

function(flash_write_by_hand)
  foreach(library IN ITEMS harness cli reference)
    get_target_property(${library}_sources flash_${library} SOURCES)
  endforeach()
  flash_include_all(harness.cpp "The harness" ${harness_sources})
  flash_include_all(command_line.cpp "The harness's command line and reports" ${cli_sources})
  flash_include_all(reference.cpp "The reference" ${reference_sources})
  file(GLOB simt CONFIGURE_DEPENDS ${FLASH_ROOT}/common/simt/instructions/*.cpp ${FLASH_ROOT}/common/simt/language/*.cpp
                                   ${FLASH_ROOT}/common/simt/machine/*.cpp ${FLASH_ROOT}/common/harness/backends/simt/*.cpp)
  flash_include_all(simt.cpp "The SIMT backend, without what watches" ${simt})
  file(GLOB cuda CONFIGURE_DEPENDS ${FLASH_ROOT}/common/cuda/launch/*.cu ${FLASH_ROOT}/common/harness/backends/cuda/*.cu)
  flash_include_all(cuda.cu "What kernels on a GPU stand on" ${cuda})

  set(libraries flash_cli flash_reference flash_device_backend flash_harness)
  flash_options_with_libraries(cpu.txt flash_cli flash_reference flash_harness)
  if(FLASH_BACKEND STREQUAL "simt")
    flash_options_with_libraries(simt.txt ${libraries} flash_simt)
  elseif(FLASH_BACKEND STREQUAL "cuda")
    flash_options_with_libraries(sm_80.txt ${libraries} flash_device)
    flash_options_with_libraries(sm_90a.txt ${libraries} flash_device)
  endif()

  set(arguments -DBUILD=${CMAKE_BINARY_DIR} -DCOMMITTED=${FLASH_ROOT}/common/by_hand
                -P ${FLASH_ROOT}/common/cmake/ByHandLists.cmake)
  add_custom_target(by_hand COMMAND ${CMAKE_COMMAND} -DCOPY=ON ${arguments}
                    COMMENT "Writing the lists of sources in common/by_hand")
  add_test(NAME "by hand: the chapters' commands compile what CMake does" COMMAND ${CMAKE_COMMAND} ${arguments})
  flash_in_short("by hand: the chapters' commands compile what CMake does")
endfunction()
