// The pages that browser_test.py looks at, into a folder: a small program, a training step of twelve layers, control flow, and
// one whose names are out to do harm.
#include <iostream>

#include "rlx/base/file.h"
#include "rlx/explain/explain.h"
#include "rlx/front/trace.h"
#include "rlx/models/gpt.h"

using namespace rlx;

namespace {

Graph mlp() {
  return trace("mlp", [](Tracer& t) {
    return t.input("x", {9, 70}).matmul(t.param("w", {70, 130})).tanh().softmax(-1);
  });
}

Graph loop() {
  return trace("loop", [](Tracer& t) {
    const auto round = [](Tracer&, const TracedTensors& c, const TracedTensors&) -> ScanResult {
      return {{(c[0] * 2.0 + 1.0).tanh()}, {}};
    };
    return t.scan({t.input("x", {9, 70})}, {}, round, {.length = 5}).carries[0];
  });
}

Graph hostile() {
  const std::string name =
      "</script><script>window.hacked = 1</script><img src=x onerror=\"window.hacked = 1\">";
  return trace(name, [&](Tracer& t) {
    const Scope scope(t, name);
    auto x = t.input(name, {4, 8});
    for (int i = 0; i < 3; ++i)
      x = x.matmul(t.param("__proto__" + std::to_string(i), {8, 8})).tanh();
    return x;
  });
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: make_pages FOLDER\n";
    return 2;
  }
  const std::string folder = argv[1];
  make_folder(folder);
  ExplainOptions measured;
  measured.run = true, measured.runs = 2, measured.limits = MachineLimits{100, 10};
  GptConfig gpt;
  gpt.layers = 12, gpt.block = 32, gpt.batch = 2;
  const std::pair<const char*, Graph> pages[] = {
      {"mlp", mlp()}, {"loop", loop()}, {"hostile", hostile()}, {"gpt", gpt_train_step(gpt)}};
  for (const auto& [name, g] : pages)
    write_file(folder + "/" + name + ".html", explain(g, "cpu", measured).html());
}
