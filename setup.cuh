// setup.cuh: from options or a checkpoint to configuration, data and state, for every command.
#pragma once
#include "inference.cuh"
#include "runtime/checkpoint.cuh"
#include "runtime/log.cuh"
#include "runtime/output.cuh"

using runtime::Options;
using runtime::Parsed;
namespace json = runtime::json;

// Option errors, all at once; the exit code
inline int report(const std::vector<std::string> &errors) {
  for (const std::string &e : errors) runtime::print_error(e);
  return errors.empty() ? 0 : 2;
}

// Defaults that mean "choose" become what they come to, so that checkpoints hold values
inline void resolve(Options &o) {
  o.min_lr = runtime::effective_min_lr(o);
  o.warmup = runtime::effective_warmup(o);
  if (takes_option(method_named(o.router), "layerscale-init"))
    o.layerscale_init = runtime::effective_layerscale_init(o);
  std::string details;
  for (const std::string &d : runtime::effective_details(o)) details += (details.empty() ? "" : ",") + d;
  o.details = details.empty() ? "none" : details;
}

inline Config config_of(const Options &o, int vocabulary) {
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

// What run.json says under "paths": where --data and --val are, whatever the working directory is then
inline std::string absolute_path(const std::string &path) {
  char here[4096];
  if (path.empty() || path[0] == '/' || data::is_stories(path) || !getcwd(here, sizeof here)) return path;
  return std::string(here) + "/" + path;
}
inline bool there(const std::string &pattern) {
  try {
    return data::is_stories(pattern) || !data::files_of(pattern).empty();
  } catch (const Error &) {
    return false;
  }
}

// --data, --val and --skip-unknown, where not given, are those of the run that wrote the checkpoint (its run.json)
inline void data_options_of_run(Options &o, const std::set<std::string> &given, const std::string &directory) {
  const json::Value run = runtime::RunLog::previous(directory);
  const json::Value *options = run.find("options"), *paths = run.find("paths");
  const std::string path = directory + "/run.json";
  if (!given.count("data") && !(options && options->find("data")))
    throw Error(path + " is missing or does not say which data the run was trained with; give --data");
  const bool other_text = given.count("data") || given.count("split");  // then the run's --val does not belong to it
  const json::Value *val = options ? options->find("val") : nullptr;
  if (given.count("data") && !given.count("val") && !given.count("split") && val && !val->text.empty())
    throw Error(
        format("%s: the run's validation text was %s, beside other --data; give --val too, or --split to take "
               "a part of --data",
               path.c_str(), val->text.c_str()));
  for (const char *name : {"data", "val", "skip-unknown"}) {
    const json::Value *value = options ? options->find(name) : nullptr, *absolute = paths ? paths->find(name) : nullptr;
    if (!value || given.count(name) || (other_text && !strcmp(name, "val"))) continue;
    runtime::restore_option(o, name, absolute && there(absolute->text) ? *absolute : *value, path);
  }
}

inline data::Corpus open_data(const Options &o, const data::Tokenizer *fixed) {
  data::CorpusOptions d;
  d.data = o.data;
  d.val = o.val;
  d.split = o.split;
  d.skip_unknown = o.skip_unknown;
  d.fixed = fixed;
  return data::open_corpus(d);
}
inline std::string hex(uint64_t x) { return format("%016llx", (unsigned long long)x); }

inline void print_block_note(const Config &c) {
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
inline void print_model(const Config &c, const TensorTable &table, const MemoryPlan &plan, bool verbose) {
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

// A checkpoint whose every part fits together; Error otherwise
struct Checkpoint {
  runtime::SafetensorsFile file;
  runtime::CheckpointInfo info;
  data::Tokenizer tokenizer;
  Checkpoint(const std::string &path, const Options &base)
      : file(path),
        info(runtime::read_info(file, base)),
        tokenizer(data::Tokenizer::from_text(info.tokenizer)) {
    runtime::check_tensors(file, tensor_table(config_of(info.options, tokenizer.vocabulary)));
  }
};

// All of its state; the moments only if training goes on
inline void load_state(GPT<float> &model, const runtime::SafetensorsFile &file, bool moments) {
  const auto to = [](float *flat) {
    return [=](int64_t offset, const float *values, int64_t n) { device::upload(flat + offset, values, n); };
  };
  runtime::refuse_not_finite(file);
  runtime::load_tensors(file, model.table, "", to(model.params.data));
  if (!moments) return;
  runtime::load_tensors(file, model.table, "adam.m.", to(model.moments.data));
  runtime::load_tensors(file, model.table, "adam.v.", to(model.moments.data + model.table.floats));
}
// The parameters that the model has too; the others keep their initial values
inline void load_initial(GPT<float> &model, const runtime::SafetensorsFile &file) {
  const auto put = [&](int64_t offset, const float *values, int64_t n) {
    device::upload(model.params.data + offset, values, n);
  };
  runtime::refuse_not_finite(file);
  runtime::load_tensors(file, model.table, "", put, true);
}

// "a, b, c and 45 more"
inline std::string some_names(const std::vector<std::string> &names) {
  std::string s;
  for (size_t i = 0; i < names.size() && i < 4; i++) s += (i ? ", " : "") + names[i];
  return names.size() > 4 ? s + format(" and %zu more", names.size() - 4) : s;
}
// --init-from: tensors of the backbone must fit; what the router adds starts anew where the file has none, and what only
// the file has is left out: both are said
inline void check_initial(const runtime::SafetensorsFile &file, const TensorTable &table) {
  std::vector<std::string> anew, left;
  for (const Tensor &t : table.rows)
    if (t.router && !file.find(t.name))
      anew.push_back(t.name);
    else
      file.at(t.name, "F32", t.shape());
  for (const runtime::TensorView &t : file.tensors)
    if (t.name.compare(0, 5, "adam.") && !table.places.count(t.name)) left.push_back(t.name);
  const char *path = file.path.c_str();
  if (!anew.empty()) printf("note: not in %s, so at their initial values: %s\n", path, some_names(anew).c_str());
  if (!left.empty()) printf("note: of %s left out: %s\n", path, some_names(left).c_str());
}
