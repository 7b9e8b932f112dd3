# The Python extension: src/python becomes rlx/_core.so, in <build>/python/rlx beside links to the Python sources, so
# that PYTHONPATH=<build>/python imports it. Needs a Python with its headers and with the package nanobind.
#
#   cmake -DRLX_PYTHON=ON -DPython_EXECUTABLE=<venv>/bin/python ...
find_package(Python 3.10 REQUIRED COMPONENTS Interpreter Development.Module)
execute_process(COMMAND ${Python_EXECUTABLE} -m nanobind --cmake_dir
  OUTPUT_VARIABLE nanobind_ROOT OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE failed)
if(failed)
  message(FATAL_ERROR "RLX_PYTHON: ${Python_EXECUTABLE} has no package nanobind; pip install nanobind")
endif()
find_package(nanobind CONFIG REQUIRED)

set(root ${PROJECT_BINARY_DIR}/roots/rlx_python)
set(package ${PROJECT_BINARY_DIR}/python/rlx)
file(MAKE_DIRECTORY ${root}/rlx ${package})
file(CREATE_LINK ${PROJECT_SOURCE_DIR}/src/python ${root}/rlx/python SYMBOLIC)
file(GLOB python_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/python/rlx/*.py ${PROJECT_SOURCE_DIR}/python/rlx/py.typed)
foreach(source ${python_sources})
  get_filename_component(name ${source} NAME)
  file(CREATE_LINK ${source} ${package}/${name} SYMBOLIC)
endforeach()

# The table of GraphBuilder's methods, from its header.
set(builder_header ${PROJECT_SOURCE_DIR}/src/stages/builders/graph_builder.h)
set(builder_methods ${PROJECT_BINARY_DIR}/python_builder/builder_methods.inc)
add_custom_command(OUTPUT ${builder_methods}
  COMMAND ${Python_EXECUTABLE} ${PROJECT_SOURCE_DIR}/python/generate_builder.py ${builder_header} ${builder_methods}
  DEPENDS ${builder_header} ${PROJECT_SOURCE_DIR}/python/generate_builder.py VERBATIM)
add_custom_target(generated_tables DEPENDS ${builder_methods})
if(TARGET generated_headers)
  add_dependencies(generated_headers generated_tables)
endif()

file(GLOB extension_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/python/*.cc)
nanobind_add_module(rlx_python NB_STATIC NOMINSIZE ${extension_sources} ${builder_methods})
target_include_directories(rlx_python PRIVATE ${root} ${PROJECT_BINARY_DIR}/python_builder)
target_link_libraries(rlx_python PRIVATE rlx_models rlx_formats rlx_explain rlx_opt)
if(RLX_CPU)  # the device that tests run on
  target_link_libraries(rlx_python PRIVATE rlx_backend_hidden)
  target_compile_definitions(rlx_python PRIVATE RLX_CPU)
endif()
set_target_properties(rlx_python nanobind-static PROPERTIES UNITY_BUILD ${RLX_UNITY} UNITY_BUILD_BATCH_SIZE 0)
# Symbols of ours and of what we link stay ours: other extensions in the process may have the same ones.
target_link_options(rlx_python PRIVATE LINKER:--exclude-libs,ALL)
set_target_properties(rlx_python PROPERTIES OUTPUT_NAME _core LIBRARY_OUTPUT_DIRECTORY ${package})
# The stubs are written from the Python sources, too.
set_target_properties(rlx_python PROPERTIES LINK_DEPENDS "${python_sources};${PROJECT_SOURCE_DIR}/python/generate_stubs.py")
add_custom_command(TARGET rlx_python POST_BUILD
  COMMAND ${Python_EXECUTABLE} ${PROJECT_SOURCE_DIR}/python/generate_stubs.py ${package}
  COMMAND ${Python_EXECUTABLE} -m nanobind.stubgen -q -P -m _core -i ${package} -o ${package}/_core.pyi VERBATIM)

install(TARGETS rlx_python LIBRARY DESTINATION rlx COMPONENT python EXCLUDE_FROM_ALL)
install(FILES ${package}/op.pyi ${package}/__init__.pyi ${package}/_builder.pyi ${package}/_core.pyi DESTINATION rlx COMPONENT python EXCLUDE_FROM_ALL)
