#include "rlx/cli/process_memory.h"

#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>

namespace rlx::cli {

namespace {

int64_t status_bytes(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(field + ":"))
      return std::strtoll(line.c_str() + field.size() + 1, nullptr, 10) * 1024;
  return 0;
}

}  // namespace

int64_t memory_limit() {
  const int64_t machine = int64_t{::sysconf(_SC_PHYS_PAGES)} * ::sysconf(_SC_PAGESIZE);
  std::ifstream group("/sys/fs/cgroup/memory.max");  // a number, or "max"
  int64_t limit = 0;
  return group >> limit && limit > 0 ? std::min(limit, machine) : machine;
}

int64_t resident_bytes() { return status_bytes("VmRSS"); }
int64_t peak_resident_bytes() { return status_bytes("VmHWM"); }

bool reset_peak_memory() {
  std::ofstream file("/proc/self/clear_refs");
  file << "5";
  file.flush();
  return file.good();
}

void release_free_memory() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

}  // namespace rlx::cli
