// RLX's side of the Fourier transforms in bench/peers: answers lines of run.py.
//
//   fourier FOLDER THREADS
//   load fft2 512x512   reads FOLDER/in.bin, writes FOLDER/rlx.bin, answers {"ready": true}
//   run SECONDS CLOCK   times runs (CLOCK cpu: the calling thread's time) over bound operand and result, answers {"seconds": median, "least": .., "runs": count}
//
// A run is everything between a caller's operand and their result.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <iostream>
#include <optional>
#include <sstream>

#include "rlx/base/clock.h"
#include "rlx/ops/signal/fft.h"
#include "rlx/runtime/runtime.h"

namespace {

using namespace rlx;

struct Case {
  Tensor x, y;
  CompiledGraph f;
};

Ints sizes_of(const std::string& text) {
  Ints out;
  std::istringstream words(text);
  for (std::string size; std::getline(words, size, 'x');) out.push_back(std::stoll(size));
  return out;
}

Case load(const std::string& kind, Ints sizes, const std::string& folder, int threads) {
  const int64_t n = sizes.back();
  if (kind == "irfft") sizes.back() = n / 2 + 1;
  const auto axis = static_cast<int64_t>(sizes.size()) - 1;
  Tensor x(kind == "rfft" ? DType::F32 : DType::C64, sizes);
  std::ifstream(folder + "/in.bin", std::ios::binary)
      .read(reinterpret_cast<char*>(x.mutable_raw()), static_cast<std::streamsize>(x.bytes()));
  Builder b("f");
  const Value in = b.input("x", x.type());
  const Value out = kind == "fft"    ? op::fft(b, in)
                    : kind == "fft2" ? op::fftn(b, in, {.axes = {axis - 1, axis}})
                    : kind == "rfft" ? op::rfft(b, in)
                                     : op::irfft(b, in, {.n = n});
  const Type type = b.type(out);
  b.output(out);
  Case c{std::move(x), Tensor(type.dtype, type.shape.sizes()),
         Session("cpu").compile(b.finish(), {.threads = threads})};
  c.f.bind_input(0, c.x.raw());
  c.f.bind_output(0, c.y.mutable_raw());
  c.f.run();
  std::ofstream(folder + "/rlx.bin", std::ios::binary)
      .write(reinterpret_cast<const char*>(c.y.raw()), static_cast<std::streamsize>(c.y.bytes()));
  return c;
}

struct Times {
  double median = 0, least = 0;
  size_t runs = 0;
};
// What this thread was given of the machine, or what passed.
double now(bool cpu) {
  timespec t{};
  clock_gettime(cpu ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}
Times time(Case& c, double limit, bool cpu) {
  std::vector<double> seconds;
  const auto start = Clock::now();
  while (seconds.size() < 3 || seconds_since(start) < limit) {
    const double begin = now(cpu);
    c.f.run();
    seconds.push_back(now(cpu) - begin);
  }
  std::ranges::sort(seconds);
  return {seconds[seconds.size() / 2], seconds[0], seconds.size()};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 1) {  // `make bench` runs every program
    fmt::print("bench/peers/run.py runs this beside other libraries\n");
    return 0;
  }
  if (argc != 3) {
    fmt::print(stderr, "usage: fourier FOLDER THREADS\n");
    return 2;
  }
  std::optional<Case> current;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string command, op, shape;
    words >> command;
    if (command == "load") {
      words >> op >> shape;
      current.emplace(load(op, sizes_of(shape), argv[1], std::stoi(argv[2])));
      fmt::print("{{\"ready\": true}}\n");
    } else {
      double limit = 0;
      std::string clock;
      words >> limit >> clock;
      const Times t = time(*current, limit, clock == "cpu");
      fmt::print("{{\"seconds\": {:.9g}, \"least\": {:.9g}, \"runs\": {}}}\n", t.median, t.least,
                 t.runs);
    }
    std::fflush(stdout);
  }
}
