// training.cuh: the train command: preparation, the loop over steps, what it leaves in the folder of the run.
//
// After a step, in this order: log.jsonl, the checkpoint if one is due, evaluation and sample. So whatever goes wrong in
// what is only looked at, the state is on the disk. A checkpoint is due at the end, before a stop, before every evaluation
// and sample, every --save-every steps, every --save-minutes, and when SIGUSR1 asks for it.
#pragma once
#include <sched.h>
#include "runtime/schedule.cuh"
#include "runtime/signals.cuh"
#include "setup.cuh"

struct Program {  // what run.json says about the binary
  const char *options, *commit;
};
struct Training {
  Options o;
  data::Corpus corpus;
  Config config;
  std::string checkpoint;  // to begin with: of --resume or --init-from, or ""
  int64_t first_step = 0;
  int threads = 1;
  std::vector<std::string> notes;
  std::vector<float> start;  // the router's parameters at the start of the run, one tensor after another
  std::unique_ptr<runtime::FolderLock> lock = std::make_unique<runtime::FolderLock>();  // of o.out
};

// Does run.json say that nothing is left to be done?
inline bool finished(const std::string &directory) {
  const json::Value run = runtime::RunLog::previous(directory);
  const json::Value *status = run.find("status");
  return status && status->text == "finished";
}

// The folder, if it is there; a new one is locked when it is made
inline void lock_folder(Training &t, const std::string &directory) {
  if (t.o.dry_run) return;
  runtime::refuse_unwritable(directory);
  if (runtime::file_exists(directory)) t.lock->take(directory);
}
inline void refuse_used(const std::string &directory) {
  if (!runtime::checkpoint_steps(directory).empty())
    throw Error(directory +
                ": holds checkpoints of an earlier run; --resume goes on with it, --out names another folder");
}

// --resume: the science of the checkpoint, the rest of the command line; returns the data's fingerprint
inline std::string take_up(Training &t, const Parsed &parsed, std::unique_ptr<data::Tokenizer> &fixed) {
  const std::string from = t.o.resume_from.empty() ? t.o.out : t.o.resume_from;
  t.checkpoint = runtime::find_checkpoint(from);
  lock_folder(t, parsed.given.count("out") ? t.o.out : runtime::parent_directory(t.checkpoint));
  t.checkpoint = runtime::find_checkpoint(from);  // now that no other run can add one
  const Checkpoint checkpoint(t.checkpoint, t.o);
  const runtime::CheckpointInfo &info = checkpoint.info;
  resolve(t.o);
  std::vector<std::string> errors = runtime::science_differences(t.o, info.options, &parsed.given);
  t.o = info.options;
  t.o.out = runtime::without_slashes(t.o.out);
  t.first_step = info.step;
  for (const std::string &e : runtime::contradictions(t.o, "train", parsed.given)) errors.push_back(e);
  if (const int code = report(errors)) exit(code);
  fixed = std::make_unique<data::Tokenizer>(checkpoint.tokenizer);
  const std::string directory = runtime::parent_directory(t.checkpoint);
  if (!parsed.given.count("out")) t.o.out = directory;
  if (!runtime::same_folder(t.o.out, directory) && !runtime::checkpoint_steps(t.o.out).empty())
    throw Error(t.o.out + ": holds checkpoints of another run; --out names a folder without");
  if (t.first_step >= t.o.steps && finished(directory))
    throw Error(format("%s: the run is finished (step %lld of %lld); --init-from begins another from its parameters",
                       t.checkpoint.c_str(), (long long)t.first_step, (long long)t.o.steps));
  if (t.o.stop_after > 0 && t.o.stop_after <= t.first_step)
    throw Error(format("--stop-after %lld is not beyond the checkpoint's step %lld; name a later step",
                       (long long)t.o.stop_after, (long long)t.first_step));
  data_options_of_run(t.o, parsed.given, directory);
  return info.fingerprint;
}
inline void begin(Training &t, std::unique_ptr<data::Tokenizer> &fixed) {
  resolve(t.o);
  if (!t.o.init_from.empty()) t.checkpoint = runtime::find_checkpoint(t.o.init_from);
  lock_folder(t, t.o.out);
  if (!t.o.dry_run) refuse_used(t.o.out);
  if (t.checkpoint.empty()) return;
  const Checkpoint checkpoint(t.checkpoint, t.o);
  const Options &from = checkpoint.info.options;
  if (from.router != t.o.router || from.heads != t.o.heads || from.details != t.o.details || from.block != t.o.block)
    printf("note: %s was trained with --router %s --heads %lld --block %lld --details %s\n", t.checkpoint.c_str(),
           from.router.c_str(), (long long)from.heads, (long long)from.block, from.details.c_str());
  fixed = std::make_unique<data::Tokenizer>(checkpoint.tokenizer);
}

// Cores that this process may use
inline int cores_here() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) ? 1 << 20 : CPU_COUNT(&set);
}

// Everything that can be refused is refused here, before anything large is allocated
inline Training prepare(const Parsed &parsed) {
  Training t;
  t.o = parsed.options;
  t.notes = parsed.notes;
  t.o.out = runtime::without_slashes(t.o.out);
  std::unique_ptr<data::Tokenizer> fixed;
  std::string fingerprint;
  if (t.o.resume)
    fingerprint = take_up(t, parsed, fixed);
  else
    begin(t, fixed);
  t.corpus = open_data(t.o, fixed.get());
  if (t.o.resume && fingerprint != hex(t.corpus.fingerprint))
    throw Error(format("%s: trained on data with fingerprint %s, --data and --val have %s; resume with the same data",
                       t.checkpoint.c_str(), fingerprint.c_str(), hex(t.corpus.fingerprint).c_str()));
  t.config = config_of(t.o, t.corpus.tokenizer.vocabulary);
  if (!t.o.init_from.empty()) check_initial(runtime::SafetensorsFile(t.checkpoint), tensor_table(t.config));
  if (t.o.steps > 0) data::Windows(t.corpus.train, t.config.T, data::Order::shuffle, 0);
  if (t.o.sample_every > 0 && t.corpus.tokenizer.can_decode()) t.corpus.tokenizer.encode(t.o.prompt);
  if (t.corpus.val.size() < 2) printf("note: no validation data (%lld tokens)\n", (long long)t.corpus.val.size());
  t.threads = device::set_threads(t.o.threads);
  const int cores = cores_here();
  if (t.o.threads > cores)
    printf("note: --threads %lld on %d core%s: more threads than cores are slower\n", (long long)t.o.threads, cores,
           cores > 1 ? "s" : "");
  return t;
}

inline void write_facts(runtime::RunLog &log, const Training &t, const Program &program, const GPT<float> &model,
                        const MemoryPlan &plan) {
  std::vector<json::Literal> tensors;
  for (const Tensor &row : model.table.rows)
    tensors.push_back(json::Literal::raw(
        json::object({{"name", row.name}, {"rows", row.rows}, {"columns", row.cols}, {"decay", row.decay}})));
  log.fact("options", json::Literal::raw(runtime::effective_json(t.o)));
  if (!t.notes.empty()) log.fact("notes", json::Literal::raw(json::array({t.notes.begin(), t.notes.end()})));
  log.fact("built_in_options", program.options);
  log.fact("build", device::BUILD);
  log.fact("simd", device::simd_name());
  log.fact("compiler", __VERSION__);
  log.fact("commit", program.commit);
  log.fact("threads", t.threads);
  log.fact("float_order", exact::FLOAT_ORDER);
  log.fact("data", t.corpus.description);
  log.fact("paths",
           json::Literal::raw(json::object(
               {{"data", absolute_path(t.o.data)}, {"val", absolute_path(t.o.val)}, {"out", absolute_path(t.o.out)}})));
  log.fact("data_fingerprint", hex(t.corpus.fingerprint));
  log.fact("parameters", model.table.parameters);
  log.fact("planned_bytes", plan.total());
  log.fact("flops_per_token", t.config.flops_per_token(t.config.T));
  log.fact("first_step", t.first_step);
  log.fact("tensors", json::Literal::raw(json::array(tensors)));
}

// The first value of the state that is not finite: "the parameter embed[41] = [1,5] is inf"; "" where all are finite
inline std::string not_finite(const TensorTable &table, const float *params, const float *moments) {
  const struct {
    const char *what;
    const float *flat;
  } parts[] = {{"the parameter ", params},
               {"the first moment of ", moments},
               {"the second moment of ", moments ? moments + table.floats : nullptr}};
  for (const auto &part : parts)
    for (const Tensor &t : table.rows) {
      const int64_t i = part.flat ? runtime::first_not_finite(part.flat + t.offset, t.size()) : -1;
      if (i >= 0)
        return part.what + runtime::element_name(t.name, t.shape(), i) +
               format(" is %g", (double)part.flat[t.offset + i]);
    }
  return "";
}

// The router's parameters, one tensor after another
inline std::vector<float> router_values(const GPT<float> &model) {
  std::vector<float> values;
  for (const Tensor &t : model.table.rows) {
    if (!t.router) continue;
    const auto x = device::on_host(model.params.data + t.offset, t.size());
    values.insert(values.end(), &x[0], &x[0] + t.size());
  }
  return values;
}
// Groups of the router's parameters (all "q", all "beta", ...) of which no element has moved since the start by more than
// rounding: it takes no part, or its gradient is lost. At the largest learning rate one step of AdamW is about `lr`.
inline std::vector<std::string> unmoved_groups(const TensorTable &table, const std::vector<float> &start,
                                               const std::vector<float> &now, double lr) {
  std::map<std::string, double> moved;  // by the last part of the name: the largest move in units of what is rounding
  size_t at = 0;
  for (const Tensor &t : table.rows) {
    if (!t.router) continue;
    double &most = moved[t.name.substr(t.name.rfind('.') + 1)];
    for (int64_t i = 0; i < t.size(); i++, at++) {
      const double rounding = 1e-6 * std::fabs((double)start[at]) + 1e-3 * lr;
      most = std::max(most, std::fabs((double)now[at] - (double)start[at]) / rounding);
    }
  }
  std::vector<std::string> groups;
  for (const auto &group : moved)
    if (group.second < 1) groups.push_back(group.first);
  return groups;
}

struct Loop {
  Training &t;
  const Options &o;
  GPT<float> &model;
  runtime::RunLog &log;
  runtime::Progress &progress;
  runtime::StopFlag &stop;
  runtime::Schedule schedule;
  double best = HUGE_VAL;
  double start = runtime::seconds_now(), saved_at = start;
  int64_t done = t.first_step, saved = t.o.resume ? t.first_step : -1;  // the step that the state is at, and the file's
  bool saving = false;                                                  // a save was begun and did not end

  // Has a signal come, or the time of --max-minutes passed?
  bool over() const {
    return stop.requested() || (o.max_minutes > 0 && runtime::seconds_now() - start > 60 * o.max_minutes);
  }
  GoOn go_on(const char *what) {
    const double begin = runtime::seconds_now();
    return [=](int64_t part, int64_t all) {
      progress.part(what, part, all, begin, runtime::seconds_now());
      return !over();
    };
  }

  // A state that is not finite is never written, so it never replaces a good file
  void save() {
    const int64_t n = model.table.floats;
    const auto params = device::on_host(model.params.data, n), moments = device::on_host(model.moments.data, 2 * n);
    const std::string wrong = not_finite(model.table, &params[0], &moments[0]);
    if (!wrong.empty()) throw Error(format("step %lld: %s; %s", (long long)done, wrong.c_str(), kept().c_str()));
    const runtime::State state{&model.table, &params[0], &moments[0], &moments[n]};
    saving = true;
    runtime::save_checkpoint(runtime::checkpoint_path(o.out, done), state,
                             {o, t.corpus.tokenizer.to_text(), done, hex(t.corpus.fingerprint)});
    saving = false;
    saved = done;
    saved_at = runtime::seconds_now();
    runtime::prune_checkpoints(o.out, o.keep, done);
  }
  // What a failure leaves: "the last checkpoint, of step 7, is good; ..."
  std::string kept() const {
    const std::string advice = "try a smaller --lr or --clip";
    if (saved < 0) return "no checkpoint was written; " + advice;
    return format("the last checkpoint in %s, of step %lld, is good; ", o.out.c_str(), (long long)saved) + advice;
  }
  // After an error: the state that the last whole step left, if it is good and not on the disk yet; what was done
  std::string rescue() {
    if (saving || done == saved || done == t.first_step) return "";
    try {
      save();
    } catch (const Error &) {
      return "";
    }
    return format("; the state of step %lld is saved in %s", (long long)saved, o.out.c_str());
  }

  bool evaluation_due() const {
    return t.corpus.val.size() >= 2 && (done == o.steps || (o.eval_every > 0 && done % o.eval_every == 0));
  }
  bool sample_due() const {
    return o.sample_every > 0 && done % o.sample_every == 0 && t.corpus.tokenizer.can_decode();
  }
  bool save_due() const {
    return (o.save_every > 0 && done % o.save_every == 0) ||
           (o.save_minutes > 0 && runtime::seconds_now() - saved_at >= 60 * o.save_minutes);
  }

  // False where it was left on the way: nothing of it is logged then
  bool evaluation() {
    const bool last = done == o.steps;
    const data::EvalWindows windows(t.corpus.val, t.config.T, last ? o.final_tokens : o.eval_tokens);
    const Evaluation e = evaluate(model, windows, t.corpus.tokenizer, go_on("validation"));
    if (!e.whole) return false;
    if (e.loss < best) {
      best = e.loss;
      log.fact("best_validation_loss", best);
      log.fact("best_validation_step", done);
    }
    if (last) {
      log.fact("final_validation_loss", e.loss);
      log.fact("final_bits_per_byte", e.bits_per_byte);
    }
    if (windows.predictions >= t.config.T) observe_routes(windows);
    log.event("eval", done,
              {{"loss", e.loss},
               {"bpb", e.bits_per_byte},
               {"perplexity", e.perplexity},
               {"predictions", e.predictions},
               {"whole", windows.predictions + 1 == t.corpus.val.size()}});
    progress.line(format("validation after step %lld: %s", (long long)done, e.text().c_str()));
    return true;
  }
  // The short form of the routing, of one pass without gradients
  void observe_routes(const data::EvalWindows &windows) {
    std::vector<int32_t> inputs, targets;
    const int64_t n = windows.batch(inputs, targets, 0, o.batch, windows.windows);
    Routes routes;
    routes.add(model, inputs.data(), nullptr, n, windows.T);
    log.event("routes", done, routes.short_members());
  }
  void print_sample() {
    std::string text;
    sample(model, t.corpus.tokenizer, o, done, [&](const std::string &piece) {
      text += piece;
      return !over();
    });
    progress.line("sample after step " + std::to_string(done) + ": " + runtime::without_controls(text));
  }

  [[noreturn]] void refuse_step(int64_t step, double loss) {
    const auto params = device::on_host(model.params.data, model.table.floats);
    std::string wrong = not_finite(model.table, &params[0], nullptr);
    const Tensor *bad = model.first_not_finite();
    if (wrong.empty()) wrong = bad ? "the gradient of " + bad->name + " is not finite" : "the loss is not finite";
    throw Error(format("step %lld: %s (loss %g); %s", (long long)step + 1, wrong.c_str(), loss, kept().c_str()));
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
    if (model.first_not_finite() || !(info.loss < HUGE_VAL)) refuse_step(step, info.loss);
    AdamW h;
    h.lr = info.lr;
    h.beta1 = o.beta1;
    h.beta2 = o.beta2;
    h.eps = o.adam_eps;
    h.decay = 0;
    h.correction1 = runtime::bias_correction(o.beta1, step + 1);
    h.correction2 = runtime::bias_correction(o.beta2, step + 1);
    h.scale = o.clip > 0 && info.norm > o.clip ? o.clip / info.norm : 1;
    info.clip = h.scale;
    model.update(h, o.router_lr, o.weight_decay);
    done = step + 1;
    return info;
  }
};

// How a run ended: `interrupted` by a signal or --max-minutes, `stopped` by --stop-after
enum class Ending { finished, stopped, interrupted };

// At the end: the files may have been changed in a way that no read could notice
inline void refuse_other_data(const data::Corpus &corpus) {
  const uint64_t now = corpus.fingerprint_now();
  if (now != corpus.fingerprint)
    throw Error(
        format("the data changed during the run: their fingerprint is %s, at the start it was %s; what was "
               "trained is not what run.json says",
               hex(now).c_str(), hex(corpus.fingerprint).c_str()));
}

// At the end: what of the router has not moved. Fixed on purpose, or at a learning rate of 0, it is not expected to
inline void warn_unmoved(Loop &loop) {
  const Options &o = loop.o;
  const double lr = o.lr * o.router_lr;
  if (o.steps < 10 || lr <= 0 || loop.t.start.empty()) return;
  for (const std::string &group : unmoved_groups(loop.model.table, loop.t.start, router_values(loop.model), lr)) {
    if (group == "beta" && o.fixed_beta) continue;
    const std::string text = "no " + group + " of the router has moved by more than rounding since the start; see " +
                             (group == "beta" ? "--beta, --rho" : "--router-lr") + " and docs/pitfalls.md";
    loop.t.notes.push_back(text);
    loop.log.event("warning", loop.done, {{"text", text}});
    loop.progress.line("warning: " + text);
  }
}

inline Ending leave(Loop &loop, bool by_plan) {
  const char *name = loop.stop.name();
  loop.progress.line(format("stopped after step %lld%s%s; --resume %s goes on", (long long)loop.done,
                            *name ? " by " : "", name, loop.o.out.c_str()));
  return by_plan && !loop.over() ? Ending::stopped : Ending::interrupted;
}

inline Ending run(Loop &loop, double peak) {
  const Options &o = loop.o;
  const int64_t T = loop.t.config.T;
  const double flops = loop.t.config.flops_per_token(T);
  std::vector<int32_t> inputs(o.batch * T), targets(o.batch * T);
  if (o.steps == 0 && loop.saved < 0) loop.save();
  // an evaluation that a checkpoint was written for, and that its run did not live to see
  if (o.resume && loop.evaluation_due() && !loop.log.has("eval", loop.done) && !loop.evaluation())
    return leave(loop, false);
  if (loop.done >= o.steps) return Ending::finished;
  const data::Windows windows(loop.t.corpus.train, T, data::order_named(o.order), (uint64_t)o.data_seed);
  while (loop.done < o.steps) {
    const double before = runtime::seconds_now();
    runtime::StepInfo info = loop.step(loop.done, windows, inputs, targets);
    const double now = runtime::seconds_now();
    info.tokens_per_second = (double)(o.batch * T) / (now - before);
    info.fma_share = info.tokens_per_second * flops / peak;
    loop.log.event("step", loop.done,
                   {{"loss", info.loss},
                    {"lr", info.lr},
                    {"norm", info.norm},
                    {"clip", info.clip},
                    {"tokens_per_second", info.tokens_per_second}});
    loop.progress.step(info, now);
    const bool last = loop.done == o.steps, planned = !last && loop.done == o.stop_after;
    const bool stopping = planned || loop.over(), asked = loop.stop.take_save();
    const bool look = !stopping && (loop.evaluation_due() || loop.sample_due());
    if (last || stopping || look || asked || loop.save_due()) loop.save();
    if (asked) loop.progress.line(format("saved after step %lld, as SIGUSR1 asks", (long long)loop.done));
    if (look && loop.evaluation_due()) loop.evaluation();
    if (look && loop.sample_due() && !loop.over()) loop.print_sample();
    if (planned || loop.over()) return leave(loop, planned);
  }
  return Ending::finished;
}

// The best validation loss so far, of the run.json of the run that goes on
inline void take_best(Loop &loop, const json::Value &before) {
  const json::Value *best = before.find("best_validation_loss"), *at = before.find("best_validation_step");
  int64_t step = 0;
  if (!best || !at || !at->to(step) || step > loop.t.first_step || !best->to(loop.best)) return;
  loop.log.fact("best_validation_loss", loop.best);
  loop.log.fact("best_validation_step", step);
}

inline int train_loop(Loop &loop, double peak) {
  loop.log.status("running");
  try {
    const Ending ending = run(loop, peak);
    loop.progress.finish();
    if (ending == Ending::finished) {
      warn_unmoved(loop);
      refuse_other_data(loop.t.corpus);
    }
    loop.log.status(ending == Ending::finished ? "finished" : "stopped");
    return ending == Ending::interrupted ? 3 : 0;
  } catch (const std::exception &e) {
    loop.progress.finish();
    const std::string what = e.what() + loop.rescue();
    loop.log.fact("error", what);
    try {
      loop.log.status("failed");
    } catch (const Error &) {  // the folder is gone or full: the first reason is the one to tell
    }
    throw Error(what);
  }
}

// The model in memory; where that does not suffice, what would help
inline std::unique_ptr<GPT<float>> allocate(const Training &t, const Sizes &sizes) {
  try {
    return std::make_unique<GPT<float>>(t.config, sizes);
  } catch (const Error &e) {
    if (strstr(e.what(), "--micro-batch")) throw;  // the device's own advice
    const bool passes = sizes.B > 1 && strstr(e.what(), "for activations");
    throw Error(std::string(e.what()) +
                (passes ? "; a smaller --micro-batch needs less" : "; choose a smaller model or --context"));
  }
}

inline int train(const Parsed &parsed, const Program &program) {
  signal(SIGUSR1, SIG_IGN);  // until there is a state to save
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
  const auto model_memory = allocate(t, sizes);
  GPT<float> &model = *model_memory;
  model.initialize((uint64_t)t.o.seed);
  if (!t.checkpoint.empty() && !t.o.resume) load_initial(model, runtime::SafetensorsFile(t.checkpoint));
  t.start = router_values(model);
  if (t.o.resume) load_state(model, runtime::SafetensorsFile(t.checkpoint), true);
  const json::Value before = t.o.resume ? runtime::RunLog::previous(t.o.out) : json::Value();
  if (!t.lock->held()) {
    runtime::make_directories(t.o.out);
    t.lock->take(t.o.out);
    if (!t.o.resume) refuse_used(t.o.out);
  }
  runtime::RunLog log(t.o.out, t.o.resume ? t.first_step : -1);
  runtime::Progress progress(stdout, t.first_step, t.o.steps, runtime::seconds_now());
  runtime::StopFlag stop;
  Loop loop{t, t.o, model, log, progress, stop, runtime::schedule_of(t.o)};
  take_best(loop, before);
  write_facts(log, t, program, model, plan);
  return train_loop(loop, peak);
}
