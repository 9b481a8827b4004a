// sampler.cuh: draws one token from a row of logits.
//
//   temperature 0    the largest logit; of equals the lowest index
//   otherwise        the tokens in descending order of logit (of equals the lower index first); the first top_k of them
//                    (0 = all); p_i = exp((x_i - max) / temperature) in double; of these the shortest front part that
//                    holds at least top_p of their sum (1 = all, always at least one token); then with u = one uniform
//                    number in [0, 1) the first token at which the running sum exceeds u times the sum of what is left
// A pure function of its arguments, on every machine: our own exp, a stable order, sums in that order.
// Errors: a logit that is NaN or +infinity. -infinity is a token that is never drawn, unless nothing else is there.
#pragma once
#include <algorithm>
#include <numeric>
#include <vector>

#include "../layers/device.cuh"
#include "../layers/random.cuh"

namespace runtime {

inline int draw(const float *logits, int V, double temperature, int64_t top_k, double top_p, uint64_t key,
                uint64_t counter) {
  if (V < 1) throw Error("cannot draw a token: the vocabulary is empty");
  for (int i = 0; i < V; i++)
    if (!(logits[i] < HUGE_VALF)) throw Error(format("cannot draw a token: logit %d is %g", i, (double)logits[i]));
  if (temperature <= 0) return (int)(std::max_element(logits, logits + V) - logits);

  std::vector<int> order((size_t)V);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return logits[a] > logits[b]; });
  const double largest = logits[order[0]];
  if (largest == -HUGE_VAL) return 0;  // every token is impossible
  const size_t k = top_k > 0 && top_k < V ? (size_t)top_k : (size_t)V;
  std::vector<double> p(k);
  double sum = 0;
  for (size_t i = 0; i < k; i++) sum += p[i] = exact::exp((logits[order[i]] - largest) / temperature);
  size_t kept = k;
  if (top_p < 1) {
    const double enough = top_p * sum;
    sum = p[0];
    kept = 1;
    while (kept < k && sum < enough) sum += p[kept++];
  }
  const double target = rng::uniform(key, counter) * sum;
  double running = 0;
  for (size_t i = 0; i < kept; i++)
    if ((running += p[i]) > target) return order[i];
  return order[0];  // not reached: u < 1 and the sums are the same chain
}

}  // namespace runtime
