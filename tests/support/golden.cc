#include "golden.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "rlx/runtime/runtime.h"

namespace rlx::testing {

std::string GoldenReport::text() const {
  std::string out = fmt::format("{} samples\n", samples);
  for (const auto& [op, list] : mismatches) {
    out += fmt::format("{}: {} mismatches\n", op, list.size());
    for (size_t i = 0; i < std::min<size_t>(list.size(), 3); ++i) out += "  " + list[i] + "\n";
  }
  return out;
}

std::string golden_attrs(const Json& attrs) {
  std::string out;
  for (const auto& [name, value] : attrs.items()) {
    out += (out.empty() ? "{" : ", ") + name + "=";
    if (value.is_string())
      out += value.get<std::string>();
    else if (value.is_number_float())
      out += number_text(value.get<double>());
    else if (value.is_null())
      out += "none";
    else
      out += value.dump();
  }
  return out.empty() ? out : out + "}";
}

bool accept_real(double x, double y, const Tolerance& t) {
  if (std::isnan(x) || std::isnan(y)) return std::isnan(x) && std::isnan(y);
  if (std::isinf(x) || std::isinf(y)) return x == y;
  if (t.rel == 0 && t.abs == 0)
    return x == y && (x != 0 || t.any_zero || std::signbit(x) == std::signbit(y));
  if (t.signed_zero && y == 0) return x == 0 && std::signbit(x) == std::signbit(y);
  return std::fabs(x - y) <= t.abs + t.rel * std::fabs(y);
}

namespace {

Tensor golden_tensor(const Json& j) {
  const std::string hex = j.at("data");
  std::vector<uint8_t> bytes(hex.size() / 2);
  for (size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<uint8_t>(std::stoi(hex.substr(2 * i, 2), nullptr, 16));
  return Tensor::from_bytes(*parse_dtype(j.at("dtype").get<std::string>()),
                            j.at("shape").get<Ints>(), bytes.data(), bytes.size());
}

bool accept_element(const Tensor& got, const Tensor& want, int64_t i, const Tolerance& t) {
  if (is_float(want.dtype())) return accept_real(got.get_float(i), want.get_float(i), t);
  if (!is_complex(want.dtype())) return got.get_int(i) == want.get_int(i);
  const Complex x = got.get_complex(i), y = want.get_complex(i);
  if ((t.rel == 0 && t.abs == 0) || t.signed_zero)
    return accept_real(x.real(), y.real(), t) && accept_real(x.imag(), y.imag(), t);
  return std::abs(x - y) <= t.abs + t.rel * std::abs(y);
}

std::string compare_golden(const Tensor& got, const Tensor& want, const Tolerance& t) {
  if (!(got.type() == want.type()))
    return fmt::format("type {} instead of {}", got.type(), want.type());
  for (int64_t i = 0; i < want.elements(); ++i)
    if (!accept_element(got, want, i, t)) {
      const Complex x = got.get_complex(i), y = want.get_complex(i);
      return fmt::format(
          "element {}: {:.17g}{:+.17g}i instead of {:.17g}{:+.17g}i (rel {}, abs {})", i, x.real(),
          x.imag(), y.real(), y.imag(), t.rel, t.abs);
    }
  return {};
}

void add(const Json& j, Builder& b, Tensors& operands) {
  const OpDef* op = op_table().find(j.at("op").get<std::string>());
  check(op != nullptr, "unknown op");
  Values in;
  for (const Json& t : j.at("inputs")) {
    in.push_back(b.input(std::to_string(operands.size()), golden_tensor(t).type()));
    operands.push_back(golden_tensor(t));
  }
  for (Value v : b.emit(*op, read_attrs(*op, golden_attrs(j.at("attrs"))), in)) b.output(v);
}

std::string compare_sample(const Json& j, std::span<const Tensor> got) {
  for (size_t i = 0; i < got.size(); ++i) {
    const Json& tol = j.at("tol").at(i);
    const Tolerance t{tol.at("rel"), tol.at("abs"), tol.value("any_zero", false),
                      tol.value("signed_zero", false)};
    if (std::string wrong = compare_golden(got[i], golden_tensor(j.at("outputs")[i]), t);
        !wrong.empty())
      return fmt::format("result {} {}", i, wrong);
  }
  return {};
}

}  // namespace

std::vector<std::string> GoldenBatch::run(const Execute& execute) const {
  try {
    Builder b("golden");
    Tensors operands;
    for (const Json& j : samples) add(j, b, operands);
    const Tensors got = execute(b.finish(), operands);
    std::vector<std::string> out;
    size_t first = 0;
    for (const Json& j : samples) {
      const size_t count = j.at("outputs").size();
      check(first + count <= got.size(), "{}: fewer results", j.at("id").get<std::string>());
      out.push_back(compare_sample(j, std::span(got).subspan(first, count)));
      first += count;
    }
    check(first == got.size(), "{} results of {}", first, got.size());
    return out;
  } catch (const std::exception& e) {
    if (samples.size() == 1) return {e.what()};
  }
  std::vector<std::string> out;
  for (const Json& j : samples) out.push_back(GoldenBatch{{j}}.run(execute)[0]);
  return out;
}

void for_each_golden(const std::function<void(const Json&)>& use) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(RLX_SOURCE_DIR "/tests/golden"))
    if (entry.path().extension() == ".jsonl") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  for (const auto& path : files) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);
    const Json header = Json::parse(line);
    check(header.at("format") == 1, "{}: unknown format", path.string());
    int count = 0;
    for (; std::getline(file, line); ++count)
      if (const Json j = Json::parse(line); is_wanted(j.at("op"))) use(j);
    check(count == header.at("samples"), "{}: {} samples, the header says {}", path.string(), count,
          header.at("samples").get<int>());
  }
}

GoldenReport run_golden(const Execute& execute, size_t batch) {
  GoldenReport report;
  GoldenBatch waiting;
  const auto flush = [&] {
    const std::vector<std::string> wrong = waiting.run(execute);
    for (size_t i = 0; i < wrong.size(); ++i)
      if (const Json& j = waiting.samples[i]; !wrong[i].empty())
        report.mismatches[j.at("op")].push_back(
            fmt::format("{}: {}", j.at("id").get<std::string>(), wrong[i]));
    waiting.samples.clear();
  };
  for_each_golden([&](const Json& j) {
    ++report.samples;
    waiting.samples.push_back(j);
    if (waiting.samples.size() == batch) flush();
  });
  if (!waiting.samples.empty()) flush();
  return report;
}

GoldenReport golden_on_cpu(int vector_bits) {
  const Execute execute = [&](const Graph& g, const Tensors& in) {
    CompiledGraph f =
        Session("cpu").compile(g, {.threads = 1, .vector_bits = vector_bits, .poison = true});
    const auto inputs = g.inputs();
    NamedTensors named;
    for (size_t i = 0; i < inputs.size(); ++i)
      named[g.node(inputs[i]).get<LeafAttrs>().name] = in[i];
    return f.run(named);
  };
  return run_golden(execute, 32);
}

}  // namespace rlx::testing
