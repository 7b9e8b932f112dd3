#include "rlx/ir/graph_bytes.h"

#include <algorithm>

#include "rlx/ir/builder.h"
#include "rlx/ir/verify.h"

namespace rlx {

namespace {

constexpr std::string_view kMagic = "RLXGRAPH";
constexpr size_t kHeaderBytes = 8 + 4 + 8, kChecksumBytes = 8;
constexpr uint64_t kSeed = 0x4850415247584c52ull;
constexpr int kMaxDepth = 64;

// ---- writing

class GraphWriter {
 public:
  GraphWriter(ByteWriter& w, const Graph& g) : w_(w), g_(g) {}

  void write() {
    w_.text(g_.name);
    write_ops();
    write_labels();
    w_.varint(g_.nodes.size());
    for (int32_t i = 0; i < g_.size(); ++i) write_node(i);
    w_.varint(g_.outputs.size());
    for (Value v : g_.outputs) write_value(v, g_.size());
    w_.varint(g_.updates.size());
    for (const Update& u : g_.updates) {
      w_.text(u.param);
      write_value(u.value, g_.size());
    }
  }

 private:
  void write_ops() {
    std::vector<const OpDef*> list;
    for (const Node& n : g_.nodes)
      if (ops_.emplace(n.op, list.size()).second) list.push_back(n.op);
    w_.varint(list.size());
    for (const OpDef* op : list) {
      w_.text(op->name);
      w_.varint(op->attr_type->fields.size());
      for (const FieldInfo& f : op->attr_type->fields) w_.text(f.name);
    }
  }

  void write_labels() {
    std::vector<std::string_view> list;
    for (const Node& n : g_.nodes)
      for (const SharedText* l : {&n.origin.label, &n.origin.pass})
        if (!l->empty() && labels_.emplace(l->str(), list.size() + 1).second)
          list.push_back(l->str());
    w_.varint(list.size());
    for (std::string_view label : list) w_.text(label);
  }

  void write_label(const SharedText& l) { w_.varint(l.empty() ? 0 : labels_.at(l)); }

  // Operands count backwards from the node.
  void write_value(Value v, int32_t from) {
    w_.varint(static_cast<uint64_t>(from - v.node));
    w_.varint(static_cast<uint64_t>(v.index));
  }

  void write_node(int32_t i) {
    const Node& n = g_.node(i);
    w_.varint(ops_.at(n.op));
    w_.varint(n.in.size());
    for (Value v : n.in) write_value(v, i);
    write_attributes(n.attrs);
    w_.varint(n.out.size());
    for (const Type& t : n.out) {
      Codec<DType>::write(w_, t.dtype);
      Codec<Shape>::write(w_, t.shape);
    }
    write_label(n.origin.label);
    write_label(n.origin.pass);
  }

  void write_attributes(const Attrs& attrs) {
    const std::shared_ptr<void> standard = attrs.type()->make();
    for (size_t i = 0; i < attrs.fields().size(); ++i) {
      const FieldInfo& f = attrs.fields()[i];
      if (f.equal(attrs.data(), standard.get())) continue;
      w_.varint(i + 1);
      f.write(w_, attrs.data());
    }
    w_.varint(0);
  }

  ByteWriter& w_;
  const Graph& g_;
  std::map<const OpDef*, size_t> ops_;
  std::map<std::string, size_t, std::less<>> labels_;
};

// ---- reading

class GraphReader {
 public:
  explicit GraphReader(ByteReader& r) : r_(r) {}

  Graph read() {
    if (++r_.depth > kMaxDepth)
      r_.error("graph-depth", "graphs are nested deeper than {}", kMaxDepth);
    Builder b{std::string(r_.text())};
    read_ops();
    read_labels();
    for (uint64_t n = r_.varint(), i = 0; i < n; ++i) read_node(b);
    Graph g = std::move(b.mutable_graph());
    for (uint64_t n = r_.varint(), i = 0; i < n; ++i) g.outputs.push_back(read_value(g));
    for (uint64_t n = r_.varint(), i = 0; i < n; ++i) {
      std::string param(r_.text());
      g.updates.push_back({std::move(param), read_value(g)});
    }
    --r_.depth;
    return g;
  }

 private:
  struct UsedOp {
    const OpDef* op;
    std::vector<const FieldInfo*> fields;
  };

  void read_ops() {
    for (uint64_t n = r_.varint(), i = 0; i < n; ++i) {
      const size_t start = r_.offset();
      const std::string_view name = r_.text();
      UsedOp used{r_.table->find(name, r_.version), {}};
      if (!used.op) r_.error_at(start, "graph-op", fmt::format("unknown op \"{}\"", name));
      for (uint64_t fields = r_.varint(), f = 0; f < fields; ++f)
        used.fields.push_back(field(*used.op));
      ops_.push_back(std::move(used));
    }
  }

  const FieldInfo* field(const OpDef& op) {
    const size_t start = r_.offset();
    const std::string_view name = r_.text();
    for (const FieldInfo& f : op.attr_type->fields)
      if (f.name == name) return &f;
    r_.error_at(start, "graph-attribute", fmt::format("{} has no attribute \"{}\"", op.name, name));
  }

  void read_labels() {
    labels_.emplace_back();
    for (uint64_t n = r_.varint(), i = 0; i < n; ++i) labels_.emplace_back(std::string(r_.text()));
  }

  const SharedText& label() {
    const uint64_t i = r_.varint();
    if (i >= labels_.size())
      r_.error("graph-label", "there is no label {}, the last is {}", i, labels_.size() - 1);
    return labels_[static_cast<size_t>(i)];
  }

  Value read_value(const Graph& g) {
    const size_t start = r_.offset();
    const uint64_t back = r_.varint(), index = r_.varint();
    const auto size = static_cast<uint64_t>(g.size());
    if (back == 0 || back > size)
      r_.error_at(start, "graph-operand",
                  fmt::format("an operand is {} nodes back, there are {}", back, size));
    const Node& n = g.nodes[static_cast<size_t>(size - back)];
    if (index >= n.out.size())
      r_.error_at(start, "graph-operand",
                  fmt::format("%{} ({}) has no result {}", size - back, n.op->name, index));
    return {static_cast<int32_t>(size - back), static_cast<int32_t>(index)};
  }

  Attrs attributes(const UsedOp& used) {
    std::shared_ptr<void> data = used.op->make_attrs(r_.version);
    std::vector<bool> seen(used.fields.size() + 1);
    while (const uint64_t i = r_.varint()) {
      if (i >= seen.size() || seen[static_cast<size_t>(i)])
        r_.error("graph-attribute", "{}: attribute {} is unknown or given twice", used.op->name, i);
      seen[static_cast<size_t>(i)] = true;
      used.fields[static_cast<size_t>(i - 1)]->load(r_, data.get());
    }
    return Attrs(used.op->attr_type, std::move(data));
  }

  Types types() {
    Types out;
    for (uint64_t n = r_.varint(), i = 0; i < n; ++i) {
      Type& t = out.emplace_back();
      Codec<DType>::load(r_, t.dtype);
      Codec<Shape>::load(r_, t.shape);
    }
    return out;
  }

  void read_node(Builder& b) {
    const size_t start = r_.offset();
    const uint64_t number = r_.varint();
    if (number >= ops_.size())
      r_.error_at(start, "graph-op",
                  fmt::format("there is no op {} among {}", number, ops_.size()));
    const UsedOp& used = ops_[static_cast<size_t>(number)];
    Values in;
    for (uint64_t n = r_.varint(), i = 0; i < n; ++i) in.push_back(read_value(b.graph()));
    Attrs attrs = attributes(used);
    const Types declared = types();
    Origin origin;
    origin.label = label();
    origin.pass = label();
    b.set_origin(origin);
    try {
      b.emit(*used.op, std::move(attrs), in);
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::user && e.kind() != ErrorKind::data) throw;
      r_.error_at(start, e.code(), e.message());
    }
    const Types& inferred = b.graph().nodes.back().out;
    if (inferred != declared)
      r_.error_at(start, "graph-type",
                  fmt::format("{} is declared as {}, inferred is {}", used.op->name,
                              fmt::join(declared, ", "), fmt::join(inferred, ", ")));
  }

  ByteReader& r_;
  std::vector<UsedOp> ops_;
  std::vector<SharedText> labels_;
};

}  // namespace

std::string frame_graph_bytes(std::string_view payload) {
  ByteWriter w;
  w.raw(kMagic.data(), kMagic.size());
  w.u32(kLanguageVersion);
  w.u64(payload.size());
  w.raw(payload.data(), payload.size());
  w.u64(hash_bytes(w.out.data(), w.out.size(), kSeed));
  return std::move(w.out);
}

std::string to_bytes(const Graph& g) {
  return within_memory([&] {
    ByteWriter payload;
    GraphWriter(payload, g).write();
    return frame_graph_bytes(payload.out);
  });
}

bool is_graph_bytes(std::string_view bytes) { return bytes.starts_with(kMagic); }

Graph from_bytes(std::string_view bytes, const OpTable& table, const std::string& what) {
  ByteReader r(bytes, what);
  if (!is_graph_bytes(bytes)) r.error("graph-magic", "does not begin with {}", kMagic);
  r.take(kMagic.size());
  const uint32_t version = r.u32();
  if (version < 1 || version > kLanguageVersion)
    r.error("graph-version", "version {}; this program reads 1 to {}", version, kLanguageVersion);
  const uint64_t length = r.u64();
  if (r.left() < kChecksumBytes || length != r.left() - kChecksumBytes)
    r.error("graph-length", "a payload of {} bytes is announced, the file has {} more", length,
            r.left());
  const size_t end = kHeaderBytes + static_cast<size_t>(length);
  const uint64_t expected = hash_bytes(bytes.data(), end, kSeed);
  if (ByteReader(bytes.substr(end), what).u64() != expected)
    r.error_at(end, "graph-checksum", "the checksum is not that of the bytes");

  ByteReader payload(bytes.substr(0, end), what);
  payload.take(kHeaderBytes);
  payload.table = &table;
  payload.version = static_cast<int>(version);
  Graph g = GraphReader(payload).read();
  if (!payload.done()) payload.error("graph-length", "{} bytes are left over", payload.left());
  verify_read(g);
  return g;
}

void Codec<Body>::write(ByteWriter& w, const Body& v) { GraphWriter(w, *v.graph).write(); }
void Codec<Body>::load(ByteReader& r, Body& v) {
  if (!r.table) r.error("graph-op", "a nested graph cannot be read here");
  v = Body(GraphReader(r).read());
}

}  // namespace rlx
