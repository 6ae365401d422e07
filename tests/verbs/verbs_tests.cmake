# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#
# verbs_tests(NAME [RXE] [KIND plain|fake|bond] [SIZE quick|full] DEVICES ARG...
#             [RUNNER CMD...] [LABELS LABEL...] [MEMBERS ARG...] [LIKE ARG...]
#             [EXCLUDE PROGRAM...])
#
# Registers every program as test NAME/PROGRAM, run by RUNNER on DEVICES, for example
#   verbs_tests(fake KIND fake DEVICES -d a0 -D b0
#               RUNNER ${FAKE_BIN}/fake-run --devices a0,b0 --)
#   verbs_tests(bond KIND bond DEVICES -d bond0 -D bond0 -E RDMA_BOND_CONF=...
#               MEMBERS --members a0,a1 -E RDMA_BOND=off LIKE --like-a a2 --like-b b2
#               RUNNER ...)
#
# KIND: fake counts queues exactly; bond does too and refuses flags that it does not know; plain
# makes no promise. RXE: soft-RoCE, itself or as members: slow, and with the faults that README
# tells.

set(VERBS_PROGRAMS rw_model rw_model_messages rw_model_spread accounting selfqp errors devinfo channel srq notify peers fork
  wr_api cq_ex dlopen_verbs threads)

# Arguments of a program beside the devices, in the variable ${out}.
function(verbs_args out program kind rxe)
  set(args "")
  if(program STREQUAL "rw_model_messages")
    set(args --messages --atomics)
  elseif(program STREQUAL "rw_model_spread")
    set(args --messages --atomics --receives-apart --spread --depth 4 --arena 64m --max-len 1m)
  elseif(program STREQUAL "accounting" AND NOT kind STREQUAL "plain")
    set(args --exact)
  elseif(program STREQUAL "cq_ex" AND kind STREQUAL "bond")
    set(args --exact)
  endif()
  if(rxe)
    if(program MATCHES "^rw_model")
      list(APPEND args --max-len 1m --ops 5000)
    elseif(program STREQUAL "accounting")
      list(APPEND args --wrs 10000)
    elseif(program STREQUAL "errors")
      list(APPEND args --local-alone)
    elseif(program STREQUAL "wr_api" AND kind STREQUAL "plain")
      list(APPEND args --without inline_data,inline_data_list)
    endif()
  endif()
  set(${out} "${args}" PARENT_SCOPE)
endfunction()

function(verbs_tests name)
  cmake_parse_arguments(V "RXE" "KIND;SIZE" "RUNNER;DEVICES;LABELS;MEMBERS;LIKE;EXCLUDE" ${ARGN})
  if(NOT V_KIND)
    set(V_KIND plain)
  endif()
  foreach(program ${VERBS_PROGRAMS})
    if(program IN_LIST V_EXCLUDE)
      continue()
    endif()
    # ThreadSanitizer ends a forked child that starts threads.
    if(program STREQUAL "fork" AND BOND_SANITIZE MATCHES "thread")
      continue()
    endif()
    if(V_RXE AND program STREQUAL "cq_ex" AND V_KIND STREQUAL "plain")
      continue()
    endif()
    verbs_args(args ${program} ${V_KIND} ${V_RXE})
    set(devices ${V_DEVICES})
    if(program STREQUAL "devinfo")
      list(GET V_DEVICES 0 1 devices)
      list(APPEND devices ${V_MEMBERS})
    elseif(program STREQUAL "errors")
      list(APPEND args ${V_LIKE})
    elseif(program STREQUAL "fork" AND V_KIND STREQUAL "bond" AND NOT V_RXE)
      list(GET V_MEMBERS 1 members)
      string(REGEX REPLACE ".*," "" last ${members})
      list(APPEND args --limit 60 --carried "fake-ctl get ${last}.tx_bytes")
    endif()
    if(NOT V_SIZE STREQUAL "full")
      list(APPEND args --quick)
    endif()
    string(REGEX REPLACE "^rw_model_.*" "rw_model" target ${program})
    add_test(NAME ${name}/${program}
      COMMAND ${V_RUNNER} $<TARGET_FILE:${target}> ${devices} ${args})
    set_tests_properties(${name}/${program} PROPERTIES TIMEOUT 300 SKIP_RETURN_CODE 77
      LABELS "${V_LABELS}")
  endforeach()
endfunction()
