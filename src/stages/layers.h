// Layers: boxes placed in rows so that lines lead downwards, for drawings of graphs.
//
//   Layers l;
//   size_t a = l.box(80, 30), b = l.box(60, 30);
//   l.line(a, b, 0);
//   l.place();
//   l.boxes[b].x, l.boxes[b].y;                 // centre, top
//   l.trunks[0];                                // x of the line in the rows between a and b
//
// A box lies below everything that has a line to it; rows are ordered so that lines cross little (by the mean place of
// the neighbours, up and down by turns), and boxes stand below each other where they can. Boxes pinned `first` or
// `last` make the top or the bottom row.
#pragma once

#include <cstddef>
#include <vector>

namespace rlx {

struct Layers {
  enum class Pin { none, first, last };
  struct Box {
    double width, height;
    Pin pin = Pin::none;
    double x = 0, y = 0;  // centre, top
    size_t row = 0;
  };
  struct Line {
    size_t from, to, trunk;
  };

  size_t box(double width, double height, Pin pin = Pin::none);
  // Lines are made in the order of the boxes that they lead to, from boxes made before.
  // Those of one trunk (0, 1, ..), which have one beginning, share their way as far as they go together.
  void line(size_t from, size_t to, size_t trunk) { lines.push_back({from, to, trunk}); }
  void place();

  std::vector<Box> boxes;
  std::vector<Line> lines;
  std::vector<std::vector<double>>
      trunks;                         // the centre of the way, from the row below the beginning on
  std::vector<double> tops, heights;  // of rows
  double width = 0, height = 0;
  static constexpr double kGapX = 18, kGapY = 34;
};

}  // namespace rlx
