#include "rlx/base/error.h"

#include "rlx/base/large_blocks.h"

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

Error::Error(ErrorKind kind, std::string code, std::string message) {
  std::string text = fmt::format("{} error [{}]: {}", name(kind), code, message);
  says_ = std::make_shared<const Says>(
      Says{kind, std::move(code), std::move(message), {}, std::move(text)});
}

const char* Error::what() const noexcept { return says_->text.c_str(); }

Error Error::at(const std::string& where) const {
  Error copy = *this;
  auto says = std::make_shared<Says>(*says_);
  if (says->where.empty()) says->where = where;
  says->text = fmt::format("{} error [{}] at {}: {}", name(kind()), code(), says->where, message());
  copy.says_ = std::move(says);
  return copy;
}

namespace {
// Made while there is memory.
const Error kOutOfMemory(ErrorKind::resource, "out-of-memory", "there is not enough memory");
}  // namespace

void raise_out_of_memory() {
  drop_kept_blocks();  // for the next attempt
  throw Error(kOutOfMemory);
}

void raise(ErrorKind kind, std::string_view code, std::string message) {
  throw Error(kind, std::string(code), std::move(message));
}
void raise(ErrorKind kind, std::string_view code, fmt::string_view format, fmt::format_args args) {
  raise(kind, code, fmt::vformat(format, args));
}

}  // namespace rlx
