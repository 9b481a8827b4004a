// fuzz.cu: what reads files, fed with bytes that libFuzzer invents from the examples of test/fuzz/NAME. The target is named by
// the environment: FUZZ=checkpoint|shard|options|json|tokenizer. Whatever comes must be taken or refused with an Error
// that says something: any other exception, a signal, a sanitizer's finding or five seconds without an answer is a fault.
// fuzz.sh builds and runs it.
#include <sys/mman.h>
#include "setup.cuh"

namespace {

void json_target(const std::string &text) {
  const json::Value v = json::parse(text, "text");
  double x = 0;
  int64_t n = 0;
  v.to(x);
  v.to(n);
  if (!(json::parse(text, "text") == v)) abort();
}

void options_target(const std::string &text) {
  runtime::OptionReader reader;
  reader.apply(reader.read_lines(text, "file"), false);
  for (const std::string &error : reader.out.errors)
    if (error.empty()) abort();
  const auto wrong = runtime::contradictions(reader.out.options, "train", reader.out.given, reader.invalid);
  if (!reader.out.errors.empty() || !wrong.empty()) return;
  Options back;
  runtime::options_from_science_json(back, runtime::science_json(reader.out.options));
  if (runtime::science_json(back) != runtime::science_json(reader.out.options)) abort();
}

void tokenizer_target(const std::string &text) {
  const bool binary = text.size() > 3 && text[0] == '\xc8';
  const data::Tokenizer t =
      binary ? data::parse_tokenizer_bin(text, "tokenizer.bin") : data::Tokenizer::from_text(text);
  if (data::Tokenizer::from_text(t.to_text()).to_text() != t.to_text()) abort();
  if (t.can_decode()) t.encode(t.decode(0) + t.decode(t.vocabulary - 1));
}

void shard_target(const std::string &text) {
  data::Source source;
  source.bytes = false;
  source.files.push_back(data::bytes_of_string(text, "x.bin"));
  data::shard_tokens(*source.files[0]);
  const data::Tokens tokens = data::shard_stream(source, data::GPT2_VOCABULARY);
  data::shard_fingerprint(*source.files[0]);
  std::vector<int32_t> all((size_t)tokens.size());
  tokens.read(all.data(), 0, tokens.size());
}

void checkpoint_target(const std::string &text) {
  const int fd = memfd_create("checkpoint", MFD_CLOEXEC);
  if (fd < 0 || write(fd, text.data(), text.size()) != (ssize_t)text.size()) abort();
  const std::string path = format("/proc/self/fd/%d", fd);
  try {
    const Checkpoint checkpoint(path, Options());
    runtime::refuse_not_finite(checkpoint.file);
    Options o = checkpoint.info.options;
    resolve(o);
  } catch (...) {
    close(fd);
    throw;
  }
  close(fd);
}

using Target = void (*)(const std::string &);
Target target_named(const char *name) {
  const std::pair<const char *, Target> targets[] = {{"json", json_target},
                                                     {"options", options_target},
                                                     {"tokenizer", tokenizer_target},
                                                     {"shard", shard_target},
                                                     {"checkpoint", checkpoint_target}};
  for (const auto &target : targets)
    if (name && !strcmp(name, target.first)) return target.second;
  fprintf(stderr, "fuzz: FUZZ must be json, options, tokenizer, shard or checkpoint\n");
  exit(2);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
  static const Target target = target_named(getenv("FUZZ"));
  try {
    target(std::string((const char *)bytes, n));
  } catch (const Error &e) {
    if (!e.what()[0]) abort();
  }
  return 0;
}
