// sums.cuh: the sum over the sequences of a batch, where every parameter's gradient ends: rule 3 of the float order.
//   out[i] = counter over b of sums[b,i], continued over the passes of the step
// Shapes: sums (B,n), out (n). A fast form may destroy sums.
#pragma once
#include "exact.cuh"

namespace plain {

template <class real> void add_sequences(real *out, const real *sums, int64_t B, int64_t n, const exact::Carry &carry) {
  for (int64_t i = 0; i < n; i++) {
    exact::Counter<real> counter;
    for (int64_t b = 0; b < B; b++) counter.push(sums[b * n + i]);
    out[i] = exact::carried(out, i, counter.finish(), carry);
  }
}

}  // namespace plain
