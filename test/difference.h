// difference.h: gradients by central differences with one Richardson step, in double:
//   D(h) = (f(x+h) - f(x-h)) / 2h;   f' = (4 D(h) - D(2h)) / 3 + O(h^4)
#pragma once
#include "check.h"
#include <vector>

// loss() reads x. Compares dx, the gradient by hand, with the differences, each within 1e-7 of the largest of them.
template <class Loss> bool same_as_differences(const char *name, double *x, const double *dx, int64_t n, Loss loss) {
  const double h = 5e-4;
  std::vector<double> numeric(n);
  for (int64_t i = 0; i < n; i++) {
    const double keep = x[i];
    const auto at = [&](double step) {
      x[i] = keep + step;
      return loss();
    };
    const double near = (at(h) - at(-h)) / (2 * h), far = (at(2 * h) - at(-2 * h)) / (4 * h);
    numeric[i] = (4 * near - far) / 3;
    x[i] = keep;
  }
  return check::close(name, dx, numeric.data(), n, 1e-7);
}
template <class Loss>
bool same_as_differences(const char *name, std::vector<double> &x, const std::vector<double> &dx, Loss loss) {
  check::that(x.size() == dx.size() && !x.empty(), "%s: sizes", name);
  return same_as_differences(name, x.data(), dx.data(), (int64_t)x.size(), loss);
}
