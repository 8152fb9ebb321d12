# A ring's program as mpirun starts it. A process that waits yields, because there may be fewer cores than processes, and
# Open MPI wants to be told that root may use it.
if(TARGET 54_ring_attention AND MPIEXEC_EXECUTABLE)
  set(environment OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
                  PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe OMP_WAIT_POLICY=passive OMP_NUM_THREADS=1
                  NCCL_MULTI_RANK_GPU_ENABLE=1) # so that NCCL can be tried where there is one GPU
  set(program $<TARGET_FILE:54_ring_attention>)
  set(run "${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG}")

  # flash_add_mpirun_test(NAME "shell command" SECONDS): passes when the command does.
  function(flash_add_mpirun_test name command seconds)
    add_test(NAME "ring: ${name}" COMMAND bash -c "${command}")
    set_tests_properties("ring: ${name}" PROPERTIES TIMEOUT ${seconds} LABELS ring ENVIRONMENT "${environment}"
                         PROCESSORS 2 SKIP_REGULAR_EXPRESSION "ncclCommInitRank failed: invalid usage")
  endfunction()

  set(grouped "--heads 4 --kv-heads 2")
  flash_add_mpirun_test("2 processes, full" "${run} 2 ${program} --q-len 300 ${grouped}" 120)
  flash_add_mpirun_test("2 processes, causal" "${run} 2 ${program} --q-len 301 --causal --dtype bf16" 120)
  flash_add_mpirun_test("4 processes, full" "${run} 4 ${program} --q-len 129 --batch 2 --head-dim 128" 120)
  flash_add_mpirun_test("4 processes, causal" "${run} 4 ${program} --q-len 391 --causal ${grouped}" 120)
  flash_add_mpirun_test("3 processes, fewer rows than chunks" "${run} 3 ${program} --q-len 4 --causal" 120)
  set(file ${FLASH_ROOT}/reference/golden/outliers.safetensors)
  flash_add_mpirun_test("3 processes, from a file" "${run} 3 ${program} --input ${file}" 120)
  set(same "--q-len 301 --causal ${grouped} --output")
  flash_add_mpirun_test("the same bits in 3 processes and in one" "folder=\$(mktemp -d); trap 'rm -r $folder' EXIT; \
${run} 3 ${program} ${same} $folder/a && ${program} --ranks 3 ${same} $folder/b && cmp $folder/a $folder/b" 120)
  flash_add_mpirun_test("3 processes, the heads in 3 portions" "${run} 3 ${program} --q-len 130 --batch 2 --causal ${grouped} \
--portions 3" 120)
  flash_add_mpirun_test("a benchmark" "${run} 2 ${program} --q-len 100 --repetitions 3 --json" 120)

  # One message, and an end.
  set(fails "output=\$(${run} 2 ${program}")
  set(once "2>&1); code=\$?; echo \"$output\"; [[ $code -ne 0 && $(grep -c '^ring_attention: ' <<<\"$output\") -eq 1 ]]")
  flash_add_mpirun_test("a bad option" "${fails} --q-len abc ${once}" 30)
  flash_add_mpirun_test("more keys than queries" "${fails} --q-len 8 --kv-len 9 ${once}" 30)
  flash_add_mpirun_test("mpirun and --ranks" "${fails} --ranks 2 ${once}" 30)
  flash_add_mpirun_test("more portions than K/V heads" "${fails} ${grouped} --portions 3 ${once}" 30)

  # This one would take minutes. Its second process goes another way; "a : b" would be shorter, but mpirun 5.0.7 crashes on it.
  set(long "exec ${program} --q-len 40000 --no-check")
  set(second "[[ \${OMPI_COMM_WORLD_RANK:-$PMI_RANK} == 1 ]]")
  set(dies "(${second} && sleep 2 && echo killed && kill -9 $$) & ${long}")
  flash_add_mpirun_test("a process that dies ends the others" "output=\$(${run} 2 bash -c '${dies}' 2>&1); code=\$?; \
echo \"$output\"; [[ $code -ne 0 && $output == *killed* ]]" 30)
  if(FLASH_BACKEND STREQUAL "simt") # the second process has too little memory for a block's stacks
    set(starves "! ${second} || ulimit -v 800000; ${long}")
    flash_add_mpirun_test("a process that fails ends the others" "output=\$(${run} 2 bash -c '${starves}' ${once}" 30)
  endif()
endif()
