# pip install of the project into a fresh environment, and a program that uses it from there.
# In: source, python, prebuilt (a build folder whose libraries are linked).
set(work ${prebuilt}/python-install)
function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE failed WORKING_DIRECTORY ${work})
  if(failed)
    list(JOIN ARGN " " text)
    message(FATAL_ERROR "failed: ${text}")
  endif()
endfunction()

file(REMOVE_RECURSE ${work}/venv)
file(MAKE_DIRECTORY ${work})
run(${python} -m venv ${work}/venv)
run(${work}/venv/bin/python -m pip install -q --disable-pip-version-check ${source}
  -C build-dir=${work}/build -C cmake.define.RLX_PREBUILT=${prebuilt})
run(${work}/venv/bin/python -c "
import pathlib, rlx
folder = pathlib.Path(rlx.__file__).parent
assert 'venv' in str(folder) and (folder / 'op.pyi').exists() and (folder / '__init__.pyi').exists() and (folder / 'py.typed').exists()
assert rlx.grad(lambda x: (x ** 2).sum())(rlx.array([1.0, 2.0])).tolist() == [2, 4]
print('rlx', rlx.__version__, 'with', len(rlx.ops()), 'ops')
")
