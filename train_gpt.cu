// train_gpt.cu: options -> data -> model -> loop. The only translation unit of the product; the Makefile compiles it
// once per build (plain, cpu, ...), and gpt.cuh's device:: is the namespace of that build.
#include "inference.cuh"
#include "runtime/checkpoint.cuh"
#include "runtime/log.cuh"
#include "runtime/methods_text.cuh"
#include "runtime/schedule.cuh"
#include "runtime/signals.cuh"

#if !defined WAV_COMMIT
#define WAV_COMMIT "unknown"
#endif
static const char *const WAV_OPTIONS =  // `make NAME` bakes in dev/experiments/NAME.options
#if defined WAV_EXPERIMENT
#include WAV_EXPERIMENT
#endif
    "";

using runtime::Options;
using runtime::Parsed;
namespace json = runtime::json;

// Option errors, all at once; the exit code
static int report(const std::vector<std::string> &errors) {
  for (const std::string &e : errors) fprintf(stderr, "train_gpt: %s\n", e.c_str());
  return errors.empty() ? 0 : 2;
}

// Defaults that mean "choose" become what they come to, so that checkpoints hold values
static void resolve(Options &o) {
  o.min_lr = runtime::effective_min_lr(o);
  o.warmup = runtime::effective_warmup(o);
  if (takes_option(method_named(o.router), "layerscale-init"))
    o.layerscale_init = runtime::effective_layerscale_init(o);
  std::string details;
  for (const std::string &d : runtime::effective_details(o)) details += (details.empty() ? "" : ",") + d;
  o.details = details.empty() ? "none" : details;
}

static Config config_of(const Options &o, int vocabulary) {
  Config c;
  c.router = o.router;
  c.L = o.layers;
  c.C = o.channels;
  c.NH = o.heads;
  c.T = o.context;
  c.V = vocabulary;
  c.eps = o.eps;
  c.layerscale_init = o.layerscale_init;
  c.block = o.block;
  c.details = o.details;
  c.rho = o.rho;
  c.beta = o.beta;
  c.wav_eps = o.wav_eps;
  c.key_eps = o.key_eps;
  c.fixed_beta = o.fixed_beta;
  c.final_all = o.final_read == "all";
  c.seed = (uint64_t)o.seed;
  return c;
}

// --data, --val and --skip-unknown, where not given, are those of the run that wrote the checkpoint (its run.json)
static void data_options_of_run(Options &o, const std::set<std::string> &given, const std::string &directory) {
  const json::Value run = runtime::RunLog::previous(directory), *options = run.find("options");
  const bool other_text = given.count("data") || given.count("split");  // then the run's --val does not belong to it
  for (const char *name : {"data", "val", "skip-unknown"})
    if (other_text && !strcmp(name, "val"))
      continue;
    else if (options && !given.count(name) && options->find(name))
      runtime::restore_option(o, name, *options->find(name), directory + "/run.json");
}

static data::Corpus open_data(const Options &o, const data::Tokenizer *fixed) {
  data::CorpusOptions d;
  d.data = o.data;
  d.val = o.val;
  d.split = o.split;
  d.skip_unknown = o.skip_unknown;
  d.fixed = fixed;
  return data::open_corpus(d);
}
static std::string hex(uint64_t x) { return format("%016llx", (unsigned long long)x); }

static void print_block_note(const Config &c) {
  const std::vector<std::string> details = c.detail_list();
  for (const char *name : {"phase", "split"})
    if (!std::count(details.begin(), details.end(), name)) return;
  for (int64_t b = 0; b < c.blocks(); b++) {
    if (c.block_length(b) % 4 == 0) continue;
    printf("note: phase and split are orthogonal only in blocks whose length is a multiple of 4; block %lld has %lld\n",
           (long long)b, (long long)c.block_length(b));
    return;
  }
}
static void print_model(const Config &c, const TensorTable &table, const MemoryPlan &plan, bool verbose) {
  printf(
      "model: %s, %lld layers, %lld channels, %lld heads of %lld, hidden %lld, context %lld, vocabulary %lld: %.2fM "
      "parameters\n",
      c.router.c_str(), (long long)c.L, (long long)c.C, (long long)c.NH, (long long)c.HS(), (long long)c.H(),
      (long long)c.T, (long long)c.V, (double)table.parameters / 1e6);
  if (verbose)
    for (const Tensor &t : table.rows)
      printf("  %-24s %6lld x %-6lld %s %-9g %s%s\n", t.name.c_str(), (long long)t.rows, (long long)t.cols,
             t.init == Init::normal ? "normal  " : "constant", t.value, t.decay ? "decay" : "",
             t.router ? "router" : "");
  print_block_note(c);
  printf("memory:\n");
  plan.print(stdout);
}

// The parameters of a checkpoint, and the moments if training goes on
static void load_state(GPT<float> &model, const runtime::SafetensorsFile &file, bool moments) {
  const auto to = [](float *flat) {
    return [=](int64_t offset, const float *values, int64_t n) { device::upload(flat + offset, values, n); };
  };
  runtime::load_tensors(file, model.table, "", to(model.params.data));
  if (!moments) return;
  runtime::load_tensors(file, model.table, "adam.m.", to(model.moments.data));
  runtime::load_tensors(file, model.table, "adam.v.", to(model.moments.data + model.table.floats));
}

// ---- training

struct Training {
  Options o;
  data::Corpus corpus;
  Config config;
  std::string checkpoint;  // to begin with: of --resume or --init-from, or ""
  int64_t first_step = 0;
  int threads = 1;
};

// Everything that can be refused is refused here, before anything large is allocated
static Training prepare(const Parsed &parsed) {
  Training t;
  t.o = parsed.options;
  std::unique_ptr<data::Tokenizer> fixed;
  std::string fingerprint;
  if (t.o.resume) {
    t.checkpoint = runtime::find_checkpoint(t.o.resume_from.empty() ? t.o.out : t.o.resume_from);
    const runtime::SafetensorsFile file(t.checkpoint);
    const runtime::CheckpointInfo info = runtime::read_info(file, t.o);
    resolve(t.o);
    std::vector<std::string> errors = runtime::science_differences(t.o, info.options, &parsed.given);
    t.o = info.options;
    t.first_step = info.step;
    fingerprint = info.fingerprint;
    for (const std::string &e : runtime::contradictions(t.o, "train", parsed.given)) errors.push_back(e);
    if (const int code = report(errors)) exit(code);
    fixed = std::make_unique<data::Tokenizer>(data::Tokenizer::from_text(info.tokenizer));
    const std::string directory = runtime::parent_directory(t.checkpoint);
    if (!parsed.given.count("out")) t.o.out = directory;
    if (t.o.out != directory && !runtime::checkpoint_steps(t.o.out).empty())
      throw Error(t.o.out + ": holds checkpoints of another run; --out names a folder without");
    if (t.first_step >= t.o.steps)
      throw Error(format("%s: the run is finished (step %lld of %lld); --init-from begins another from its parameters",
                         t.checkpoint.c_str(), (long long)t.first_step, (long long)t.o.steps));
    if (t.o.stop_after > 0 && t.o.stop_after <= t.first_step)
      throw Error(format("--stop-after %lld is not beyond the checkpoint's step %lld; name a later step",
                         (long long)t.o.stop_after, (long long)t.first_step));
    data_options_of_run(t.o, parsed.given, directory);
  } else {
    resolve(t.o);
    if (!t.o.init_from.empty()) t.checkpoint = runtime::find_checkpoint(t.o.init_from);
    if (!t.o.dry_run && !runtime::checkpoint_steps(t.o.out).empty())
      throw Error(t.o.out +
                  ": holds checkpoints of an earlier run; --resume goes on with it, --out names another folder");
    if (!t.checkpoint.empty()) {
      const runtime::SafetensorsFile file(t.checkpoint);
      const Options from = runtime::read_info(file, t.o).options;
      if (from.router != t.o.router || from.heads != t.o.heads || from.details != t.o.details ||
          from.block != t.o.block)
        printf("note: %s was trained with --router %s --heads %lld --block %lld --details %s\n", t.checkpoint.c_str(),
               from.router.c_str(), (long long)from.heads, (long long)from.block, from.details.c_str());
      fixed = std::make_unique<data::Tokenizer>(data::Tokenizer::from_text(file.text("tokenizer")));
    }
  }
  t.corpus = open_data(t.o, fixed.get());
  if (t.o.resume && fingerprint != hex(t.corpus.fingerprint))
    throw Error(format("%s: trained on data with fingerprint %s, --data and --val have %s; resume with the same data",
                       t.checkpoint.c_str(), fingerprint.c_str(), hex(t.corpus.fingerprint).c_str()));
  t.config = config_of(t.o, t.corpus.tokenizer.vocabulary);
  if (!t.o.init_from.empty()) {  // its tensors fit, or are refused by name
    const runtime::SafetensorsFile file(t.checkpoint);
    for (const Tensor &row : tensor_table(t.config).rows) file.at(row.name, "F32", row.shape());
  }
  if (t.o.steps > 0) data::Windows(t.corpus.train, t.config.T, data::Order::shuffle, 0);
  if (t.o.sample_every > 0 && t.corpus.tokenizer.can_decode()) t.corpus.tokenizer.encode(t.o.prompt);
  if (t.corpus.val.size() < 2) printf("note: no validation data (%lld tokens)\n", (long long)t.corpus.val.size());
  t.threads = device::set_threads(t.o.threads);
  return t;
}

static void write_facts(runtime::RunLog &log, const Training &t, const GPT<float> &model, const MemoryPlan &plan) {
  std::vector<json::Literal> tensors;
  for (const Tensor &row : model.table.rows)
    tensors.push_back(json::Literal::raw(
        json::object({{"name", row.name}, {"rows", row.rows}, {"columns", row.cols}, {"decay", row.decay}})));
  log.fact("options", json::Literal::raw(runtime::effective_json(t.o)));
  log.fact("built_in_options", WAV_OPTIONS);
  log.fact("build", device::BUILD);
  log.fact("simd", device::simd_name());
  log.fact("compiler", __VERSION__);
  log.fact("commit", WAV_COMMIT);
  log.fact("threads", t.threads);
  log.fact("float_order", exact::FLOAT_ORDER);
  log.fact("data", t.corpus.description);
  log.fact("data_fingerprint", hex(t.corpus.fingerprint));
  log.fact("parameters", model.table.parameters);
  log.fact("planned_bytes", plan.total());
  log.fact("flops_per_token", t.config.flops_per_token(t.config.T));
  log.fact("first_step", t.first_step);
  log.fact("tensors", json::Literal::raw(json::array(tensors)));
}

struct Loop {
  Training &t;
  const Options &o;
  GPT<float> &model;
  runtime::RunLog &log;
  runtime::Progress &progress;
  runtime::Schedule schedule;
  double best = HUGE_VAL;

  void save(int64_t step) {
    const int64_t n = model.table.floats;
    const auto params = device::on_host(model.params.data, n), moments = device::on_host(model.moments.data, 2 * n);
    const runtime::State state{&model.table, &params[0], &moments[0], &moments[n]};
    runtime::save_checkpoint(runtime::checkpoint_path(o.out, step), state,
                             {o, t.corpus.tokenizer.to_text(), step, hex(t.corpus.fingerprint)});
    runtime::prune_checkpoints(o.out, o.keep, step);
  }
  void evaluation(int64_t step, bool whole) {
    if (t.corpus.val.size() < 2) return;
    const data::EvalWindows windows(t.corpus.val, t.config.T, whole ? 0 : o.eval_tokens);
    const Evaluation e = evaluate(model, windows, t.corpus.tokenizer);
    log.event("eval", step,
              {{"loss", e.loss},
               {"bpc", e.bits_per_character},
               {"perplexity", e.perplexity},
               {"predictions", e.predictions},
               {"whole", whole}});
    progress.line(format("validation after step %lld: %s", (long long)step, e.text().c_str()));
    if (windows.predictions >= t.config.T) observe_routes(step, windows);
    if (e.loss < best) {
      best = e.loss;
      log.fact("best_validation_loss", best);
      log.fact("best_validation_step", step);
    }
    if (whole) {
      log.fact("final_validation_loss", e.loss);
      log.fact("final_bits_per_character", e.bits_per_character);
    }
  }
  // The short form of the routing, of one pass without gradients
  void observe_routes(int64_t step, const data::EvalWindows &windows) {
    std::vector<int32_t> inputs, targets;
    const int64_t n = windows.batch(inputs, targets, 0, o.batch, windows.windows);
    Routes routes;
    routes.add(model, inputs.data(), nullptr, n, windows.T);
    log.event("routes", step, routes.short_members());
  }
  // One optimizer step; throws on a loss or gradient that is not finite, before anything is changed
  runtime::StepInfo step(int64_t step, const data::Windows &windows, std::vector<int32_t> &inputs,
                         std::vector<int32_t> &targets) {
    const int64_t T = t.config.T, count = o.batch * T;
    windows.batch(inputs.data(), targets.data(), (uint64_t)step * (uint64_t)o.batch, o.batch);
    runtime::StepInfo info;
    info.step = step + 1;
    info.lr = runtime::learning_rate(schedule, step);
    info.loss = model.gradients(inputs.data(), targets.data(), o.batch, T, count) / (double)count;
    model.finish_gradients();
    info.norm = model.gradient_norm();
    const Tensor *bad = model.first_not_finite();
    if (bad || !(info.loss < HUGE_VAL))
      throw Error(format(
          "step %lld: %s is not finite (loss %g); the last checkpoint in %s is good; try a smaller --lr or --clip",
          (long long)step + 1, bad ? ("the gradient of " + bad->name).c_str() : "the loss", info.loss, o.out.c_str()));
    AdamW h;
    h.lr = info.lr;
    h.beta1 = o.beta1;
    h.beta2 = o.beta2;
    h.eps = o.adam_eps;
    h.decay = 0;
    h.correction1 = runtime::bias_correction(o.beta1, step + 1);
    h.correction2 = runtime::bias_correction(o.beta2, step + 1);
    h.scale = o.clip > 0 && info.norm > o.clip ? o.clip / info.norm : 1;
    model.update(h, o.router_lr, o.weight_decay);
    return info;
  }
};

static const char *run(Loop &loop, double peak) {
  const Options &o = loop.o;
  const int64_t T = loop.t.config.T, first = loop.t.first_step;
  const data::Windows windows(loop.t.corpus.train, T, data::order_named(o.order), (uint64_t)o.data_seed);
  std::vector<int32_t> inputs(o.batch * T), targets(o.batch * T);
  const runtime::StopFlag stop;
  const double start = runtime::seconds_now(), flops = loop.t.config.flops_per_token(T);
  if (o.steps == 0) loop.save(0);
  for (int64_t step = first; step < o.steps; step++) {
    const double before = runtime::seconds_now();
    runtime::StepInfo info = loop.step(step, windows, inputs, targets);
    const double now = runtime::seconds_now(), done = (double)(step + 1);
    info.tokens_per_second = (double)(o.batch * T) / (now - before);
    info.fma_share = info.tokens_per_second * flops / peak;
    loop.log.event(
        "step", step + 1,
        {{"loss", info.loss}, {"lr", info.lr}, {"norm", info.norm}, {"tokens_per_second", info.tokens_per_second}});
    loop.progress.step(info, now);
    const bool last = step + 1 == o.steps;
    const bool stopping = !last && (stop.requested() || step + 1 == o.stop_after ||
                                    (o.max_minutes > 0 && now - start > 60 * o.max_minutes));
    if (!last && !stopping && o.eval_every > 0 && (step + 1) % o.eval_every == 0) loop.evaluation(step + 1, false);
    if (last) loop.evaluation(step + 1, true);
    if (o.sample_every > 0 && (step + 1) % o.sample_every == 0 && loop.t.corpus.tokenizer.can_decode())
      loop.progress.line("sample after step " + std::to_string(step + 1) + ": " +
                         sample(loop.model, loop.t.corpus.tokenizer, o, (int64_t)done));
    if (last || stopping || (o.save_every > 0 && (step + 1) % o.save_every == 0)) loop.save(step + 1);
    if (stopping) {
      loop.progress.line(format("stopped after step %lld%s%s; --resume %s goes on", (long long)step + 1,
                                stop.requested() ? " by " : "", stop.name(), o.out.c_str()));
      return "stopped";
    }
  }
  return "finished";
}

static int train(const Parsed &parsed) {
  signal(SIGPIPE, SIG_IGN);  // a reader that went away does not end the run
  Training t = prepare(parsed);
  const Sizes sizes{runtime::effective_micro_batch(t.o), divide_up(t.o.batch, runtime::effective_micro_batch(t.o)),
                    true};
  const MemoryPlan plan = GPT<float>::plan(t.config, sizes, t.threads);
  printf("data: %s\n", t.corpus.description.c_str());
  print_model(t.config, tensor_table(t.config), plan, t.o.verbose || t.o.dry_run);
  if (t.o.dry_run) return 0;
  const double peak = device::fma_peak(0.03);
  printf("build: %s, %s, %d thread%s, FMA peak %.1f GFLOP/s; %.1f MFLOP per token\n", device::BUILD,
         device::simd_name().c_str(), t.threads, t.threads > 1 ? "s" : "", peak / 1e9,
         t.config.flops_per_token(t.config.T) / 1e6);
  fflush(stdout);
  GPT<float> model(t.config, sizes);
  if (t.checkpoint.empty())
    model.initialize((uint64_t)t.o.seed);
  else {
    load_state(model, runtime::SafetensorsFile(t.checkpoint), t.o.resume);
  }
  const json::Value before = t.o.resume ? runtime::RunLog::previous(t.o.out) : json::Value();
  runtime::RunLog log(t.o.out, t.o.resume ? t.first_step : -1);
  runtime::Progress progress(stdout, t.first_step, t.o.steps, runtime::seconds_now());
  Loop loop{t, t.o, model, log, progress, runtime::schedule_of(t.o)};
  if (const json::Value *best = before.find("best_validation_loss"))
    if (const json::Value *at = before.find("best_validation_step")) {
      int64_t step = 0;
      if (at->to(step) && step <= t.first_step && best->to(loop.best)) {
        log.fact("best_validation_loss", loop.best);
        log.fact("best_validation_step", step);
      }
    }
  write_facts(log, t, model, plan);
  log.status("running");
  try {
    const char *status = run(loop, peak);
    progress.finish();
    log.status(status);
  } catch (const std::exception &e) {
    progress.finish();
    log.fact("error", e.what());
    log.status("failed");
    throw;
  }
  return 0;
}

// ---- the other commands

struct Loaded {
  Options o;
  data::Tokenizer tokenizer;
  std::unique_ptr<GPT<float>> model;
};
static Loaded load(const Parsed &parsed, const Sizes &sizes) {
  const runtime::SafetensorsFile file(runtime::find_checkpoint(parsed.positional[0]));
  const runtime::CheckpointInfo info = runtime::read_info(file, parsed.options);
  Loaded l{info.options, data::Tokenizer::from_text(info.tokenizer), nullptr};
  if (parsed.given.count("split")) l.o.split = parsed.options.split;
  device::set_threads(l.o.threads);
  l.model = std::make_unique<GPT<float>>(config_of(l.o, l.tokenizer.vocabulary), sizes);
  load_state(*l.model, file, false);
  return l;
}
static int eval_command(const Parsed &parsed) {
  Loaded l = load(parsed, {parsed.options.batch, 1, false});
  data_options_of_run(l.o, parsed.given, runtime::parent_directory(runtime::find_checkpoint(parsed.positional[0])));
  if (const int code = report(runtime::contradictions(l.o, "eval", parsed.given))) return code;
  const data::Corpus corpus = open_data(l.o, &l.tokenizer);
  const data::EvalWindows windows(l.o.part == "test" ? corpus.test : corpus.val, l.model->c.T, 0,
                                  l.o.part == "test" ? "test data" : "validation data");
  printf("%s: %s\n", l.o.part.c_str(), evaluate(*l.model, windows, l.tokenizer).text().c_str());
  return 0;
}
static int routes_command(const Parsed &parsed) {
  const std::string path = runtime::find_checkpoint(parsed.positional[0]), directory = runtime::parent_directory(path);
  Loaded l = load(parsed, {parsed.options.batch, 1, true});
  data_options_of_run(l.o, parsed.given, directory);
  const data::Corpus corpus = open_data(l.o, &l.tokenizer);
  const data::EvalWindows windows(corpus.val, l.model->c.T, std::max(l.o.eval_tokens, l.model->c.T));
  if (windows.predictions < windows.T)
    throw Error(format("validation data: %lld predictions, need %lld for one whole window; use more data",
                       (long long)windows.predictions, (long long)windows.T));
  const Routes routes = measure_routes(*l.model, windows, l.o.eval_tokens);
  runtime::write_file(directory + "/routing.json", routes.json());
  printf("%s\n%s/routing.json written; python3 dev/plot.py routes %s/routing.json draws it\n",
         routes.short_json().c_str(), directory.c_str(), directory.c_str());
  return 0;
}
static int sample_command(const Parsed &parsed) {
  Loaded l = load(parsed, {1, 1, false});
  for (int64_t i = 0; i < l.o.samples; i++)
    printf("%s%s\n", i ? "---\n" : "", sample(*l.model, l.tokenizer, l.o, i).c_str());
  return 0;
}
static int show_command(const Parsed &parsed) {
  const runtime::SafetensorsFile file(runtime::find_checkpoint(parsed.positional[0]));
  const runtime::CheckpointInfo info = runtime::read_info(file, parsed.options);
  printf("%s: step %lld, float order %s, data %s, tokenizer %.60s%s\n", file.path.c_str(), (long long)info.step,
         file.text("float_order").c_str(), info.fingerprint.c_str(), info.tokenizer.c_str(),
         info.tokenizer.size() > 60 ? "..." : "");
  const json::Value config = json::parse(file.text("config"), file.path);
  for (size_t i = 0; i < config.keys.size(); i++)
    printf("  %-18s %s\n", config.keys[i].c_str(), config.items[i].text.c_str());
  if (info.options.reads) {
    const Config c = config_of(info.options, 1);
    const TensorTable table = tensor_table(c);
    const auto reads = make_router<float>(c, table, Flat<float>())->reads();
    if (reads.empty()) printf("%s: h_j = x_j, the stream\n", c.router.c_str());
    fputs(reads_text(reads).c_str(), stdout);
  }
  int64_t parameters = 0, n = 0;
  for (const runtime::TensorView &t : file.tensors) {
    runtime::count_elements(t.shape, n);
    double sum = 0, largest = 0;
    for (int64_t i = 0; i < n && t.dtype == "F32"; i++) {
      const double x = ((const float *)t.data)[i];
      sum += x * x;
      largest = std::max(largest, std::fabs(x));
    }
    const bool moment = t.name.compare(0, 5, "adam.") == 0;
    if (!moment) parameters += n;
    if (!moment || info.options.verbose)
      printf("  %-30s %s %-14s rms %-10.4g largest %.4g\n", t.name.c_str(), t.dtype.c_str(),
             runtime::shape_text(t.shape).c_str(), n ? exact::sqrt(sum / (double)n) : 0, largest);
  }
  printf("%lld parameters, %lld bytes\n", (long long)parameters, (long long)file.file_bytes);
  return 0;
}

static int methods_command(const Parsed &parsed) {
  const Options &o = parsed.options;
  std::string text = runtime::methods_text();
  if (o.markdown) text = runtime::methods_markdown();
  if (o.names) text = runtime::methods_names();
  if (o.json) text = runtime::methods_json();
  fputs(text.c_str(), stdout);
  return 0;
}

int main(int argc, char **argv) {
  try {
    const Parsed parsed = runtime::parse(argc, argv, WAV_OPTIONS);
    if (const int code = report(parsed.errors)) return code;
    if (!parsed.help.empty()) {
      fputs((parsed.help == "markdown" ? runtime::help_markdown() : runtime::help(parsed.command)).c_str(), stdout);
      return 0;
    }
    if (parsed.command == "train") return train(parsed);
    if (parsed.command == "eval") return eval_command(parsed);
    if (parsed.command == "sample") return sample_command(parsed);
    if (parsed.command == "routes") return routes_command(parsed);
    if (parsed.command == "show") return show_command(parsed);
    if (parsed.command == "methods") return methods_command(parsed);
    return runtime::compare_checkpoints(runtime::find_checkpoint(parsed.positional[0]),
                                        runtime::find_checkpoint(parsed.positional[1]), stdout);
  } catch (const std::exception &e) {
    fflush(stdout);
    fprintf(stderr, "train_gpt: %s\n", e.what());
    return 1;
  }
}
