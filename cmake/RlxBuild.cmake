# How everything is compiled: language, warnings, sanitizers, ccache.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

# Designated initialisers leave members at their defaults on purpose.
add_compile_options(-Wall -Wextra -Wno-missing-field-initializers)
if(RLX_WERROR)
  add_compile_options(-Werror)
endif()
# librlx.a also goes into Python modules. The same for programs, so that they can use the precompiled headers; no
# symbol of ours is ever replaced at load time, so calls may be inlined as usual.
add_compile_options(-fPIC $<$<CXX_COMPILER_ID:GNU>:-fno-semantic-interposition>)
# Messages and binaries name files from the project's root, wherever it lies.
add_compile_options(-ffile-prefix-map=${PROJECT_SOURCE_DIR}/=)
add_link_options(LINKER:--as-needed)
# A test program links in 0.2 s with LLVM's linker, in 1 s with binutils'.
find_program(RLX_LLD ld.lld HINTS /usr/lib/llvm-19/bin)
if(RLX_LLD)
  get_filename_component(lld_dir ${RLX_LLD} DIRECTORY)
  add_link_options(-fuse-ld=lld -B${lld_dir})
endif()
# GCC collects its garbage from 128 MiB on, which takes up to a fifth of its time; a file here needs 0.4 to 0.8 GiB.
add_compile_options($<$<CXX_COMPILER_ID:GNU>:--param=ggc-min-heapsize=524288>)

# GCC may give a function a cold part without an instruction in it. Its unwind entry then has the address of the next
# function's cold part, the linker's table keeps one of the two, and an exception that passes there ends the program.
if(NOT RLX_LINT)  # clang-tidy does not know the option
  add_compile_options($<$<CXX_COMPILER_ID:GNU>:-fno-reorder-blocks-and-partition>)
endif()

# Release builds are hardened: canaries on the stack, checked functions of the C library, programs at random addresses
# whose tables of functions are read-only once they run. tests/unit/hardening_test.cc reads it from their headers.
set(RLX_HARDENED OFF)
if(CMAKE_BUILD_TYPE STREQUAL "Release" AND NOT RLX_SANITIZE)
  set(RLX_HARDENED ON)
  add_compile_options(-fstack-protector-strong -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2)
  add_link_options(LINKER:-z,relro,-z,now $<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:-pie>)
endif()

if(RLX_SANITIZE)
  add_compile_options(-fsanitize=${RLX_SANITIZE} -fno-omit-frame-pointer)
  # GCC loses track of what is initialised in instrumented code.
  add_compile_options($<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  if(RLX_SANITIZE MATCHES undefined)
    add_compile_options(-fno-sanitize-recover=undefined)
  endif()
  add_link_options(-fsanitize=${RLX_SANITIZE})
endif()

find_program(RLX_CCACHE ccache)
if(RLX_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # The sloppiness is what ccache asks for to cache files that use a precompiled header; the base directory lets
  # checkouts share what they compile.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros
    CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${RLX_CCACHE})
endif()
