# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# glue_add_front(): the shared library of front.c. The tests make others of other layouts.

# Version nodes without a symbol, for the loader: a program names the nodes that it needs and does
# not start where libibverbs.so.1, which is the front, has not defined them. Nodes of later releases
# are defined in advance, so that a newer libibverbs with its programs works behind this front.
function(glue_front_nodes pabi out)
  set(nodes "")
  foreach(minor RANGE 0 40)
    if(minor LESS 2 OR minor GREATER 4) # there never were 1.2, 1.3 and 1.4
      string(APPEND nodes "IBVERBS_1.${minor} { };\n")
    endif()
  endforeach()
  foreach(private RANGE 34 99)
    if(private EQUAL pabi)
      string(APPEND nodes
        "IBVERBS_PRIVATE_${private} { global: verbs_register_driver_${private}; };\n")
    else()
      string(APPEND nodes "IBVERBS_PRIVATE_${private} { };\n")
    endif()
  endforeach()
  string(APPEND nodes "RDMA_BOND_FRONT_1 { global: rdma_bond_front_drivers; local: *; };\n")
  set(${out} "${nodes}" PARENT_SCOPE)
endfunction()

# TARGET is built as FOLDER/libibverbs.so.1 with DT_NEEDED on REAL, an absolute path. What REAL is
# does not matter at link time: an empty library lends its name.
function(glue_add_front target layout real folder)
  glue_pabi_of_layout(${layout} pabi)
  glue_front_nodes(${pabi} nodes)
  set(map ${CMAKE_CURRENT_BINARY_DIR}/${target}.map)
  file(CONFIGURE OUTPUT ${map} CONTENT "${nodes}" @ONLY)
  set(empty ${CMAKE_CURRENT_BINARY_DIR}/${target}-empty.c)
  file(CONFIGURE OUTPUT ${empty} CONTENT "typedef int nothing;\n" @ONLY)

  add_library(${target}-real SHARED ${empty})
  set_target_properties(${target}-real PROPERTIES
    NO_SONAME ON
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/${target}-real)
  target_link_options(${target}-real PRIVATE "LINKER:-soname,${real}")

  add_library(${target} SHARED ${glue_SOURCE_FOLDER}/front.c)
  target_compile_definitions(${target} PRIVATE
    BOND_LAYOUT=${layout}
    FRONT_REAL_FILE="${real}"
    BOND_CONF_FILE="${BOND_CONF_FILE}"
    BOND_PROVIDER_FILE="${BOND_PROVIDER_FILE}")
  target_include_directories(${target} PRIVATE ${glue_SOURCE_FOLDER})
  set_target_properties(${target} PROPERTIES
    OUTPUT_NAME ibverbs
    SUFFIX .so.1
    NO_SONAME ON
    SKIP_BUILD_RPATH ON
    INSTALL_RPATH ""
    LIBRARY_OUTPUT_DIRECTORY ${folder}
    LINK_DEPENDS ${map})
  target_link_options(${target} PRIVATE
    LINKER:-soname,libibverbs.so.1
    LINKER:--version-script=${map})
  target_link_libraries(${target} PRIVATE
    -Wl,--push-state,--no-as-needed ${target}-real -Wl,--pop-state ${CMAKE_DL_LIBS})
  glue_no_sanitizer(${target})
  glue_no_sanitizer(${target}-real)
endfunction()

# A sanitizer's runtime must come first in a program, and these are loaded into programs without it.
function(glue_no_sanitizer target)
  foreach(property COMPILE_OPTIONS LINK_OPTIONS)
    get_target_property(options ${target} ${property})
    if(options)
      list(FILTER options EXCLUDE REGEX "^-fsanitize=")
      set_target_properties(${target} PROPERTIES ${property} "${options}")
    endif()
  endforeach()
endfunction()
