// option_table.cuh: every option of the program stands here once, as a field with its default (Options) and as a row
// of the table (option_table) that drives the parser, --help, the tables of docs/options.md, run.json and the configuration
// in a checkpoint. A new option is one field and one row.
//
// Nature: `science` decides the bits of the trained model and is stored in checkpoints; `circumstance` (where, how
// fast, how often) does not and is not, so equal science gives equal files. Paths are circumstance: what stands for the
// data in a checkpoint is its fingerprint.
#pragma once
#include <cmath>
#include <set>
#include <variant>

#include "../routers/methods.cuh"
#include "json.cuh"

namespace runtime {

struct Options {
  // data
  std::string data = "stories", val, split = "90/5/5", part = "val", order = "shuffle";
  bool skip_unknown = false;
  int64_t data_seed = 1;
  // model
  std::string router = METHODS[0].name;
  int64_t layers = 4, channels = 128, heads = 4, context = 128;
  double eps = 1e-12, layerscale_init = 0;
  std::string details = "auto", final_read = "c";
  int64_t block = 8;
  double rho = 2, beta = -2, wav_eps = 1e-6, key_eps = 1e-12;
  bool fixed_beta = false;
  // training
  int64_t steps = 1000, batch = 8, micro_batch = 0, warmup = -1, seed = 1;
  double lr = 1e-3, min_lr = -1, weight_decay = 0.1, beta1 = 0.9, beta2 = 0.95, adam_eps = 1e-8, clip = 1;
  double router_lr = 1;
  std::string schedule = "cosine";
  // run
  std::string out = "runs/default", resume_from, init_from, options_file;
  bool resume = false, verbose = false, dry_run = false, reads = false, names = false, json = false, markdown = false;
  int64_t stop_after = 0, save_every = 0, keep = 2, eval_every = 100, eval_tokens = 262144, final_tokens = 0;
  int64_t sample_every = 0, threads = 0;
  double max_minutes = 0, save_minutes = 10;
  // sampling
  std::string prompt;
  int64_t tokens = 256, top_k = 0, samples = 1, sample_seed = 1;
  double temperature = 0.8, top_p = 1;
};

// What the defaults that mean "choose" come to
inline double effective_min_lr(const Options &o) { return o.min_lr < 0 ? o.lr / 10 : o.min_lr; }
inline int64_t effective_warmup(const Options &o) {
  const int64_t chosen = o.steps / 50 > 10 ? o.steps / 50 : 10;
  return o.warmup >= 0 ? o.warmup : std::min(chosen, o.steps);
}
inline int64_t effective_micro_batch(const Options &o) {
  return o.micro_batch == 0 || o.micro_batch > o.batch ? o.batch : o.micro_batch;
}
inline double effective_layerscale_init(const Options &o) {  // by depth, as in CaiT (Touvron et al. 2021)
  if (o.layerscale_init > 0) return o.layerscale_init;
  if (o.layers <= 18) return 0.1;
  return o.layers <= 24 ? 1e-5 : 1e-6;
}
// The details of a block by name: of the option, or what the router implies
inline std::vector<std::string> effective_details(const Options &o) {
  return details_of(method_named(o.router), o.details);
}
enum class Kind { integer, real, flag, text, choice, optional_text };  // optional_text: --name or --name VALUE
enum class Group { data, model, training, run, sampling };
enum class Nature { science, circumstance };
enum Command : unsigned {
  TRAIN = 1,
  EVAL = 2,
  SAMPLE = 4,
  SHOW = 8,
  COMPARE = 16,
  ROUTES = 32,
  METHODS_COMMAND = 64,
  ANY = 127
};

inline const char *group_name(Group g) {
  static const char *const names[] = {"data", "model", "training", "run", "sampling"};
  return names[(int)g];
}
inline const char *nature_name(Nature n) { return n == Nature::science ? "science" : "circumstance"; }

struct CommandRow {
  unsigned bit;
  const char *name, *positional;
  size_t count;
  const char *help;
};
inline const std::vector<CommandRow> &command_table() {
  static const std::vector<CommandRow> rows = {
      {TRAIN, "train", "", 0, "train a model (the command where none is named)"},
      {EVAL, "eval", "CKPT", 1, "loss of a checkpoint on a whole validation or test text"},
      {SAMPLE, "sample", "CKPT", 1, "text written by a checkpoint"},
      {ROUTES, "routes", "CKPT", 1,
       "what every read takes from every source: writes routing.json beside the checkpoint"},
      {SHOW, "show", "CKPT", 1, "configuration and tensors of a checkpoint; the sources of every read (--reads)"},
      {METHODS_COMMAND, "methods", "", 0,
       "every method of --router: what it reads and writes, its parameters, options, paper"},
      {COMPARE, "compare", "A B", 2, "two checkpoints bit by bit; exit code 1 if they differ"}};
  return rows;
}

// low <= value <= high, or the one value `other` outside that
struct Range {
  double low, high = HUGE_VAL;
  double other = NAN;
  bool holds(double x) const { return (x >= low && x <= high) || x == other; }
};

struct Option {
  const char *name;
  std::variant<int64_t Options::*, double Options::*, bool Options::*, std::string Options::*> field;
  Kind kind;
  Range range;                        // of integer and real
  std::vector<const char *> choices;  // of choice
  Group group;
  Nature nature;
  unsigned commands;
  const char *metavar, *help;
  bool Options::*present;  // of optional_text: set when the option is given, with or without a value
};

inline std::vector<const char *> method_names() {
  std::vector<const char *> names;
  for (const Method &m : METHODS) names.push_back(m.name);
  return names;
}

// How the rows below are written
struct OptionRows {
  using O = Options;
  static constexpr Nature science = Nature::science, circumstance = Nature::circumstance;
  std::vector<Option> rows;
  Group group = Group::data;
  void integer(const char *name, int64_t O::*f, Range r, Nature n, unsigned c, const char *help) {
    rows.push_back({name, f, Kind::integer, r, {}, group, n, c, "N", help, nullptr});
  }
  void real(const char *name, double O::*f, Range r, Nature n, unsigned c, const char *help) {
    rows.push_back({name, f, Kind::real, r, {}, group, n, c, "X", help, nullptr});
  }
  void flag(const char *name, bool O::*f, unsigned c, const char *help, Nature n = circumstance) {
    rows.push_back({name, f, Kind::flag, {0}, {}, group, n, c, "", help, nullptr});
  }
  void text(const char *name, std::string O::*f, const char *metavar, Nature n, unsigned c, const char *help) {
    rows.push_back({name, f, Kind::text, {0}, {}, group, n, c, metavar, help, nullptr});
  }
  void choice(const char *name, std::string O::*f, std::vector<const char *> choices, const char *metavar, Nature n,
              unsigned c, const char *help) {
    rows.push_back({name, f, Kind::choice, {0}, std::move(choices), group, n, c, metavar, help, nullptr});
  }

  // clang-format off
  void add_data() {
    group = Group::data;
    text("data", &O::data, "PATH", circumstance, TRAIN | EVAL | ROUTES,
         "text file, llm.c .bin shards (a glob), or `stories[:MB]`: the built-in generator");
    text("val", &O::val, "PATH", circumstance, TRAIN | EVAL | ROUTES,
         "validation text of its own; without it a part of --data (--split)");
    text("split", &O::split, "A/B/C", science, TRAIN | EVAL | ROUTES,
         "percentages of --data for training, validation and test, in this order");
    choice("part", &O::part, {"val", "test"}, "PART", circumstance, EVAL, "the part that eval reads");
    flag("skip-unknown", &O::skip_unknown, TRAIN | EVAL | ROUTES,
         "leave out bytes of the validation text that the training text lacks, instead of refusing them");
    choice("order", &O::order, {"shuffle", "random", "sequential"}, "ORDER", science, TRAIN,
           "training windows: a seeded permutation, random offsets, or one after another");
    integer("data-seed", &O::data_seed, {0}, science, TRAIN, "seed of the order of the training windows");
  }
  void add_model() {
    group = Group::model;
    choice("router", &O::router, method_names(), "METHOD", science, TRAIN,
           "how sublayers read and write the residual stream (`train_gpt methods` explains them)");
    integer("layers", &O::layers, {1, 1000}, science, TRAIN, "layers, each attention and MLP");
    integer("channels", &O::channels, {1, 65536}, science, TRAIN, "width of the residual stream, a multiple of --heads");
    integer("heads", &O::heads, {1, 1024}, science, TRAIN, "attention heads");
    integer("context", &O::context, {1, 1e6}, science, TRAIN, "tokens of a sequence");
    real("eps", &O::eps, {1e-30, 1}, science, TRAIN, "epsilon of the norms before sublayers and head");
    real("layerscale-init", &O::layerscale_init, {0, 1}, science, TRAIN,
         "first value of LayerScale's gains; 0: by depth, 0.1 up to 18 layers, 1e-5 up to 24, 1e-6 deeper");

    integer("block", &O::block, {1, 2000}, science, TRAIN, "sublayers (not layers) of a block");
    text("details", &O::details, "LIST", science, TRAIN,
         "details of a block: any of phase, split, random, duplicate, learned, with commas, or none; auto: what --router says");
    choice("final-read", &O::final_read, {"c", "all"}, "WHAT", science, TRAIN,
           "the final read sees the sums of the blocks, or their details too (ours: the paper's conservative read is c)");
    real("rho", &O::rho, {0, 1e6}, science, TRAIN, "largest factor that matches a detail's rms to its block's sum, per token (ours)");
    real("beta", &O::beta, {-1e6, 1e6}, science, TRAIN, "first value of the bias of a detail's score, one per read and basis, learned (ours; -2 is the paper's)");
    flag("fixed-beta", &O::fixed_beta, TRAIN, "keep the biases of details at --beta instead of learning them", science);
    real("wav-eps", &O::wav_eps, {1e-30, 1}, science, TRAIN, "epsilon beside a detail's rms when it is matched (ours)");
    real("key-eps", &O::key_eps, {1e-30, 1}, science, TRAIN, "epsilon of the norm of routing keys (ours: others use 1e-5)");
  }
  void add_training() {
    group = Group::training;
    integer("steps", &O::steps, {0, 1e12}, science, TRAIN,
            "optimizer steps of the whole run; 0: save the initial model and end");
    integer("batch", &O::batch, {1, 1e6}, science, TRAIN | EVAL | ROUTES, "sequences of a step");
    integer("micro-batch", &O::micro_batch, {0, 1e6}, circumstance, TRAIN,
            "sequences of a pass, a power of two; 0: the whole batch. The result is the same, smaller needs less memory");
    real("lr", &O::lr, {0, 1e3}, science, TRAIN, "largest learning rate");
    real("min-lr", &O::min_lr, {0, 1e3, -1}, science, TRAIN, "learning rate at the end; -1: a tenth of --lr");
    integer("warmup", &O::warmup, {0, 1e12, -1}, science, TRAIN,
            "steps of linear warm-up; -1: 2 % of --steps, at least 10");
    choice("schedule", &O::schedule, {"cosine", "linear", "wsd", "constant"}, "NAME", science, TRAIN,
           "after the warm-up; wsd: constant, linear over the last fifth of --steps");
    real("weight-decay", &O::weight_decay, {0, 1e3}, science, TRAIN,
         "decay of embedding, head and the matrices of the layers");
    real("beta1", &O::beta1, {0, 0.999999}, science, TRAIN, "AdamW: memory of the mean gradient");
    real("beta2", &O::beta2, {0, 0.999999}, science, TRAIN, "AdamW: memory of the mean square");
    real("adam-eps", &O::adam_eps, {1e-30, 1}, science, TRAIN, "AdamW: epsilon beside the root of the mean square");
    real("clip", &O::clip, {0, 1e9}, science, TRAIN, "largest norm of the whole gradient; 0: off");
    real("router-lr", &O::router_lr, {0, 1e6}, science, TRAIN,
         "factor on the learning rate of the parameters that --router adds");
    integer("seed", &O::seed, {0}, science, TRAIN, "seed of the initial parameters");
  }
  void add_run() {
    group = Group::run;
    text("out", &O::out, "DIR", circumstance, TRAIN, "folder of the run: checkpoints, log.jsonl, run.json");
    rows.push_back({"resume", &O::resume_from, Kind::optional_text, {0}, {}, group, circumstance, TRAIN, "[DIR|FILE]",
                 "go on from a checkpoint: that file, the newest of that folder, or the newest of --out", &O::resume});
    text("init-from", &O::init_from, "FILE", circumstance, TRAIN,
         "take the initial parameters from a checkpoint, at step 0 with a new optimizer");
    integer("stop-after", &O::stop_after, {0, 1e12}, circumstance, TRAIN,
            "save and stop after this step of the run, to be resumed; 0: off");
    integer("save-every", &O::save_every, {0, 1e12}, circumstance, TRAIN,
            "steps between checkpoints; 0: by time (--save-minutes), before every evaluation and sample, and at the end");
    real("save-minutes", &O::save_minutes, {0, 1e9}, circumstance, TRAIN,
         "minutes of training between checkpoints; 0: never by time");
    integer("keep", &O::keep, {0, 1e12}, circumstance, TRAIN, "checkpoints to keep, the newest; 0: all");
    integer("eval-every", &O::eval_every, {0, 1e12}, circumstance, TRAIN,
            "steps between evaluations; 0: only at the end");
    integer("eval-tokens", &O::eval_tokens, {1}, circumstance, TRAIN | ROUTES,
            "tokens of an evaluation on the way (the last one: --final-tokens), and of routes");
    integer("final-tokens", &O::final_tokens, {0}, circumstance, TRAIN,
            "tokens of the evaluation at the end; 0: the whole validation text");
    integer("sample-every", &O::sample_every, {0, 1e12}, circumstance, TRAIN, "steps between printed samples; 0: never");
    real("max-minutes", &O::max_minutes, {0, 1e9}, circumstance, TRAIN,
         "save and stop after this time, to be resumed, with exit code 3; 0: no limit");
    integer("threads", &O::threads, {0, 4096}, circumstance, TRAIN | EVAL | ROUTES | SAMPLE, "threads; 0: one per core");
    text("options", &O::options_file, "FILE", circumstance, TRAIN | EVAL | ROUTES | SAMPLE,
         "read options from a file, one a line, # begins a comment; the command line wins");
    flag("verbose", &O::verbose, ANY, "say more: the memory plan, the parameter table, timings");
    flag("reads", &O::reads, SHOW, "list the sources of every read by name");
    flag("names", &O::names, METHODS_COMMAND, "the names alone, one a line");
    flag("json", &O::json, METHODS_COMMAND, "the whole table, for other programs");
    flag("markdown", &O::markdown, METHODS_COMMAND, "the table of README.md");
    flag("dry-run", &O::dry_run, TRAIN, "check everything, print the plan and stop before anything is allocated");
  }
  void add_sampling() {
    group = Group::sampling;
    text("prompt", &O::prompt, "TEXT", circumstance, TRAIN | SAMPLE, "text that the sample continues");
    integer("tokens", &O::tokens, {1, 1e9}, circumstance, TRAIN | SAMPLE, "tokens to write");
    real("temperature", &O::temperature, {0, 1e6}, circumstance, TRAIN | SAMPLE,
         "0: always the most probable token; 1: the model's own probabilities");
    integer("top-k", &O::top_k, {0}, circumstance, TRAIN | SAMPLE, "draw from the k most probable tokens; 0: from all");
    real("top-p", &O::top_p, {0, 1}, circumstance, TRAIN | SAMPLE,
         "draw from the most probable tokens that hold this share; 1: from all");
    integer("samples", &O::samples, {1, 1e6}, circumstance, TRAIN | SAMPLE, "texts to write");
    integer("sample-seed", &O::sample_seed, {0}, circumstance, TRAIN | SAMPLE, "seed of the draws");
  }
  // clang-format on
};

inline std::vector<Option> make_option_table() {
  OptionRows t;
  t.add_data();
  t.add_model();
  t.add_training();
  t.add_run();
  t.add_sampling();
  return t.rows;
}
inline const std::vector<Option> &option_table() {
  static const std::vector<Option> table = make_option_table();
  return table;
}
inline const Option *find_option(const std::string &name) {
  for (const Option &option : option_table())
    if (name == option.name) return &option;
  return nullptr;
}

// ---- values as text and JSON

inline std::string list_choices(const Option &option, const char *between) {
  std::string s;
  for (const char *c : option.choices) s += (s.empty() ? "" : between) + std::string(c);
  return s;
}
inline std::string bound_text(double x) {  // 1000000, 1e-30
  return std::fabs(x) < 1e15 && x == (double)(int64_t)x ? std::to_string((int64_t)x) : json::number(x);
}
// "between 1 and 1024", "at least 0 (or -1)", "one of val, test"
inline std::string requirement(const Option &option) {
  const Range &r = option.range;
  if (option.kind == Kind::choice) return "one of " + list_choices(option, ", ");
  if (option.kind == Kind::flag) return "no value";
  if (option.kind == Kind::text || option.kind == Kind::optional_text) return "a text";
  std::string s = "between " + bound_text(r.low) + " and " + bound_text(r.high);
  if (r.high == HUGE_VAL) s = "at least " + bound_text(r.low);
  return r.other == r.other ? s + " (or " + bound_text(r.other) + ")" : s;
}

inline std::string value_text(const Option &option, const Options &o) {
  if (const auto f = std::get_if<int64_t Options::*>(&option.field)) return std::to_string(o.*(*f));
  if (const auto f = std::get_if<double Options::*>(&option.field)) return json::number(o.*(*f));
  if (const auto f = std::get_if<bool Options::*>(&option.field)) return o.*(*f) ? "1" : "0";
  return o.*std::get<std::string Options::*>(option.field);
}
inline json::Literal value_json(const Option &option, const Options &o) {
  if (option.kind == Kind::optional_text && value_text(option, o).empty()) return o.*option.present;
  if (option.kind == Kind::flag) return value_text(option, o) == "1";
  if (option.kind == Kind::integer || option.kind == Kind::real) return json::Literal::raw(value_text(option, o));
  return value_text(option, o);
}

template <class T> bool read_number(const std::string &text, T &x, bool &too_large) {
  const auto r = std::from_chars(text.data(), text.data() + text.size(), x);
  const bool all = !text.empty() && r.ptr == text.data() + text.size();
  too_large = all && r.ec == std::errc::result_out_of_range;
  return all && r.ec == std::errc() && (double)x - (double)x == 0;  // from_chars reads "nan" and "inf" too
}
// Sets the field, or leaves it and returns what is wrong ("--heads must be between 1 and 1024, got 0"); "" is success
template <class T> std::string set_number(const Option &option, T &field, const std::string &value) {
  T x = 0;
  bool too_large = false;
  const bool integer = option.kind == Kind::integer, read = read_number(value, x, too_large);
  if (!read && !too_large)
    return format("--%s must be a %s, got '%s'", option.name, integer ? "whole number" : "number", value.c_str());
  if (too_large && std::fabs(strtod(value.c_str(), nullptr)) < 1)
    return format("--%s is too close to 0 to be told from it, got %s; write 0 if it is meant", option.name,
                  value.c_str());
  if (too_large || !option.range.holds((double)x))
    return format("--%s must be %s, got %s", option.name, requirement(option).c_str(), value.c_str());
  field = x == 0 ? 0 : x;  // -0 is 0
  return "";
}
inline std::string set_value(const Option &option, Options &o, const std::string &value) {
  if (const auto f = std::get_if<int64_t Options::*>(&option.field)) return set_number(option, o.*(*f), value);
  if (const auto f = std::get_if<double Options::*>(&option.field)) return set_number(option, o.*(*f), value);
  const std::string wrong =
      format("--%s must be %s, got '%s'", option.name, requirement(option).c_str(), value.c_str());
  if (const auto f = std::get_if<bool Options::*>(&option.field)) {
    if (value != "0" && value != "1") return format("--%s must be 0 or 1, got '%s'", option.name, value.c_str());
    o.*(*f) = value == "1";
    return "";
  }
  bool known = option.choices.empty();
  for (const char *c : option.choices) known = known || value == c;
  if (!known) return wrong;
  o.*std::get<std::string Options::*>(option.field) = value;
  if (option.present) o.*option.present = true;
  return "";
}

// {"data":"stories",...}, one line, in table order, numbers that read back to the same bits
inline std::string options_json(const Options &o, bool science_only) {
  json::Members members;
  for (const Option &option : option_table())
    if (!science_only || option.nature == Nature::science) members.emplace_back(option.name, value_json(option, o));
  return json::object(members);
}
inline std::string effective_json(const Options &o) { return options_json(o, false); }  // run.json
inline std::string science_json(const Options &o) { return options_json(o, true); }     // checkpoints

// One option from JSON (as value_json writes it); `where` begins the sentence of an Error
inline void restore_option(Options &o, const std::string &name, const json::Value &value, const std::string &where) {
  const Option *option = find_option(name);
  if (!option)
    throw Error(format("%s: unknown option \"%s\"; was it written by a newer program?", where.c_str(), name.c_str()));
  json::Value::Kind want = json::Value::string;
  if (option->kind == Kind::integer || option->kind == Kind::real) want = json::Value::number;
  if (option->kind == Kind::flag) want = json::Value::boolean;
  if (option->kind == Kind::optional_text && value.kind == json::Value::boolean) {
    o.*option->present = value.text == "true";
    return;
  }
  if (value.kind != want) throw Error(format("%s: option \"%s\" has the wrong JSON type", where.c_str(), name.c_str()));
  std::string text = value.text;
  if (option->kind == Kind::flag) text = value.text == "true" ? "1" : "0";
  const std::string wrong = set_value(*option, o, text);
  if (!wrong.empty()) throw Error(where + ": " + wrong);
}
// The science options of a checkpoint; one that is missing (an older program had no such option) keeps its value
inline void options_from_science_json(Options &o, const std::string &text, const std::string &where = "configuration") {
  const json::Value v = json::parse(text, where);
  if (v.kind != json::Value::object) throw Error(where + ": the configuration must be a JSON object");
  for (size_t i = 0; i < v.keys.size(); i++) {
    const Option *option = find_option(v.keys[i]);
    if (option && option->nature != Nature::science)
      throw Error(format("%s: option \"%s\" does not belong into a checkpoint", where.c_str(), option->name));
    restore_option(o, v.keys[i], v.items[i], where);
  }
}

// For --resume: one sentence per science option among `names` (all where null) whose value differs
inline std::vector<std::string> science_differences(const Options &here, const Options &stored,
                                                    const std::set<std::string> *names = nullptr) {
  std::vector<std::string> out;
  for (const Option &option : option_table()) {
    if (option.nature != Nature::science || (names && !names->count(option.name))) continue;
    const std::string a = value_text(option, here), b = value_text(option, stored);
    if (a != b)
      out.push_back(format("--%s is %s, but the checkpoint was trained with %s; leave it out to go on with that",
                           option.name, a.c_str(), b.c_str()));
  }
  return out;
}

}  // namespace runtime
