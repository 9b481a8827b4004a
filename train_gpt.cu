// train_gpt.cu: options -> data -> model -> loop. The only translation unit of the product; the Makefile compiles it
// once per build (plain, cpu, ...), and gpt.cuh's device:: is the namespace of that build.
#include "runtime/methods_text.cuh"
#include "training.cuh"

#if !defined WAV_COMMIT
#define WAV_COMMIT "unknown"
#endif
static const char *const WAV_OPTIONS =  // `make NAME` bakes in dev/experiments/NAME.options
#if defined WAV_EXPERIMENT
#include WAV_EXPERIMENT
#endif
    "";

struct Loaded {
  Options o;
  data::Tokenizer tokenizer;
  std::unique_ptr<GPT<float>> model;
  std::string fingerprint;  // of the data that it was trained with
};
static Loaded load(const Parsed &parsed, const Sizes &sizes) {
  const Checkpoint checkpoint(runtime::find_checkpoint(parsed.positional[0]), parsed.options);
  const runtime::CheckpointInfo &info = checkpoint.info;
  Loaded l{info.options, checkpoint.tokenizer, nullptr, info.fingerprint};
  if (parsed.given.count("split")) l.o.split = parsed.options.split;
  device::set_threads(l.o.threads);
  l.model = std::make_unique<GPT<float>>(config_of(l.o, l.tokenizer.vocabulary), sizes);
  load_state(*l.model, checkpoint.file, false);
  return l;
}
// The data that a command reads, said; a note where the checkpoint was trained with others
static data::Corpus open_and_say(const Loaded &l) {
  data::Corpus corpus = open_data(l.o, &l.tokenizer);
  printf("data: %s\n", corpus.description.c_str());
  if (hex(corpus.fingerprint) != l.fingerprint)
    printf("note: other data than it was trained with: fingerprint %s, the checkpoint says %s\n",
           hex(corpus.fingerprint).c_str(), l.fingerprint.c_str());
  return corpus;
}
static int eval_command(const Parsed &parsed) {
  Loaded l = load(parsed, {parsed.options.batch, 1, false});
  data_options_of_run(l.o, parsed.given, runtime::parent_directory(runtime::find_checkpoint(parsed.positional[0])));
  if (const int code = report(runtime::contradictions(l.o, "eval", parsed.given))) return code;
  const data::Corpus corpus = open_and_say(l);
  const data::EvalWindows windows(l.o.part == "test" ? corpus.test : corpus.val, l.model->c.T, 0,
                                  l.o.part == "test" ? "test data" : "validation data");
  printf("%s: %s\n", l.o.part.c_str(), evaluate(*l.model, windows, l.tokenizer).text().c_str());
  return 0;
}
static int routes_command(const Parsed &parsed) {
  const std::string path = runtime::find_checkpoint(parsed.positional[0]), directory = runtime::parent_directory(path);
  Loaded l = load(parsed, {parsed.options.batch, 1, true});
  data_options_of_run(l.o, parsed.given, directory);
  const data::Corpus corpus = open_and_say(l);
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
  const bool terminal = isatty(STDOUT_FILENO) != 0;
  const auto print = [=](const std::string &piece) {
    const std::string shown = terminal ? runtime::without_controls(piece) : piece;
    fwrite(shown.data(), 1, shown.size(), stdout);
    runtime::finish_output();
    return true;
  };
  for (int64_t i = 0; i < l.o.samples; i++) {
    if (i) print("---\n");
    sample(*l.model, l.tokenizer, l.o, i, print);
    print("\n");
  }
  return 0;
}
static int show_command(const Parsed &parsed) {
  const Checkpoint checkpoint(runtime::find_checkpoint(parsed.positional[0]), parsed.options);
  const runtime::SafetensorsFile &file = checkpoint.file;
  const runtime::CheckpointInfo &info = checkpoint.info;
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
  runtime::refuse_not_finite(file);
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

// The commands whose product is what they print
static int print_command(const Parsed &parsed) {
  if (parsed.command == "eval") return eval_command(parsed);
  if (parsed.command == "sample") return sample_command(parsed);
  if (parsed.command == "routes") return routes_command(parsed);
  if (parsed.command == "show") return show_command(parsed);
  if (parsed.command == "methods") return methods_command(parsed);
  return runtime::compare_checkpoints(runtime::find_checkpoint(parsed.positional[0]),
                                      runtime::find_checkpoint(parsed.positional[1]), stdout);
}

int main(int argc, char **argv) {
  runtime::open_standard_descriptors();
  for (const int ignored : {SIGPIPE, SIGXFSZ}) signal(ignored, SIG_IGN);  // what fails then says so
  try {
    const Parsed parsed = runtime::parse(argc, argv, WAV_OPTIONS);
    if (const int code = report(parsed.errors)) return code;
    for (const std::string &note : parsed.notes) fprintf(stderr, "note: %s\n", note.c_str());
    const bool help = !parsed.help.empty(), trains = !help && parsed.command == "train";
    int code = 0;
    if (help)
      fputs((parsed.help == "markdown" ? runtime::help_markdown() : runtime::help(parsed.command)).c_str(), stdout);
    else
      code = trains ? train(parsed, {WAV_OPTIONS, WAV_COMMIT}) : print_command(parsed);
    if (!trains || parsed.options.dry_run) runtime::finish_output();
    return code;
  } catch (const std::exception &e) {
    fflush(stdout);
    runtime::print_error(e.what());
    return 1;
  }
}
