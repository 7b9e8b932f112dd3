# Writes OUT, a header with a hash over FILES (separated by commas): what generates code is part of what cached code is
# known by (backend/cpu/code_cache.h).
string(REPLACE "," ";" files "${FILES}")
list(SORT files)
set(all "")
foreach(file ${files})
  file(SHA256 ${file} hash)
  get_filename_component(name ${file} NAME)
  string(APPEND all "${name} ${hash}\n")
endforeach()
string(SHA256 version "${all}")
file(WRITE ${OUT} "// Made by cmake/CodeVersion.cmake.\n#pragma once\n#define RLX_CODE_VERSION \"${version}\"\n")
