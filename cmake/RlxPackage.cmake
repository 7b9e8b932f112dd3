# What is installed: librlx.a (the objects of all folders but cli), the public headers, the CMake package with the
# target rlx::rlx, and the pkg-config file.
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/rlx)

# The version header belongs to base's root, so every folder may include "rlx/version.h".
configure_file(cmake/version.h.in ${PROJECT_BINARY_DIR}/roots/rlx_base/rlx/version.h @ONLY)

set(objects "")
set(roots "")
foreach(folder ${RLX_INSTALLED_FOLDERS})
  rlx_target_name(${folder} target)
  get_target_property(type ${target} TYPE)
  if(NOT type STREQUAL INTERFACE_LIBRARY)
    list(APPEND objects $<TARGET_OBJECTS:${target}>)
  endif()
  list(APPEND roots $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/roots/${target}>)
endforeach()

if(objects)
  add_library(rlx_all STATIC ${objects})
  add_library(rlx::rlx ALIAS rlx_all)
  set_target_properties(rlx_all PROPERTIES OUTPUT_NAME rlx EXPORT_NAME rlx LINKER_LANGUAGE CXX)
  target_compile_features(rlx_all PUBLIC cxx_std_20)
  target_include_directories(rlx_all PUBLIC
    ${roots} $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(rlx_all PUBLIC fmt::fmt Threads::Threads PRIVATE OpenMP::OpenMP_CXX)
  if(RLX_CPU)
    target_link_libraries(rlx_all PRIVATE rlx::llvm rlx::dnnl ${CMAKE_DL_LIBS})
  endif()
  install(TARGETS rlx_all EXPORT rlxTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(EXPORT rlxTargets NAMESPACE rlx:: DESTINATION ${package_dir})
endif()

foreach(folder ${RLX_PUBLIC_FOLDERS})
  install(DIRECTORY src/${folder}/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/rlx/${folder}
    FILES_MATCHING PATTERN "*.h")
endforeach()
install(DIRECTORY include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} OPTIONAL FILES_MATCHING PATTERN "*.h")
install(FILES ${PROJECT_BINARY_DIR}/roots/rlx_base/rlx/version.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/rlx)

configure_package_config_file(cmake/rlxConfig.cmake.in ${PROJECT_BINARY_DIR}/rlxConfig.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/rlxConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/rlxConfig.cmake ${PROJECT_BINARY_DIR}/rlxConfigVersion.cmake
  cmake/RlxDependencies.cmake DESTINATION ${package_dir})

# The pkg-config file names the libraries where this build found them.
set(RLX_PC_LIBS " ${OpenMP_CXX_FLAGS}")
if(RLX_CPU)
  foreach(library rlx::llvm rlx::dnnl)
    get_target_property(flags ${library} INTERFACE_LINK_LIBRARIES)
    string(APPEND RLX_PC_LIBS " ${flags}")
  endforeach()
endif()
file(RELATIVE_PATH RLX_PC_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" RLX_PC_PREFIX "${RLX_PC_PREFIX}")
configure_file(cmake/rlx.pc.in ${PROJECT_BINARY_DIR}/rlx.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/rlx.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
