// Complex numbers: made of parts, modulus, angle. (conj, real and imag are in elementwise.h.)
//
//   Value z = op::complex(b, re, im);             // f32, f32 -> c64
//   Value power = op::complex_norm_sq(b, z);      // f32
//
// Cotangents of c64 follow PyTorch's convention (what a descent step may subtract): the gradient of
// |z|^2 is 2 z. The specification's Wirtinger derivative z is the op complex_norm_sq_backward.
#pragma once

#include "rlx/ir/op.h"

namespace rlx {

namespace op {
extern const Op<> complex;                   // re, im -> re + i im
extern const Op<> polar;                     // r, angle -> r e^(i angle)
extern const Op<> complex_abs;               // |z|
extern const Op<> complex_angle;             // in [-pi, pi]
extern const Op<> complex_norm_sq;           // |z|^2
extern const Op<> complex_norm_sq_backward;  // z, g -> g z
}  // namespace op

extern const Family kComplexNumbers;

}  // namespace rlx
