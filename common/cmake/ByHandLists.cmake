# cmake [-DCOPY=ON] -DBUILD=FOLDER -DCOMMITTED=FOLDER -P ByHandLists.cmake
#
# Fails unless the lists in common/by_hand are those that CMake wrote from its own; with COPY they become so.
set(WRITTEN ${BUILD}/by_hand/sources)
file(GLOB lists RELATIVE ${WRITTEN} ${WRITTEN}/*)
foreach(list IN LISTS lists)
  if(COPY)
    file(COPY_FILE ${WRITTEN}/${list} ${COMMITTED}/${list} ONLY_IF_DIFFERENT)
  endif()
  execute_process(COMMAND ${CMAKE_COMMAND} -E compare_files ${WRITTEN}/${list} ${COMMITTED}/${list} RESULT_VARIABLE differ
                  ERROR_QUIET)
  if(differ)
    message(FATAL_ERROR "common/by_hand/${list} does not include the sources that CMake compiles.\n"
                        "  This writes it anew: cmake --build ${BUILD} --target by_hand")
  endif()
endforeach()
