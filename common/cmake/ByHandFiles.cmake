# cmake [-DCOPY=ON] -DBUILD=FOLDER -DCOMMITTED=FOLDER -P ByHandFiles.cmake
#
# Fails unless the files in common/by_hand are as ByHand.cmake writes them; with COPY they become so.
set(WRITTEN ${BUILD}/by_hand/committed)
file(GLOB files RELATIVE ${WRITTEN} ${WRITTEN}/*)
foreach(file IN LISTS files)
  if(COPY)
    file(COPY_FILE ${WRITTEN}/${file} ${COMMITTED}/${file} ONLY_IF_DIFFERENT)
  endif()
  execute_process(COMMAND ${CMAKE_COMMAND} -E compare_files ${WRITTEN}/${file} ${COMMITTED}/${file} RESULT_VARIABLE differ
                  ERROR_QUIET)
  if(differ)
    message(FATAL_ERROR "common/by_hand/${file} does not name the sources that CMake compiles.\n"
                        "  This writes it anew: cmake --build ${BUILD} --target by_hand")
  endif()
endforeach()
