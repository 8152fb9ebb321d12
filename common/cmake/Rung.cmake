# flash_for_each_rung(LADDER.TXT function): calls function(NN_name types head_dims capability needs) for every rung of the
# manifest, in order; the file itself says what its columns are. A changed manifest configures anew.
function(flash_for_each_rung manifest function)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${manifest})
  file(STRINGS ${manifest} lines ENCODING UTF-8 REGEX "^[^# ]")
  foreach(line IN LISTS lines)
    if(NOT line MATCHES "^([0-9][0-9][a-z]?_[a-z0-9_]+) *\\| *(-|[a-z0-9_]+) *\\| *([a-z0-9 ]*[a-z0-9]) *\\| *([a-z0-9 /]*[a-z0-9]) *\\| *(-|[0-9.]+) *(MPI)? *\\| *[^| ]")
      message(FATAL_ERROR "${manifest}: not a line of six columns, NN_name | parent | types | head dims | compute capability | idea:\n${line}")
    endif()
    cmake_language(CALL ${function} ${CMAKE_MATCH_1} "${CMAKE_MATCH_3}" "${CMAKE_MATCH_4}" ${CMAKE_MATCH_5} "${CMAKE_MATCH_6}")
  endforeach()
endfunction()

# flash_name_of_rung(variable NN_name): its name, without the number; also that of its namespace.
function(flash_name_of_rung variable rung)
  string(REGEX REPLACE "^[0-9][0-9][a-z]?_" "" name ${rung})
  set(${variable} ${name} PARENT_SCOPE)
endfunction()

# flash_targets_of(variable suffix NAME...): the targets NN_name<suffix> of these rungs: "_kernel", "_observed_kernel".
function(flash_targets_of variable suffix)
  get_property(cpu_rungs GLOBAL PROPERTY FLASH_CPU_RUNGS)
  get_property(cuda_rungs GLOBAL PROPERTY FLASH_CUDA_RUNGS)
  set(targets "")
  foreach(name IN LISTS ARGN)
    set(found ${cpu_rungs} ${cuda_rungs})
    list(FILTER found INCLUDE REGEX "^[0-9][0-9][a-z]?_${name}$")
    if(NOT found)
      message(FATAL_ERROR "this build has no rung ${name}")
    endif()
    list(APPEND targets ${found}${suffix})
  endforeach()
  set(${variable} ${targets} PARENT_SCOPE)
endfunction()

# flash_add_rung(NN_name types head_dims capability): the program NN_name and its conformance test test_NN_name, from
# the folder steps/NN_name. Both are the same object files, of main.cpp and of NN_name_kernel (everything else); the
# program links the command line, the test links the conformance suite, and each of these defines rung_main.
# A rung with a compute capability is a CUDA rung: the backend decides how its .cu file is built.
function(flash_add_rung name types head_dims capability needs)
  set(folder ${CMAKE_CURRENT_SOURCE_DIR}/${name})
  file(GLOB sources CONFIGURE_DEPENDS ${folder}/*.cpp)
  file(GLOB kernels CONFIGURE_DEPENDS ${folder}/*.cu)
  if(NOT sources AND NOT kernels)
    message(FATAL_ERROR "the ladder names ${name}, but there is no .cpp or .cu file in ${folder}")
  endif()
  set(cuda FALSE)
  if(NOT capability STREQUAL "-")
    set(cuda TRUE)
  endif()
  if((cuda AND NOT kernels) OR (kernels AND NOT cuda))
    message(FATAL_ERROR "${name}: a rung with a .cu file, and no other, has a compute capability in the ladder")
  endif()

  if(cuda AND FLASH_BACKEND STREQUAL "cpu")
    set(reason "needs the simt or cuda backend")
    message(STATUS "left out: ${name} ${reason}")
    set_property(GLOBAL APPEND_STRING PROPERTY FLASH_RUNGS "${name}\tleft out\t${reason}\n")
    return()
  endif()

  if(needs AND NOT TARGET flash_processes)
    get_property(reason GLOBAL PROPERTY FLASH_NO_PROCESSES)
    message(STATUS "left out: ${name} ${reason}")
    set_property(GLOBAL APPEND_STRING PROPERTY FLASH_RUNGS "${name}\tleft out\t${reason}\n")
    return()
  endif()

  set(kernel_sources ${sources} ${kernels})
  list(REMOVE_ITEM kernel_sources ${folder}/main.cpp)
  add_library(${name}_kernel OBJECT ${kernel_sources})
  add_library(${name}_main OBJECT ${folder}/main.cpp)
  target_link_libraries(${name}_main PUBLIC flash_harness flash_reference)
  if(cuda)
    set_property(GLOBAL APPEND PROPERTY FLASH_CUDA_RUNGS ${name})
    target_link_libraries(${name}_kernel PUBLIC flash_device)
    target_link_libraries(${name}_main PUBLIC flash_device_backend)
    if(needs)
      target_link_libraries(${name}_main PUBLIC flash_processes)
    endif()
  else()
    set_property(GLOBAL APPEND PROPERTY FLASH_CPU_RUNGS ${name})
    target_link_libraries(${name}_kernel PUBLIC flash_cpu)
    target_link_libraries(${name}_main PUBLIC flash_cpu) # the rung's header may show Eigen's matrices
  endif()
  if(cuda AND FLASH_BACKEND STREQUAL "simt")
    flash_compile_as_cpp(${kernels})
    # nvcc makes a product and a sum one instruction with one rounding. With these options g++ does, too, so that a kernel
    # which cannot bear that fails here as well.
    # -O1: two seconds less to compile, less than one more to run.
    target_compile_options(${name}_kernel PRIVATE -O1 -ffp-contract=fast
                           $<$<CXX_COMPILER_ID:GNU>:-fexpensive-optimizations>)
  elseif(cuda AND capability STREQUAL "9.0")
    set_property(TARGET ${name}_kernel PROPERTY CUDA_ARCHITECTURES 90a-real) # wgmma exists in this code alone
  endif()

  add_executable(${name})
  target_link_libraries(${name} PRIVATE ${name}_main ${name}_kernel flash_cli)
  add_dependencies(rungs ${name})
  set_property(GLOBAL APPEND_STRING PROPERTY FLASH_RUNGS "${name}\tbuilt\t$<TARGET_FILE:${name}>\n")

  add_executable(test_${name})
  target_link_libraries(test_${name} PRIVATE ${name}_main ${name}_kernel flash_conformance)
  if(FLASH_SANITIZE)
    # Sanitized products are tens of times slower, and which memory is touched depends on the shape alone: the short list,
    # whose tiles are cut short, and tiles that fit.
    flash_add_cases("${name}: short suite" test_${name} SHORT LABELS ${name}
                    SPEC "[schedules],detect: normal 64x128,detect: normal 1x1")
  else()
    flash_add_cases("${name}: suite" test_${name} LABELS ${name} PROPERTIES COST 20) # long, so not the last of a first run
    if(NOT cuda OR FLASH_BACKEND STREQUAL "cuda") # on the SIMT backend the watched twin below
      flash_add_cases("${name}: short suite" test_${name} SPEC "[detect]" SHORT LABELS ${name})
    endif()
  endif()
  add_test(NAME "${name}: runs its own kernel" COMMAND ${CMAKE_COMMAND} -DNM=${CMAKE_NM} -DRUNG=${name}
           -DPROGRAM=$<TARGET_FILE:test_${name}> -DLADDER=${CMAKE_CURRENT_SOURCE_DIR}/ladder.txt
           -P ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/OwnKernel.cmake)

  flash_name_of_rung(short_name ${name})
  # The manifest repeats what main.cpp and the rung's header say; the program's own help must agree.
  string(REPLACE " " ",[ \n]+" types "${types}")
  string(REGEX REPLACE "/[0-9]+" "" head_dims "${head_dims}") # those of Q and K
  string(REPLACE " " ",[ \n]+" head_dims "${head_dims}")
  add_test(NAME "${name}: is what the ladder says" COMMAND ${name} --help)
  set_tests_properties("${name}: is what the ladder says" PROPERTIES PASS_REGULAR_EXPRESSION
    "Usage: ${short_name} .*one head:[ \n]+${head_dims}[ \n]+[(].*Q, K, V and O:[ \n]+${types}[ \n]+[(]")

  if(cuda AND FLASH_BACKEND STREQUAL "simt")
    flash_add_observed_twins(${name} ${capability} ${kernel_sources})
  endif()
endfunction()

# flash_compile_as_cpp(FILE.cu ...): by g++, which takes an unknown ending for a linker script; -x names the language.
function(flash_compile_as_cpp)
  set_source_files_properties(${ARGV} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS "-x;c++")
endfunction()

# flash_add_recorded(NAME NN_name SOURCE...): NAME_recorded is a rung's program with this kernel, which tells every
# branch as well: ./scripts/watch records it.
function(flash_add_recorded name rung)
  add_library(${name}_recorded_kernel OBJECT EXCLUDE_FROM_ALL ${ARGN})
  target_link_libraries(${name}_recorded_kernel PUBLIC flash_device)
  flash_observe(${name}_recorded_kernel)
  target_compile_options(${name}_recorded_kernel PRIVATE -g -fsanitize-coverage=trace-pc)
  add_executable(${name}_recorded EXCLUDE_FROM_ALL)
  target_link_libraries(${name}_recorded PRIVATE ${rung}_main ${name}_recorded_kernel flash_cli)
endfunction()

# flash_add_observed_twins(NN_name capability SOURCE...): program and test of a rung again, with kernels that are compiled to
# be watched. NN_name hands over to NN_name_observed for --profile and --detect. Under test_NN_name_observed runs the
# suite's list for detectors, and the shorter one in three more schedules. Where copies are asynchronous they land early
# and late, and there are more schedules: in the last of them one thread runs only when no other can. A block may have as
# much shared memory as on an A100 (163 KiB), an RTX 3090 or 4090 (99) and an H100 (227): tiles must fit each, and may
# depend on it.
function(flash_add_observed_twins name capability)
  add_library(${name}_observed_kernel OBJECT ${ARGN})
  target_link_libraries(${name}_observed_kernel PUBLIC flash_device)
  flash_observe(${name}_observed_kernel)

  add_executable(${name}_observed)
  target_link_libraries(${name}_observed PRIVATE ${name}_main ${name}_observed_kernel flash_cli)
  add_dependencies(${name} ${name}_observed)

  flash_add_recorded(${name} ${name} ${ARGN})

  add_executable(test_${name}_observed)
  target_link_libraries(test_${name}_observed PRIVATE ${name}_main ${name}_observed_kernel flash_conformance)
  set(runs in-order,late,163 reverse,early,99 ahead:1,late,227 shuffle:1,early,99)
  list(FILTER ARGN INCLUDE REGEX "[.]cu$")
  file(STRINGS ${ARGN} copies ENCODING UTF-8 REGEX "cp_async_")
  if(capability STREQUAL "9.0") # Hopper, whose blocks have 227 KiB and whose copies are asynchronous
    set(runs in-order,late,227 reverse,early,227 ahead:1,late,227 shuffle:1,early,227 starve:133,early,227)
  elseif(copies) # late and early landings, in two schedules of each kind
    list(APPEND runs ahead:3,early,163 shuffle:2,late,227 starve:37,early,163)
  endif()
  set(list SPEC "[detect]" SHORT) # the first run checks results and races at once; the others are about the order alone
  foreach(run IN LISTS runs)
    string(REPLACE "," ";" run "${run}")
    list(GET run 0 schedule)
    list(GET run 1 landing)
    list(GET run 2 kib)
    flash_add_cases("${name}: detect, schedule ${schedule}, copies land ${landing}, ${kib} KiB a block"
                    test_${name}_observed ${list} LABELS detect
                    PROPERTIES ENVIRONMENT "FLASH_SIMT_DETECT=1;FLASH_SIMT_STRICT=1;OMP_WAIT_POLICY=passive;\
FLASH_SIMT_SCHEDULE=${schedule};FLASH_SIMT_CP_ASYNC=${landing};FLASH_SIMT_SHARED_KIB=${kib}")
    set(list SPEC "[schedules]")
  endforeach()
endfunction()

# flash_add_headers(target suffix RUNG...): the headers that kernels (suffix _kernel) or main.cpp (_main) of these rungs
# include, compiled once for all: a second or two less for each.
function(flash_add_headers target suffix)
  set(headers "")
  foreach(rung IN LISTS ARGN)
    get_target_property(sources ${rung}${suffix} SOURCES)
    foreach(source IN LISTS sources)
      file(STRINGS ${source} includes ENCODING UTF-8 REGEX "^#include \"(common|reference)/")
      list(TRANSFORM includes REPLACE "#include \"(.*)\".*" "${FLASH_ROOT}/\\1")
      list(APPEND headers ${includes})
    endforeach()
  endforeach()
  list(REMOVE_DUPLICATES headers)
  file(TOUCH ${CMAKE_CURRENT_BINARY_DIR}/${target}.cpp)
  add_library(${target} OBJECT EXCLUDE_FROM_ALL ${CMAKE_CURRENT_BINARY_DIR}/${target}.cpp)
  target_precompile_headers(${target} PRIVATE ${headers})
endfunction()

# rungs.tsv in the build folder: name, "built" or "left out", and the program or the reason. scripts/ read it.
function(flash_write_rung_list)
  get_property(rungs GLOBAL PROPERTY FLASH_RUNGS)
  file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/rungs.tsv CONTENT "${rungs}")
endfunction()
