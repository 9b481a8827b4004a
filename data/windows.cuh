// windows.cuh: from a stream of tokens to batches.
//
//   Windows      training: sequence number -> window; a pure function of (seed, number), no state
//   EvalWindows  evaluation: N tokens give N-1 predictions, in windows of T that do not overlap, the last one shorter
//
// Errors (Error): a stream that is too short for one window.
#pragma once
#include "tokens.cuh"

namespace data {

// ---- training windows

enum class Order { shuffle, random, sequential };
inline Order order_named(const std::string &name) {  // as --order says it
  if (name == "random") return Order::random;
  return name == "sequential" ? Order::sequential : Order::shuffle;
}

// The window of sequence number s = 0, 1, 2, ... over the whole run is T+1 tokens from start(s): inputs are the first
// T, targets the last T. W = (size-1)/T windows that share no prediction: window i starts at iT.
//   shuffle      start = T * permute(key of epoch s / W, s mod W, W)
//   random       start = uniform in [0, size-T-1]
//   sequential   start = T * (s mod W)
// with key = rng::key_of(seed, "order"), and the key of an epoch the low 64 bits of philox(key, epoch).
struct Windows {
  Tokens tokens;
  int64_t T, windows;  // windows = W
  Order order;
  uint64_t key;

  // `what` names the data in the message. Error: fewer than T+1 tokens
  Windows(const Tokens &tokens, int64_t T, Order order, uint64_t seed, const char *what = "training data")
      : tokens(tokens),
        T(T),
        windows(T > 0 ? (tokens.size() - 1) / T : 0),
        order(order),
        key(rng::key_of(seed, "order")) {
    if (T < 1 || tokens.size() < T + 1)
      throw Error(format("%s: %lld tokens, need %lld for one window of %lld; use more data or a smaller --context",
                         what, (long long)tokens.size(), (long long)T + 1, (long long)T));
  }

  int64_t start(uint64_t s) const {
    if (order == Order::random) return (int64_t)rng::below(key, s, (uint64_t)(tokens.size() - T));
    const uint64_t W = (uint64_t)windows, i = s % W;
    if (order == Order::sequential) return (int64_t)i * T;
    const rng::Words w = rng::philox(key, s / W);
    return (int64_t)rng::permute((uint64_t)w.x[1] << 32 | w.x[0], i, W) * T;
  }

  // inputs, targets: (count, T): the sequences first .. first+count-1
  void batch(int32_t *inputs, int32_t *targets, uint64_t first, int64_t count) const {
    for (int64_t b = 0; b < count; b++) {
      const int64_t at = start(first + (uint64_t)b);
      tokens.read(inputs + b * T, at, T);
      tokens.read(targets + b * T, at + 1, T);
    }
  }
};

// ---- evaluation windows

struct EvalWindows {
  Tokens tokens;
  int64_t T, predictions, windows;

  // limit: 0 = all, else the predictions wanted, rounded down to whole windows, at least one. Error: under 2 tokens
  EvalWindows(const Tokens &tokens, int64_t T, int64_t limit = 0, const char *what = "validation data")
      : tokens(tokens),
        T(T),
        predictions(tokens.size() - 1) {
    if (tokens.size() < 2 || T < 1)
      throw Error(format("%s: %lld tokens, need at least 2 to predict one; use more data or another split", what,
                         (long long)tokens.size()));
    if (limit > 0 && limit < predictions) predictions = std::min(predictions, std::max(limit / T, (int64_t)1) * T);
    windows = divide_up(predictions, T);
  }

  int64_t length(int64_t w) const { return std::min(T, predictions - w * T); }
  void read(int32_t *inputs, int32_t *targets, int64_t w) const {  // length(w) tokens each
    tokens.read(inputs, w * T, length(w));
    tokens.read(targets, w * T + 1, length(w));
  }
  // Windows first, first+1, ... of one length, at most `most` and before `end`: how many were read
  int64_t batch(std::vector<int32_t> &inputs, std::vector<int32_t> &targets, int64_t first, int64_t most,
                int64_t end) const {
    const int64_t size = length(first);
    int64_t n = 0;
    inputs.resize((size_t)(most * size));
    targets.resize((size_t)(most * size));
    for (; n < most && first + n < end && length(first + n) == size; n++)
      read(&inputs[(size_t)(n * size)], &targets[(size_t)(n * size)], first + n);
    return n;
  }

  // Bytes of the decoded text of all targets; for byte data the number of predictions; 0 if it cannot be decoded
  int64_t decoded_bytes(const Tokenizer &tokenizer) const {
    if (tokenizer.bytes) return predictions;
    if (!tokenizer.can_decode()) return 0;
    std::vector<int32_t> targets((size_t)std::min(T, predictions));
    int64_t sum = 0;
    for (int64_t w = 0; w < windows; w++) {
      tokens.read(targets.data(), w * T + 1, length(w));
      for (int64_t i = 0; i < length(w); i++) sum += (int64_t)tokenizer.decode(targets[(size_t)i]).size();
    }
    return sum;
  }
};

}  // namespace data
