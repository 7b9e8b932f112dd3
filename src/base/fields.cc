#include "rlx/base/fields.h"

namespace rlx {

template struct MemberTypeOf<bool>;
template struct MemberTypeOf<int64_t>;
template struct MemberTypeOf<double>;
template struct MemberTypeOf<std::string>;
template struct MemberTypeOf<Ints>;
template struct MemberTypeOf<std::vector<double>>;
template struct MemberTypeOf<std::optional<int64_t>>;
template struct MemberTypeOf<std::optional<double>>;

uint64_t Attrs::hash() const {
  uint64_t h = 0;
  for (const FieldInfo& f : fields()) h = mix(h, f.hash(data()));
  return h;
}

bool operator==(const Attrs& a, const Attrs& b) {
  if (a.type_ != b.type_) return false;
  if (a.data_ == b.data_) return true;
  for (const FieldInfo& f : a.fields())
    if (!f.equal(a.data(), b.data())) return false;
  return true;
}

}  // namespace rlx
