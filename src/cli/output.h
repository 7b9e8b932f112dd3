// What the tool says: results to standard output, progress and messages to standard error. Nothing
// else in this folder writes to either.
//
//   say("{} nodes\n", g.size());
//   note("rlx: warning: {}\n", e.message());
//
// Names, labels and messages come from files that nobody has looked at, so control characters other
// than line ends and tabs are escaped (base/printable.h) on their way out. say() raises
// Error(resource, "output") when standard output cannot be written; note() never does.
#pragma once

#include <fmt/format.h>

#include <string_view>

namespace rlx::cli {

void write_output(std::string_view text);
void write_message(std::string_view text);
void flush_output();
// Replaces the last line of a terminal.
void redraw_message(std::string_view line);

template <class... Args>
void say(fmt::format_string<Args...> format, Args&&... args) {
  write_output(fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void note(fmt::format_string<Args...> format, Args&&... args) {
  write_message(fmt::format(format, std::forward<Args>(args)...));
}

// Whether results that go to a file or folder of this name are to be said instead: for none, and for -.
inline bool is_standard_output(std::string_view name) { return name.empty() || name == "-"; }

// While it lives, a standard output that nobody reads any more is no reason to stop: what is said
// is dropped. For commands whose results are files.
class OutputIsOptional {
 public:
  OutputIsOptional();
  OutputIsOptional(const OutputIsOptional&) = delete;
  ~OutputIsOptional();

 private:
  void (*handler_)(int);
};

// Opens standard input, output and error where the parent closed them, so that no file of ours gets
// their numbers: reading and writing them fails as before. To be called first.
void keep_standard_descriptors();

}  // namespace rlx::cli
