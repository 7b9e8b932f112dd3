// Fourier transforms with 64-byte vectors.
#include "rlx/backend/cpu/kernels/signal/fft_impl.h"

namespace rlx::cpu {

template void fft_run<float, 64>(const FftProgram<float>&, const FftLines<const float>&,
                                 const FftLines<float>&, int64_t, int64_t, float*);
template void fft_run<double, 64>(const FftProgram<double>&, const FftLines<const double>&,
                                  const FftLines<double>&, int64_t, int64_t, double*);

}  // namespace rlx::cpu
