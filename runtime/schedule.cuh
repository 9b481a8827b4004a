// schedule.cuh: learning rate and bias correction, pure functions of the step in double with our own exp, log and cos.
//
//   steps count from 0; W = warmup, S = steps of the whole run
//   step < W      lr (step+1) / W             lr/W at step 0, lr at step W-1
//   cosine        min + (lr - min) (1 + cos(pi p)) / 2,  p = (step - W) / (S - W): lr at step W, towards min at the end
//   linear        lr + (min - lr) p
//   wsd           (warm-up, stable, decay) lr, and over the last fifth of the S steps, rounded down, linear to min
//   constant      lr
//   step >= S     min (constant: lr)
#pragma once
#include "../layers/exact.cuh"
#include "option_table.cuh"

namespace runtime {

struct Schedule {
  enum Kind { cosine, linear, wsd, constant } kind = cosine;
  double lr = 1e-3, min_lr = 1e-4;
  int64_t warmup = 0, steps = 0;
};

inline Schedule::Kind schedule_kind(const std::string &name) {
  if (name == "linear") return Schedule::linear;
  if (name == "wsd") return Schedule::wsd;
  if (name == "constant") return Schedule::constant;
  return Schedule::cosine;
}
inline Schedule schedule_of(const Options &o) {
  Schedule s;
  s.kind = schedule_kind(o.schedule);
  s.lr = o.lr;
  s.min_lr = effective_min_lr(o);
  s.warmup = effective_warmup(o);
  s.steps = o.steps;
  return s;
}

inline double learning_rate(const Schedule &s, int64_t step) {
  if (step < s.warmup) return s.lr * (double)(step + 1) / (double)s.warmup;
  if (s.kind == Schedule::constant) return s.lr;
  if (step >= s.steps) return s.min_lr;
  const int64_t decay = s.steps - s.steps / 5;
  const int64_t start = s.kind == Schedule::wsd && decay > s.warmup ? decay : s.warmup;
  if (step < start) return s.lr;
  const double p = (double)(step - start) / (double)(s.steps - start);
  if (s.kind == Schedule::cosine) return s.min_lr + (s.lr - s.min_lr) * (0.5 * (1 + exact::cos(3.141592653589793 * p)));
  return s.lr + (s.min_lr - s.lr) * p;
}

// 1 - beta^t, t = 1 for the first step
inline double bias_correction(double beta, int64_t t) {
  return beta > 0 ? 1 - exact::exp((double)t * exact::log(beta)) : 1;
}

}  // namespace runtime
