// crossentropy.cuh: softmax, loss and its gradient in one pass over the logits, in place.
//   m = max_j z_j + 0;  e_j = exp_neg(z_j - m);  S = lanes_j(e_j);  loss = log(S) - (z_target - m)      (nats)
//   p_j = e_j * (1/S);  dlogits_j = (p_j - [j = target]) / count
// count is the number of predictions of the whole batch, over all passes and ranks: gradients are scaled here, once.
// Shapes: logits (N,V), rows ld >= V apart: the padding behind V is neither read nor written; targets, losses (N).
#pragma once
#include "exact.cuh"

namespace plain {

template <class real> real softmax_max(const real *z, int64_t V) {
  real m = z[0];
  for (int64_t j = 1; j < V; j++) m = z[j] > m ? z[j] : m;
  return m + (real)0;
}

template <class real>
void crossentropy_forward(real *losses, real *logits, int64_t ld, const int32_t *targets, int64_t N, int64_t V) {
  for (int64_t n = 0; n < N; n++) {  // destroys the logits
    real *z = logits + n * ld;
    const real m = softmax_max(z, V), target = z[targets[n]];
    for (int64_t j = 0; j < V; j++) z[j] = exact::exp_neg(z[j] - m);
    losses[n] = exact::log(exact::lane_sum(z, V)) - (target - m);
  }
}

template <class real> void crossentropy_backward(real *losses, real *logits, int64_t ld, const int32_t *targets,
                                                 int64_t N, int64_t V, int64_t count) {
  for (int64_t n = 0; n < N; n++) {  // logits become dlogits
    real *z = logits + n * ld;
    const real m = softmax_max(z, V), target = z[targets[n]];
    for (int64_t j = 0; j < V; j++) z[j] = exact::exp_neg(z[j] - m);
    const real S = exact::lane_sum(z, V), inverse = 1 / S;
    losses[n] = exact::log(S) - (target - m);
    for (int64_t j = 0; j < V; j++) z[j] = (z[j] * inverse - (real)(j == targets[n])) / (real)count;
  }
}

}  // namespace plain
