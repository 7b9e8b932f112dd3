// A small SVG chart of curves over steps.
//
//   write_file("loss.svg", svg_plot({"Training", "step", "bits per character"}, {{"training",
//   "#4c72b0", points}}));
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace rlx {

struct PlotText {
  std::string title, x_axis, y_axis;
};
struct Curve {
  std::string name, colour;
  std::vector<std::pair<double, double>> points;
  double width = 1.5, opacity = 1;
  bool in_legend = true;
  std::string dashes = "none";  // lengths of strokes and gaps
};

std::string svg_plot(const PlotText& text, const std::vector<Curve>& curves);

// The mean of each value and as many before it as after it, at most `reach` to either side: towards
// both ends they become fewer, so that a curve of means does not lag behind its data.
std::vector<double> centred_means(const std::vector<double>& values, size_t reach);

// Round numbers that divide [low, high] into about `count` parts: 1, 2 or 5 times a power of ten.
std::vector<double> axis_ticks(double low, double high, int count);

}  // namespace rlx
