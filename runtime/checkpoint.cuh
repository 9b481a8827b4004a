// checkpoint.cuh: a run's state as one safetensors file (DESIGN: science only, so equal science gives equal files).
//   tensors    NAME, adam.m.NAME, adam.v.NAME for every row of the parameter table, F32, without the buffers' padding
//   metadata   config (science options, JSON), tokenizer, step, data (fingerprint), float_order, format
// A step counts finished optimizer steps; the next sequence of the data order is step * batch.
#pragma once
#include "../layers/exact.cuh"
#include "../layers/tensors.cuh"
#include "folder.cuh"
#include "options.cuh"
#include "safetensors.cuh"

namespace runtime {

constexpr const char *CHECKPOINT_FORMAT = "wav.cu checkpoint 1";

struct State {  // flat buffers of the table, in memory of the host
  const TensorTable *table;
  const float *params, *m, *v;
};

struct CheckpointInfo {
  Options options;        // science from the file, the rest as passed in
  std::string tokenizer;  // Tokenizer::to_text
  int64_t step = 0;
  std::string fingerprint;
};

inline std::string checkpoint_path(const std::string &directory, int64_t step) {
  return without_slashes(directory) + format("/step_%lld.safetensors", (long long)step);
}

inline void save_checkpoint(const std::string &path, const State &s, const CheckpointInfo &info) {
  std::vector<TensorView> tensors;
  const auto add = [&](const char *prefix, const float *flat) {
    for (const Tensor &t : s.table->rows) tensors.push_back({prefix + t.name, t.shape(), "F32", flat + t.offset});
  };
  add("", s.params);
  add("adam.m.", s.m);
  add("adam.v.", s.v);
  save_safetensors(path, tensors,
                   {{"format", CHECKPOINT_FORMAT},
                    {"float_order", std::to_string(exact::FLOAT_ORDER)},
                    {"config", science_json(info.options)},
                    {"tokenizer", info.tokenizer},
                    {"step", std::to_string(info.step)},
                    {"data", info.fingerprint}});
}

// The step, a whole number of the run; digits alone
inline int64_t read_step(const SafetensorsFile &file, int64_t steps) {
  const std::string &text = file.text("step");
  int64_t step = -1;
  bool too_large = false;
  if (!read_number(text, step, too_large) || step < 0 || step > steps || std::to_string(step) != text)
    throw Error(format("%s: step '%.40s', need a whole number from 0 to the run's %lld; the checkpoint is damaged",
                       file.path.c_str(), text.c_str(), (long long)steps));
  return step;
}

// All that the metadata say, checked: format, float order, the configuration as strictly as options
inline CheckpointInfo read_info(const SafetensorsFile &file, const Options &base) {
  const std::string &kind = file.text("format"), &order = file.text("float_order");
  if (kind != CHECKPOINT_FORMAT)
    throw Error(format("%s: the format is '%.60s', need '%s'; use the program that wrote it", file.path.c_str(),
                       kind.c_str(), CHECKPOINT_FORMAT));
  if (order != std::to_string(exact::FLOAT_ORDER))
    throw Error(format("%s: float order %.40s, this program has %d; use the program that wrote it", file.path.c_str(),
                       order.c_str(), exact::FLOAT_ORDER));
  Options stored;
  options_from_science_json(stored, file.text("config"), file.path);
  const std::vector<std::string> wrong = contradictions(stored, "train", {});
  if (!wrong.empty()) throw Error(file.path + ": " + wrong[0] + "; the checkpoint is damaged");
  CheckpointInfo info;
  info.options = base;
  options_from_science_json(info.options, science_json(stored), file.path);
  info.tokenizer = file.text("tokenizer");
  info.fingerprint = file.text("data");
  info.step = read_step(file, stored.steps);
  return info;
}

constexpr const char *PREFIXES[] = {"", "adam.m.", "adam.v."};  // of the names of parameters and moments

// Error where the file does not hold exactly the parameters and moments of the table, each in its shape
inline void check_tensors(const SafetensorsFile &file, const TensorTable &table) {
  std::set<std::string> known;
  for (const char *prefix : PREFIXES)
    for (const Tensor &t : table.rows) {
      file.at(prefix + t.name, "F32", t.shape());
      known.insert(prefix + t.name);
    }
  for (const TensorView &t : file.tensors)
    if (!known.count(t.name))
      throw Error(file.path + ": " + t.name + " is no tensor of the model that its configuration describes");
}

// put(offset, values, n) for every tensor of the table; with `there` of those that the file has
template <class F> void load_tensors(const SafetensorsFile &file, const TensorTable &table, const char *prefix, F put,
                                     bool there = false) {
  for (const Tensor &t : table.rows)
    if (!there || file.find(prefix + t.name))
      put(t.offset, (const float *)file.at(prefix + t.name, "F32", t.shape()).data, t.size());
}

// The steps of the checkpoints in a folder, ascending; empty where there is no such folder
inline std::vector<int64_t> checkpoint_steps(const std::string &directory) {
  std::vector<int64_t> steps;
  DIR *d = opendir(directory.c_str());
  if (!d) return steps;
  while (const dirent *entry = readdir(d)) {
    long long step;
    int end = 0;
    if (sscanf(entry->d_name, "step_%lld.safetensors%n", &step, &end) == 1 && end && !entry->d_name[end])
      steps.push_back(step);
  }
  closedir(d);
  std::sort(steps.begin(), steps.end());
  return steps;
}
// A file as it is; of a folder its newest checkpoint
inline std::string find_checkpoint(const std::string &path) {
  struct stat s;
  if (stat(path.c_str(), &s) != 0)
    throw Error(path + ": no such file or folder; name a checkpoint or the folder of a run");
  if (!S_ISDIR(s.st_mode)) return path;
  const auto steps = checkpoint_steps(path);
  if (steps.empty())
    throw Error(path + ": no step_N.safetensors in this folder; name a checkpoint or the folder of a run");
  return checkpoint_path(path, steps.back());
}
// Of the checkpoints up to this step removes all but the newest `keep` (0: keeps all)
inline void prune_checkpoints(const std::string &directory, int64_t keep, int64_t step) {
  std::vector<int64_t> steps = checkpoint_steps(directory);
  steps.erase(std::upper_bound(steps.begin(), steps.end(), step), steps.end());
  for (size_t i = 0; keep > 0 && i + (size_t)keep < steps.size(); i++)
    unlink(checkpoint_path(directory, steps[i]).c_str());
}

}  // namespace runtime
