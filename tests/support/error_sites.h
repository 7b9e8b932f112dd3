// The places in C++ sources that raise an error, found in their text.
//
//   ErrorScan scan;
//   scan.add("rules.cc", "void f() { user_check(ok, \"axis-range\", \"axis {} of {}\", a, n); }");
//   scan.sites()[0];      // {"rules.cc", 1, "axis-range", "axis {} of {}"}
//
// A call raises when the function called is declared, in any of the texts, with a parameter of text named `code`: a new
// helper that takes a code is found without being listed. The code is the first string among the arguments that is
// one lower-case word, hyphens allowed; calls that pass a code on have none and are left out.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace rlx::testing {

struct ErrorSite {
  std::string file;
  int line;
  std::string code;
  std::string message;  // the format string; empty when the call has none
};

class ErrorScan {
 public:
  void add(const std::string& file, std::string_view source);
  std::vector<ErrorSite> sites() const;

 private:
  struct Source {
    std::string file, text;  // without comments
  };
  std::vector<Source> sources_;
  std::set<std::string> raising_;
};

// Whether `message` can come from the format string: its fixed parts occur in this order.
bool may_format_to(std::string_view format, std::string_view message);

}  // namespace rlx::testing
