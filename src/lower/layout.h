// Layout: where the elements of a value lie, for all sizes its symbols may have: a View whose numbers are polynomials, without the place where
// it begins.
// Lowering walks a symbolic program once with layouts, to make the code of its regions, and once for each binding
// with views. What two polynomials do not show is not so: a dim that a symbol stands for is not 1.
#pragma once

#include "rlx/lower/lir.h"

namespace rlx {

struct Layout {
  DType dtype = DType::F32;
  Shape dims, strides;

  Dim elements() const { return dims.elements(); }
  bool is_dense() const;
  static Layout dense(const Type& type);
  static Layout of(const View& v);
};

// The views of views of lir.h; nullopt when only a copy will do for some sizes.
std::optional<Layout> view_reshape(const Layout& v, const Shape& dims);
Layout view_transpose(const Layout& v, const Ints& perm);
Layout view_slice(const Layout& v, const Ints& stride, const Shape& result);
Layout view_broadcast(const Layout& v, const Shape& dims);
Layout view_reverse(const Layout& v, const Ints& axes);

}  // namespace rlx
