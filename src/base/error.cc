#include "rlx/base/error.h"

namespace rlx {

std::string_view name(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::user:
      return "user";
    case ErrorKind::data:
      return "data";
    case ErrorKind::unsupported:
      return "unsupported";
    case ErrorKind::resource:
      return "resource";
    case ErrorKind::device:
      return "device";
    case ErrorKind::internal:
      return "internal";
  }
  return "?";
}

Error::Error(ErrorKind kind, std::string code, std::string message)
    : kind_(kind), code_(std::move(code)), message_(std::move(message)) {
  text_ = fmt::format("{} error [{}]: {}", name(kind_), code_, message_);
}

const char* Error::what() const noexcept { return text_.c_str(); }

Error Error::at(const std::string& where) const {
  Error copy = *this;
  copy.where_ = where_.empty() ? where : where_;
  copy.text_ = fmt::format("{} error [{}] at {}: {}", name(kind_), code_, copy.where_, message_);
  return copy;
}

void raise(ErrorKind kind, std::string_view code, std::string message) {
  throw Error(kind, std::string(code), std::move(message));
}
void raise(ErrorKind kind, std::string_view code, fmt::string_view format, fmt::format_args args) {
  raise(kind, code, fmt::vformat(format, args));
}

}  // namespace rlx
