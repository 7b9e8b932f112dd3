// Mutated .npy bytes: the reader answers with a tensor of the size that it says, or with an Error.
#include "fuzz.h"
#include "rlx/formats/npy.h"

namespace rlx::fuzz {
namespace {

std::string file(const std::string& header, int version, size_t data) {
  std::string out = "\x93NUMPY";
  out += static_cast<char>(version);
  out += '\0';
  for (int i = 0; i < (version == 1 ? 2 : 4); ++i)
    out += static_cast<char>(header.size() >> (8 * i) & 0xff);
  out += header;
  for (size_t i = 0; i < data; ++i) out += static_cast<char>(i % 2);
  return out;
}

std::vector<std::string> seeds() {
  std::vector<std::string> out;
  for (const DTypeInfo& d : kDTypes)
    for (const Ints& sizes : {Ints{}, Ints{3}, Ints{2, 3}, Ints{0, 4}, Ints{1, 2, 1, 2}}) {
      const Type type{d.dtype, Shape::of(sizes)};
      out.push_back(npy_header(type) + std::string(static_cast<size_t>(type.bytes()), '\1'));
    }
  for (const int version : {1, 2, 3})
    for (const char* order : {"True", "False"})
      out.push_back(file(std::string("{'descr': '<f4', 'fortran_order': ") + order +
                             ", 'shape': (2, 3), }      \n",
                         version, 24));
  return out;
}

// Something else in the dictionary's text; the length in front follows, mostly.
std::string mutate_header(Random& r, const std::string& s) {
  static const std::vector<std::string> words = {"'descr'", "'fortran_order'",
                                                 "'shape'", "True",
                                                 "False",   "(",
                                                 ")",       ",",
                                                 "()",      "(1,)",
                                                 "{",       "}",
                                                 ":",       "'<f4'",
                                                 "'>f8'",   "'|b1'",
                                                 "'<c8'",   "'<V2'",
                                                 "'|O'",    "[('a', '<f4')]",
                                                 "\n",      "\0"};
  if (s.size() < 12) return s;
  const int version = s[6];
  const size_t start = version == 1 ? 10 : 12;
  const size_t end = std::min(s.find('\n', start), s.size());
  if (end <= start) return s;
  std::string header = s.substr(start, end - start);
  size_t at = pick(r, header.size());
  switch (pick(r, 4)) {
    case 0: {  // a number
      const size_t digit = header.find_first_of("0123456789", at);
      if (digit == std::string::npos) break;
      size_t stop = digit;
      while (stop < header.size() && std::isdigit(static_cast<unsigned char>(header[stop]))) ++stop;
      header.replace(digit, stop - digit, bad_numbers()[pick(r, bad_numbers().size())]);
      break;
    }
    case 1:
      header.insert(at, words[pick(r, words.size())]);
      break;
    case 2:
      header.erase(at, 1 + pick(r, 12));
      break;
    default:
      at = header.find_first_of("'(,", at);
      if (at != std::string::npos) header.replace(at, 1 + pick(r, 8), words[pick(r, words.size())]);
      break;
  }
  std::string out = s.substr(0, start) + header + s.substr(end);
  const size_t length = header.size() + 1;
  if (pick(r, 4) != 0)
    for (size_t i = 0; i < start - 8; ++i) out[8 + i] = static_cast<char>(length >> (8 * i) & 0xff);
  return out;
}

std::string mutate(Random& r, const std::string& s, const std::vector<std::string>&) {
  return pick(r, 10) < 6 ? mutate_header(r, s) : mutate_bytes(r, s);
}

void target(const std::string& bytes) {
  const Tensor t = parse_npy(bytes);
  if (t.bytes() > bytes.size()) fail(ErrorKind::internal, "size", "a tensor larger than its file");
  const std::string again =
      npy_header(t.type()) + std::string(reinterpret_cast<const char*>(t.raw()), t.bytes());
  if (!parse_npy(again).same_bits(t))
    fail(ErrorKind::internal, "round-trip", "the tensor does not read back");
}

}  // namespace
}  // namespace rlx::fuzz

int main(int argc, char** argv) {
  return rlx::fuzz::run({rlx::fuzz::seeds(), rlx::fuzz::mutate, rlx::fuzz::target}, argc, argv);
}
