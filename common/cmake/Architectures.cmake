# flash_choose_architectures(nvcc): CMAKE_CUDA_ARCHITECTURES, unless -DCMAKE_CUDA_ARCHITECTURES or the environment's
# CUDAARCHS has said it already. For the GPUs of this computer, as nvidia-smi names them; for 80 and 90, which the ladder
# is written for, where there is none. Stops where all GPUs are older than 8.0.
#
# CMake's own "native" asks the GPU too, but has no answer when the GPU is newer than nvcc or hidden at that moment.
function(flash_choose_architectures nvcc)
  if(DEFINED CMAKE_CUDA_ARCHITECTURES OR DEFINED ENV{CUDAARCHS})
    return()
  endif()
  execute_process(COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader TIMEOUT 60
                  OUTPUT_VARIABLE answer ERROR_QUIET RESULT_VARIABLE failed)
  string(REGEX MATCHALL "[0-9]+\\.[0-9]" capabilities "${answer}")
  list(REMOVE_DUPLICATES capabilities)
  if(failed OR NOT capabilities)
    message(STATUS "flash-steps: nvidia-smi finds no GPU; building for compute capability 8.0 and 9.0")
    set(CMAKE_CUDA_ARCHITECTURES 80 90 CACHE STRING "GPU architectures to compile for")
    return()
  endif()

  # "compute_80 compute_86 ...", what this nvcc can compile for; empty when another compiler was chosen
  execute_process(COMMAND ${nvcc} --list-gpu-arch OUTPUT_VARIABLE known ERROR_QUIET RESULT_VARIABLE failed)
  string(REGEX MATCHALL "compute_[0-9]+" known "${known}")
  list(TRANSFORM known REPLACE "compute_" "")

  set(architectures "")
  foreach(capability IN LISTS capabilities)
    string(REPLACE "." "" gpu ${capability})
    if(gpu LESS 80)
      continue()
    endif()
    set(newest "") # that nvcc knows and the GPU can run
    foreach(one IN LISTS known)
      if(NOT one GREATER gpu AND (newest STREQUAL "" OR one GREATER newest))
        set(newest ${one})
      endif()
    endforeach()
    math(EXPR generation "${gpu} / 10")
    if(newest STREQUAL "")
      set(newest ${gpu}) # leave the complaint to the compiler
    elseif(NOT newest MATCHES "^${generation}[0-9]$")
      # Machine code of another generation does not run. PTX does: the driver compiles it when the program first starts.
      message(STATUS "flash-steps: this nvcc does not know compute capability ${capability}; building PTX for "
                     "compute_${newest}, which the driver compiles. A newer CUDA Toolkit makes code for this GPU")
      set(newest ${newest}-virtual)
    endif()
    list(APPEND architectures ${newest})
  endforeach()
  if(NOT architectures)
    list(JOIN capabilities ", " capabilities)
    message(FATAL_ERROR "The GPU here has compute capability ${capabilities}; the CUDA rungs need 8.0 or newer.\n"
                        "The same kernels run on the CPU: cmake --preset simt\n"
                        "To build for another computer's GPU: cmake --preset cuda -DCMAKE_CUDA_ARCHITECTURES=80")
  endif()
  list(REMOVE_DUPLICATES architectures)
  set(CMAKE_CUDA_ARCHITECTURES ${architectures} CACHE STRING "GPU architectures to compile for")
endfunction()
