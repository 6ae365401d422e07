# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# From the version of libibverbs to the layout of its private ABI, and to the number that libibverbs
# itself gives that. What the layouts are is in layout.h.

set(GLUE_LAYOUTS 34 35 36 57 59 62 64 65)

# libibverbs calls itself 1.<public node>.<rdma-core release>, e.g. 1.14.44.0.
function(glue_layout_of_version version out)
  if(NOT version MATCHES "^1\\.[0-9]+\\.([0-9]+)")
    message(FATAL_ERROR "libibverbs ${version}: cannot tell the rdma-core release from that")
  endif()
  set(release ${CMAKE_MATCH_1})
  if(release LESS 34 OR release GREATER 65)
    message(FATAL_ERROR "rdma-core ${release}: its private ABI is not known here (34 to 65 are)")
  endif()
  foreach(layout ${GLUE_LAYOUTS})
    if(NOT release LESS layout)
      set(${out} ${layout} PARENT_SCOPE)
    endif()
  endforeach()
endfunction()

function(glue_pabi_of_layout layout out)
  if(layout LESS 57)
    set(pabi 34)
  elseif(layout EQUAL 62)
    set(pabi 59)
  else()
    set(pabi ${layout})
  endif()
  set(${out} ${pabi} PARENT_SCOPE)
endfunction()
