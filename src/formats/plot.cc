#include "rlx/formats/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

namespace rlx {

namespace {

constexpr double kWidth = 760, kHeight = 440, kLeft = 64, kRight = 24, kTop = 44, kBottom = 52;

struct Range {
  double low = 0, high = 1;
};

class Chart {
 public:
  Chart(Range x, Range y) : x_(x), y_(y) {}
  double x(double v) const {
    return kLeft + (v - x_.low) / (x_.high - x_.low) * (kWidth - kLeft - kRight);
  }
  double y(double v) const {
    return kHeight - kBottom - (v - y_.low) / (y_.high - y_.low) * (kHeight - kTop - kBottom);
  }

  void axes(const PlotText& text) {
    for (double t : axis_ticks(y_.low, y_.high, 6)) {
      line(kLeft, y(t), kWidth - kRight, y(t), "#dddddd");
      label(kLeft - 8, y(t) + 4, "end", fmt::format("{:g}", t));
    }
    for (double t : axis_ticks(x_.low, x_.high, 8)) {
      line(x(t), kHeight - kBottom, x(t), kHeight - kBottom + 5, "#444444");
      label(x(t), kHeight - kBottom + 20, "middle", fmt::format("{:g}", t));
    }
    line(kLeft, kTop, kLeft, kHeight - kBottom, "#444444");
    line(kLeft, kHeight - kBottom, kWidth - kRight, kHeight - kBottom, "#444444");
    label(kWidth / 2, 24, "middle", text.title, " font-size=\"16\"");
    label(kWidth / 2, kHeight - 12, "middle", text.x_axis);
    label(18, kHeight / 2, "middle", text.y_axis,
          fmt::format(" transform=\"rotate(-90 18 {})\"", kHeight / 2));
  }

  void curve(const Curve& c) {
    out_ += fmt::format(
        "<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"{}\" stroke-opacity=\"{}\" "
        "stroke-dasharray=\"{}\" points=\"",
        c.colour, c.width, c.opacity, c.dashes);
    for (const auto& [px, py] : c.points)
      out_ += fmt::format("{:.1f},{:.1f} ", x(px), y(std::clamp(py, y_.low, y_.high)));
    out_ += "\"/>\n";
  }

  void legend(const std::vector<Curve>& curves) {
    double at = kTop + 12;
    for (const Curve& c : curves) {
      if (!c.in_legend) continue;
      line(kWidth - kRight - 150, at, kWidth - kRight - 126, at, c.colour, 2.5, c.dashes);
      label(kWidth - kRight - 118, at + 4, "start", c.name);
      at += 18;
    }
  }
  const std::string& body() const { return out_; }

 private:
  void line(double x1, double y1, double x2, double y2, const std::string& colour, double width = 1,
            const std::string& dashes = "none") {
    out_ += fmt::format(
        "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\" "
        "stroke-width=\"{}\" stroke-dasharray=\"{}\"/>\n",
        x1, y1, x2, y2, colour, width, dashes);
  }
  void label(double px, double py, const char* anchor, const std::string& text,
             const std::string& more = "") {
    out_ +=
        fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\"{}>", px, py, anchor, more);
    for (char ch : text) out_ += ch == '<' ? "&lt;" : ch == '&' ? "&amp;" : std::string(1, ch);
    out_ += "</text>\n";
  }
  Range x_, y_;
  std::string out_;
};

Range range_of(const std::vector<Curve>& curves, bool of_x) {
  double low = INFINITY, high = -INFINITY;
  for (const Curve& c : curves)
    for (const auto& [px, py] : c.points) {
      const double v = of_x ? px : py;
      if (!std::isfinite(v)) continue;
      low = std::min(low, v), high = std::max(high, v);
    }
  if (!(low <= high)) return {0, 1};
  if (low == high) return {low - 0.5, high + 0.5};
  return {low, high};
}

}  // namespace

std::vector<double> centred_means(const std::vector<double>& values, size_t reach) {
  std::vector<double> sums{0}, out;  // sums of the values before each place
  for (double v : values) sums.push_back(sums.back() + v);
  for (size_t i = 0; i < values.size(); ++i) {
    const size_t r = std::min({reach, i, values.size() - 1 - i});
    out.push_back((sums[i + r + 1] - sums[i - r]) / static_cast<double>(2 * r + 1));
  }
  return out;
}

std::vector<double> axis_ticks(double low, double high, int count) {
  const double rough = (high - low) / count;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (double factor : {5.0, 2.0, 1.0})
    if (factor * power >= rough) step = factor * power;
  std::vector<double> out;
  for (double i = std::ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; ++i)
    out.push_back(i * step + 0.0);
  return out;
}

std::string svg_plot(const PlotText& text, const std::vector<Curve>& curves) {
  Range y = range_of(curves, false);
  const double margin = 0.05 * (y.high - y.low);
  y.low -= margin, y.high += margin;
  Chart chart(range_of(curves, true), y);
  chart.axes(text);
  for (const Curve& c : curves) chart.curve(c);
  chart.legend(curves);
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:g} {1:g}\" width=\"{0:g}\" "
      "height=\"{1:g}\" "
      "font-family=\"sans-serif\" font-size=\"12\" fill=\"#222222\">\n<rect width=\"100%\" "
      "height=\"100%\" fill=\"white\"/>\n"
      "{2}</svg>\n",
      kWidth, kHeight, chart.body());
}

}  // namespace rlx
