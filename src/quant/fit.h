// Scales that minimise the squared error of a group of numbers: what the encoders of block formats search.
#pragma once

namespace rlx::quant {

// scale with x ~ scale * q for integers q in [-limit, limit - 1]; may be negative; 0 when all are 0.
float fit_scale(const float* x, int n, int limit);

// scale and min >= 0 with x ~ scale * q - min for integers q in [0, levels].
struct ScaleMin {
  float scale, min;
};
ScaleMin fit_scale_min(const float* x, int n, int levels);

// scale with x ~ scale * v for v in the ascending list of `count` values.
float fit_values(const float* x, int n, const float* values, int count);
int nearest_value(float x, const float* values, int count);

}  // namespace rlx::quant
