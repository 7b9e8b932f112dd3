# A folder of src/ as a target.
#
#   rlx_library(ops DEPS ir)
#
# makes the static library rlx_ops (rlx_backend_cpu for backend/cpu) from all sources in the folder. Its headers are
# included as "rlx/ops/name.h": the target's one include directory is a root in the build tree with a link
# rlx/ops -> src/ops, so only the headers of declared dependencies resolve. A folder without sources gives a target
# with headers and dependencies only.
find_package(nlohmann_json CONFIG REQUIRED)
set(RLX_FOLDERS "")            # all folders, in the order of the table
set(RLX_INSTALLED_FOLDERS "")  # those whose objects go into librlx.a
set(RLX_PUBLIC_FOLDERS "")     # those whose headers are installed

function(rlx_target_name folder result)
  string(REPLACE "/" "_" name rlx_${folder})
  set(${result} ${name} PARENT_SCOPE)
endfunction()

# What all targets with sources share. With RLX_UNITY the compiler gets six files of a folder at a time: they share
# headers and templates, so a build takes half the time. Names in unnamed namespaces must differ within a folder, then.
function(rlx_target_defaults target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${RLX_UNITY} UNITY_BUILD_BATCH_SIZE 6)
  if(RLX_PCH)
    target_precompile_headers(${target} REUSE_FROM rlx_precompiled)
  endif()
endfunction()

if(RLX_PCH)
  add_compile_options($<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)  # for ccache
  file(WRITE ${PROJECT_BINARY_DIR}/precompiled.cc "")
  add_library(rlx_precompiled OBJECT ${PROJECT_BINARY_DIR}/precompiled.cc)
  target_link_libraries(rlx_precompiled PRIVATE fmt::fmt Threads::Threads)
  target_precompile_headers(rlx_precompiled PRIVATE
    <algorithm> <array> <cmath> <cstdint> <cstring> <functional> <map> <memory> <numeric> <optional> <span> <string>
    <string_view> <tuple> <unordered_map> <utility> <variant> <vector> <fmt/format.h>)
endif()

function(rlx_library folder)
  cmake_parse_arguments(PARSE_ARGV 1 arg "PRIVATE_HEADERS;NOT_INSTALLED" "" "DEPS")
  rlx_target_name(${folder} target)
  set(source_dir ${PROJECT_SOURCE_DIR}/src/${folder})
  set(root ${PROJECT_BINARY_DIR}/roots/${target})
  get_filename_component(parent ${root}/rlx/${folder} DIRECTORY)
  file(MAKE_DIRECTORY ${parent})
  file(CREATE_LINK ${source_dir} ${root}/rlx/${folder} SYMBOLIC)

  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${source_dir}/*.cc)
  list(FILTER sources EXCLUDE REGEX "/cli/main\\.cc$")
  set(scope INTERFACE)
  if(sources AND NOT RLX_PREBUILT)
    set(scope PUBLIC)
    add_library(${target} STATIC ${sources})
    rlx_target_defaults(${target})
  else()
    add_library(${target} INTERFACE)
    if(sources)  # compiled by the build in RLX_PREBUILT
      add_library(${target}_prebuilt STATIC IMPORTED GLOBAL)
      set_target_properties(${target}_prebuilt PROPERTIES IMPORTED_LOCATION ${RLX_PREBUILT}/lib${target}.a)
      target_link_libraries(${target} INTERFACE ${target}_prebuilt)
    endif()
  endif()
  target_include_directories(${target} ${scope} ${root})
  foreach(dep ${arg_DEPS})
    rlx_target_name(${dep} dep_target)
    target_link_libraries(${target} ${scope} ${dep_target})
    if(TARGET ${target}_prebuilt)
      target_link_libraries(${target}_prebuilt INTERFACE ${dep_target})
    endif()
  endforeach()

  set(RLX_FOLDERS ${RLX_FOLDERS} ${folder} PARENT_SCOPE)
  if(NOT arg_NOT_INSTALLED)
    set(RLX_INSTALLED_FOLDERS ${RLX_INSTALLED_FOLDERS} ${folder} PARENT_SCOPE)
  endif()
  if(NOT arg_PRIVATE_HEADERS)
    set(RLX_PUBLIC_FOLDERS ${RLX_PUBLIC_FOLDERS} ${folder} PARENT_SCOPE)
  endif()
endfunction()

# rlx_link(folder PUBLIC|PRIVATE|INTERFACE library...): what a folder links besides its DEPS.
function(rlx_link folder scope)
  rlx_target_name(${folder} target)
  get_target_property(type ${target} TYPE)
  if(TARGET ${target}_prebuilt)
    set(target ${target}_prebuilt)
    set(scope INTERFACE)
  elseif(type STREQUAL INTERFACE_LIBRARY)
    if(scope STREQUAL PRIVATE)
      return()  # nothing to compile
    endif()
    set(scope INTERFACE)
  endif()
  target_link_libraries(${target} ${scope} ${ARGN})
endfunction()

# rlx_define(folder NAME...): macros that only the folder's own sources see.
function(rlx_define folder)
  rlx_target_name(${folder} target)
  get_target_property(type ${target} TYPE)
  if(NOT type STREQUAL INTERFACE_LIBRARY)
    target_compile_definitions(${target} PRIVATE ${ARGN})
  endif()
endfunction()

# rlx_instruction_set(isa bytes [ONLY ending] flag...): compiles each src/backend/cpu/kernels/**/<name>_impl.h for one
# instruction set: <name>_<isa>.cc, made in the build folder, says how wide its vectors are and includes it. ONLY: those
# whose names have this ending.
function(rlx_instruction_set isa bytes)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "ONLY" "")
  if(NOT arg_ONLY)
    set(arg_ONLY _impl.h)
  endif()
  get_target_property(type rlx_backend_cpu TYPE)
  if(type STREQUAL INTERFACE_LIBRARY)
    return()  # nothing to compile
  endif()
  set(source_dir ${PROJECT_SOURCE_DIR}/src)
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS ${source_dir}/backend/cpu/kernels/*${arg_ONLY})
  foreach(header ${headers})
    file(RELATIVE_PATH path ${source_dir} ${header})
    string(REPLACE "_impl.h" "_${isa}.cc" source ${PROJECT_BINARY_DIR}/instruction_sets/${path})
    file(CONFIGURE OUTPUT ${source} CONTENT
"// Made by cmake/RlxLibrary.cmake.
namespace rlx::cpu {
[[maybe_unused]] constexpr int kVectorBytes = ${bytes};
}
#include \"rlx/${path}\"
")
    target_sources(rlx_backend_cpu PRIVATE ${source})
    set_source_files_properties(${source} PROPERTIES
      COMPILE_OPTIONS "${arg_UNPARSED_ARGUMENTS}" SKIP_PRECOMPILE_HEADERS ON SKIP_UNITY_BUILD_INCLUSION ON)
  endforeach()
endfunction()
