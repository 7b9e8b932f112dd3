// The reference backend through the interface that the runtime sees.
#include <gtest/gtest.h>

#include "rlx/backend/reference/backend.h"
#include "rlx/compile/compile.h"
#include "rlx/ops/core.h"

namespace rlx {
namespace {

// y = log(x * w) and w <- w + x, both of n elements.
Graph program() {
  Builder b("f");
  const Type type{DType::F64, {Dim::symbol("n")}};
  const Value x = b.input("x", type), w = b.param("w", type);
  b.output(op::log(b, op::mul(b, x, w)));
  b.update("w", op::add(b, w, x));
  return b.finish();
}

std::string code_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.code();
  }
  return {};
}

TEST(ReferenceBackend, RunsAndUpdates) {
  const auto backend = reference::make_reference_backend();
  auto f = compile(program(), backend, {.dims = {{"n", 2}}});
  const double w[] = {1, 2}, x[] = {3, 4};
  double y[2];
  const std::byte* inputs[] = {reinterpret_cast<const std::byte*>(x)};
  std::byte* outputs[] = {reinterpret_cast<std::byte*>(y)};
  f->upload_param(0, w, sizeof w);
  f->run(inputs, outputs, {.profile = true});
  EXPECT_EQ(y[1], std::log(8.0));
  EXPECT_EQ(reinterpret_cast<const double*>(f->param(0).get())[1], 6);
  EXPECT_EQ(f->times().size(), 3u);
  auto other = f->clone();
  f->run(inputs, outputs, {});
  EXPECT_EQ(reinterpret_cast<const double*>(f->param(0).get())[1], 10);
  EXPECT_EQ(reinterpret_cast<const double*>(other->param(0).get())[1], 6);
}

TEST(ReferenceBackend, Refusals) {
  const auto backend = reference::make_reference_backend();
  EXPECT_EQ(code_of([&] { compile(program(), backend, {})->bind({}); }), "unbound-dim");
  auto f = compile(program(), backend, {.dims = {{"n", 1}}});
  const double w[] = {-1}, x[] = {1};
  double y[1];
  const std::byte* inputs[] = {reinterpret_cast<const std::byte*>(x)};
  std::byte* outputs[] = {reinterpret_cast<std::byte*>(y)};
  f->upload_param(0, w, sizeof w);
  EXPECT_EQ(code_of([&] { f->run(inputs, outputs, {.check_nan = true}); }), "nan");
  const std::atomic<bool> stop = true;
  EXPECT_EQ(code_of([&] { f->run(inputs, outputs, {.cancel = &stop}); }), "cancelled");
  EXPECT_EQ(*reinterpret_cast<const double*>(f->param(0).get()), -1);  // nothing was updated
}

}  // namespace
}  // namespace rlx
