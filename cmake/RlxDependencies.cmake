# What RLX links, found the same way by its own build and, through the installed package, by those who use it.
# In: RLX_CPU. Makes fmt::fmt, Threads::Threads, OpenMP::OpenMP_CXX and, for the CPU backend,
# rlx::llvm, rlx::dnnl.
#
# LLVM and oneDNN are looked up by header and library: Debian's own package files for them ask for libraries that we
# do not use (OpenCL, libcurl, libedit).
include_guard()
find_package(fmt CONFIG REQUIRED)
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS CXX)

# rlx_find(target HEADER file LIBRARIES name... PACKAGE "names" [HINTS folder...]): the imported target rlx::target from
# a header and libraries, which a program links only when it uses them.
function(rlx_find target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "HEADER;PACKAGE" "LIBRARIES;HINTS")
  if(TARGET rlx::${target})
    return()
  endif()
  find_path(RLX_${target}_INCLUDE_DIR ${arg_HEADER} HINTS ${arg_HINTS} PATH_SUFFIXES include)
  set(paths "")
  foreach(library ${arg_LIBRARIES})
    find_library(RLX_${target}_${library} ${library} HINTS ${arg_HINTS} PATH_SUFFIXES lib)
    list(APPEND paths ${RLX_${target}_${library}})
    mark_as_advanced(RLX_${target}_${library})
  endforeach()
  mark_as_advanced(RLX_${target}_INCLUDE_DIR)
  if(NOT RLX_${target}_INCLUDE_DIR OR "${paths}" MATCHES "NOTFOUND")
    message(FATAL_ERROR "RLX: ${arg_HEADER} or one of the libraries ${arg_LIBRARIES} is missing. On Debian: "
      "apt-get install ${arg_PACKAGE}. Without the CPU backend: -DRLX_CPU=OFF.")
  endif()
  string(REPLACE ";" "," paths "${paths}")
  add_library(rlx::${target} INTERFACE IMPORTED GLOBAL)
  target_link_libraries(rlx::${target} INTERFACE "-Wl,--push-state,--as-needed,${paths},--pop-state")
  target_include_directories(rlx::${target} SYSTEM INTERFACE ${RLX_${target}_INCLUDE_DIR})
endfunction()

if(RLX_CPU)
  rlx_find(llvm HEADER llvm/ExecutionEngine/Orc/LLJIT.h LIBRARIES LLVM-19 HINTS /usr/lib/llvm-19
    PACKAGE llvm-19-dev)
  rlx_find(dnnl HEADER oneapi/dnnl/dnnl.hpp LIBRARIES dnnl PACKAGE libdnnl-dev)
endif()
