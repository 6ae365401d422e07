# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# cmake -P: versions as pkg-config tells them, and the layouts and PABIs that belong to them.
include(${CMAKE_CURRENT_LIST_DIR}/../../libibverbs-glue/layout.cmake)

foreach(row 1.12.34.0:34:34 1.13.35.1:35:34 1.14.36.0:36:34 1.14.39.0:36:34 1.14.44.0:36:34
    1.14.56.1:36:34 1.14.57.0:57:57 1.14.58.0:57:57 1.15.59.0:59:59 1.15.61.0:59:59
    1.16.62.0:62:59 1.16.63.0:62:59 1.17.64.0:64:64 1.18.65.0:65:65)
  string(REPLACE ":" ";" row ${row})
  list(GET row 0 version)
  list(GET row 1 layout)
  list(GET row 2 pabi)
  glue_layout_of_version(${version} found_layout)
  glue_pabi_of_layout(${layout} found_pabi)
  if(NOT found_layout EQUAL layout OR NOT found_pabi EQUAL pabi)
    message(SEND_ERROR "${version}: layout ${found_layout}, PABI ${found_pabi}")
  endif()
endforeach()

# Releases that nobody has looked at are refused, not guessed.
if(DEFINED VERSION)
  glue_layout_of_version(${VERSION} found_layout)
endif()
