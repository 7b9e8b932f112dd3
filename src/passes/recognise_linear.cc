// Products with weights whose rows were merged: [.., K] -> [rows, K] -> [rows, N] -> [.., N], as exporters write a layer that is
// linear in the last axis. What stands between is done on the rows as they lie, as in the programs of those who write matmul.
#include "rlx/ops/elementwise/elementwise.h"
#include "rlx/ops/linalg/linalg.h"
#include "rlx/ops/movement/movement.h"
#include "rlx/ops/rules.h"
#include "rlx/passes/recognise_rules.h"

namespace rlx {

namespace {

using namespace rule_words;

// z = x with its rows merged into one axis.
bool merges_rows(const Match& m) {
  return m.type(z).rank() == 2 && m.type(x).rank() > 2 && m.shape(x).back() == m.shape(z).back();
}

bool is_product_of_rows(const Match& m) {
  return merges_rows(m) && m.type(y).rank() == 2 && !m.get<MatmulAttrs>().transpose_a;
}

// x [.., N] is a product; z are its rows, and y lies along them.
bool is_bias_of_rows(const Match& m) {
  return merges_rows(m) && m.node(x).op == &op::matmul && m.type(y).rank() <= 1 &&
         m.type() == m.type(z) && m.single_use(z);
}

}  // namespace

RuleSet linear_recognisers() {
  return {
      {"linear-rows", pat(op::matmul, {pat(op::reshape, {x}).as(z), y}), is_product_of_rows,
       [](Builder& b, const Match& m) {
         return reshape_to(b, op::matmul(b, m[x], m[y], m.get<MatmulAttrs>()), m.type().shape);
       }},
      {"linear-bias", pat(op::add, {pat(op::reshape, {x}).as(z), y}), is_bias_of_rows,
       [](Builder& b, const Match& m) {
         return reshape_to(b, op::add(b, m[x], m[y]), m.type().shape);
       }},
  };
}

}  // namespace rlx
