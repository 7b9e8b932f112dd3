#include "rlx/lower/kept_bytes.h"

#include "rlx/ops/core.h"

namespace rlx {

namespace {

// Attributes lie behind a pointer, and what an attribute holds besides (lists, dims, texts) mostly behind another.
constexpr int64_t kAttrs = 48, kField = 24;

template <class T>
int64_t list(const std::vector<T>& v) {
  return KeptBytes::allocated(v.capacity() * sizeof(T));
}

template <class T, uint32_t N>
int64_t list(const Few<T, N>& v) {
  return v.capacity() > N ? KeptBytes::allocated(v.capacity() * sizeof(T)) : 0;
}

}  // namespace

void KeptBytes::add(const Types& types) {
  total_ += list(types);
  for (const Type& t : types) total_ += list(t.shape);
}

void KeptBytes::add(const Attrs& attrs) {
  if (attrs.fields().empty() || !first_time(attrs.data())) return;
  total_ += kAttrs + kField * static_cast<int64_t>(attrs.fields().size());
  for (const NamedBody& body : bodies(attrs))
    if (first_time(&body.graph)) add(body.graph);
}

void KeptBytes::add(const Graph& g) {
  total_ += static_cast<int64_t>(sizeof(Graph)) + list(g.nodes) + list(g.outputs) + list(g.updates);
  for (const Node& n : g.nodes) {
    total_ += list(n.in);
    add(n.out);
    add(n.attrs);
    for (const SharedText* text : {&n.origin.label, &n.origin.pass})
      if (!text->empty() && first_time(&text->str()))
        total_ += allocated(sizeof(std::string) + 16), add(text->str());
    if (n.op == &op::constant)
      if (const Tensor& t = n.get<ConstantAttrs>().value; first_time(t.storage().get()))
        total_ += allocated(t.bytes());
  }
}

void KeptBytes::add(const View& v) { total_ += list(v.dims) + list(v.strides); }

void KeptBytes::add(const Program& p) {
  total_ += static_cast<int64_t>(sizeof(Program)) + list(p.steps) + list(p.chains) +
            list(p.buffers) + list(p.outputs) + list(p.constants) + list(p.packed) + list(p.joined);
  for (const Tensor& t : p.constants) skip(t);
  for (const View& v : p.outputs) add(v);
  for (const PackedWeight& w : p.packed) add(w.source), add(w.form);
  for (const JoinedWeight& w : p.joined)
    if (first_time(w.program.get())) add(*w.program);
  for (const Step& s : p.steps) {
    total_ += list(s.in) + list(s.out) + list(s.in_bytes) + list(s.out_bytes) + list(s.bodies);
    add(s.label);
    for (size_t i = 0; i < operand_count(s); ++i) add(operand_of(s, i));
    for (const auto& body : s.bodies)
      if (first_time(body.get())) add(*body);
    for (const StepKernel* k = s.kernel.get(); first_time(k);
         k = k->rest() ? k->rest()->kernel.get() : nullptr)
      total_ += k->kept_bytes();
  }
  add(p.graph);
}

}  // namespace rlx
