# Installs the build into a fresh prefix and builds the consumer against it, once with find_package and once with
# pkg-config. In: build, generator, compiler, libdir, pkg_config.
set(work ${build}/consumer)
set(prefix ${work}/prefix)
file(REMOVE_RECURSE ${work})

function(must_run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "${command}\n${output}")
  endif()
endfunction()

must_run(${CMAKE_COMMAND} --install ${build} --prefix ${prefix})

must_run(${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR} -B ${work}/cmake -G ${generator}
  -D CMAKE_CXX_COMPILER=${compiler} -D CMAKE_PREFIX_PATH=${prefix})
must_run(${CMAKE_COMMAND} --build ${work}/cmake)
must_run(${work}/cmake/consumer)
message(STATUS "find_package: built and ran")

set(ENV{PKG_CONFIG_PATH} ${prefix}/${libdir}/pkgconfig)
execute_process(COMMAND ${pkg_config} --cflags --libs rlx OUTPUT_VARIABLE flags COMMAND_ERROR_IS_FATAL ANY)
separate_arguments(flags UNIX_COMMAND "${flags}")
must_run(${compiler} -std=c++20 ${CMAKE_CURRENT_LIST_DIR}/main.cc -o ${work}/consumer ${flags})
must_run(${work}/consumer)
message(STATUS "pkg-config: built and ran")
