// inference.cuh: what is done with a model besides training it: its loss on a text, the routing over a text, sampling.
#pragma once
#include <functional>
#include "data/dataset.cuh"
#include "gpt.cuh"
#include "routes.cuh"
#include "runtime/options.cuh"
#include "runtime/sampler.cuh"

// ---- evaluation

struct Evaluation {
  double loss = 0, perplexity = 0;
  double bits_per_byte = 0;   // of the decoded text; 0: the data cannot be decoded
  double bits_per_token = 0;  // where tokens are not bytes
  int64_t predictions = 0;
  bool whole = true;  // not left on the way
  std::string text() const {
    std::string s = format("loss %.4f nats", loss);
    if (bits_per_byte > 0) s += format(" | %.4f bits per byte", bits_per_byte);
    if (bits_per_token > 0) s += format(" | %.4f bits per token", bits_per_token);
    return s + format(" | perplexity %.3f | %lld predictions", perplexity, (long long)predictions);
  }
};
// Asked while something long goes on: how much is done, of how much. Its answer: go on?
using GoOn = std::function<bool(int64_t done, int64_t all)>;

// The sum over predicted tokens divided by their number: the same for every batch size
inline Evaluation evaluate(GPT<float> &model, const data::EvalWindows &windows, const data::Tokenizer &tokenizer,
                           const GoOn &go_on = nullptr) {
  std::vector<int32_t> inputs, targets;
  exact::Counter<double> losses;
  for (int64_t w = 0, n; w < windows.windows; w += n) {
    if (go_on && !go_on(w, windows.windows)) {
      Evaluation left;
      left.whole = false;
      return left;
    }
    n = windows.batch(inputs, targets, w, model.sizes.B, windows.windows);
    model.evaluate(losses, inputs.data(), targets.data(), n, windows.length(w));
  }
  Evaluation e;
  const double sum = losses.finish(), bytes = (double)windows.decoded_bytes(tokenizer);
  e.predictions = windows.predictions;
  e.loss = sum / (double)e.predictions;
  e.perplexity = exact::exp(e.loss);
  if (!tokenizer.bytes) e.bits_per_token = e.loss / exact::log(2.);
  if (bytes > 0) e.bits_per_byte = sum / exact::log(2.) / bytes;
  return e;
}

// The routing over about `tokens` tokens of the text; gradients too where the model trains
inline Routes measure_routes(GPT<float> &model, const data::EvalWindows &windows, int64_t tokens) {
  const int64_t T = windows.T, end = std::min(windows.predictions / T, divide_up(tokens, T));
  std::vector<int32_t> inputs, targets;
  Routes routes;
  for (int64_t w = 0, n; w < end; w += n) {
    n = windows.batch(inputs, targets, w, model.sizes.B, end);
    routes.add(model, inputs.data(), targets.data(), n, T);
  }
  return routes;
}

// ---- sampling

// Hands every piece of text to `emit` as it is drawn, the prompt first; ends early when that returns false
using Emit = std::function<bool(const std::string &piece)>;
inline void sample(GPT<float> &model, const data::Tokenizer &tokenizer, const runtime::Options &o, int64_t index,
                   const Emit &emit) {
  Decoder<float> decoder(model);
  std::vector<int32_t> text = tokenizer.encode(o.prompt);
  if (text.empty()) {  // begin after an empty line, where the data have one
    const int newline = tokenizer.bytes ? tokenizer.byte_to_token['\n'] : tokenizer.end_of_text;
    text.push_back(newline >= 0 ? newline : 0);
  }
  const size_t prompt = text.size();
  const uint64_t key = rng::key_of((uint64_t)o.sample_seed, format("sample %lld", (long long)index).c_str());
  const float *logits = nullptr;
  size_t fed = 0;
  bool go_on = emit(o.prompt);
  while (go_on && text.size() < prompt + (size_t)o.tokens) {
    if (decoder.full()) {  // a new window over the last half
      decoder.t = 0;
      fed = text.size() - (size_t)std::max<int64_t>(1, model.c.T / 2);
    }
    if (fed == 0 && text.size() > (size_t)model.c.T) fed = text.size() - (size_t)model.c.T;
    while (fed < text.size()) logits = decoder.step(text[fed++]);
    const auto z = device::on_host(logits, model.c.V);
    const int token = runtime::draw(&z[0], (int)model.c.V, o.temperature, o.top_k, o.top_p, key, text.size() - prompt);
    text.push_back(token);
    go_on = emit(tokenizer.decode(token));
  }
}
