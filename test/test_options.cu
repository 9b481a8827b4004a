// test_options.cu: the command line, its errors, help, and the configuration as JSON
#include "runtime/options.cuh"
#include "test/check.h"

using namespace runtime;

// "train --lr 1": words separated by single spaces
static Parsed parse_line(const std::string &line, const std::string &built_in = "") {
  std::vector<std::string> words = {"train_gpt"};
  for (size_t at = 0; at < line.size();) {
    const size_t end = std::min(line.find(' ', at), line.size());
    words.push_back(line.substr(at, end - at));
    at = end + 1;
  }
  std::vector<const char *> argv;
  for (const std::string &w : words) argv.push_back(w.c_str());
  return parse((int)argv.size(), argv.data(), built_in);
}
static std::string joined(const std::vector<std::string> &lines) {
  std::string s;
  for (const std::string &line : lines) s += line + "\n";
  return s;
}
static bool contains(const std::string &text, const std::string &part) { return text.find(part) != std::string::npos; }

struct Refusal {
  const char *line, *fragment;
};

static const Refusal refusals[] = {
    {"--foo 1", "unknown option --foo"},
    {"--layer 1", "did you mean --layers?"},
    {"-lr 1", "unknown option -lr; did you mean --lr?"},
    {"--weight_decay 1", "did you mean --weight-decay?"},
    {"trian", "unknown command 'trian'; did you mean train?"},
    {"frobnicate", "the commands are train, eval, sample, routes, show, methods, compare"},
    {"--lr", "--lr needs a value"},
    {"--lr --steps 5", "--lr needs a value"},
    {"--lr fast", "--lr must be a number, got 'fast'"},
    {"--lr nan", "--lr must be a number, got 'nan'"},
    {"--lr 1e", "--lr must be a number"},
    {"--lr=", "--lr must be a number, got ''"},
    {"--steps 1.5", "--steps must be a whole number, got '1.5'"},
    {"--steps 1e3", "--steps must be a whole number"},
    {"--heads 0", "--heads must be between 1 and 1024, got 0"},
    {"--layers 1001", "--layers must be between 1 and 1000, got 1001"},
    {"--seed 99999999999999999999", "--seed must be at least 0, got 99999999999999999999"},
    {"--min-lr -0.5", "--min-lr must be between 0 and 1000 (or -1), got -0.5"},
    {"--beta1 1", "--beta1 must be between 0 and 0.999999"},
    {"--beta2 0.9999999", "--beta2 must be between 0 and 0.999999"},
    {"--adam-eps 0", "--adam-eps must be between 1e-30 and 1, got 0"},
    {"--eps 0", "--eps must be between"},
    {"--router wav --key-eps 0", "--key-eps must be between"},
    {"--top-k -1", "--top-k must be at least 0, got -1"},
    {"--router wav --block 3 --layers 4",
     "need blocks of even length; 8 sublayers in blocks of 3 give a last block of 2"},
    {"--router wav --block 5 --layers 5", "need blocks of even length"},
    {"--router wav --block 6 --layers 4 --details phase,foo",
     "'foo' is none of phase, split, random, duplicate, learned"},
    {"--router block --details split,split", "split stands twice"},
    {"--router attnres --block 4", "--block has no meaning with --router attnres"},
    {"--router delta --rho 1", "--rho has no meaning with --router delta"},
    {"--key-eps 1e-5", "--key-eps has no meaning with --router prenorm"},
    {"--router magic",
     "--router must be one of prenorm, rezero, layerscale, attnres, block, delta, delta-block, wav, haares, got "
     "'magic'"},
    {"--schedule step", "--schedule must be one of cosine, linear, wsd, constant"},
    {"--verbose=2", "--verbose must be 0 or 1, got '2'"},
    {"--part test", "--part is not an option of train"},
    {"compare a b --lr 1", "--lr is not an option of compare"},
    {"--lr 1e-999", "--lr is too close to 0"},
    {"\u2013lr 1", "typographic dash; write --lr"},
    {"-\u2014lr 1", "typographic dash; write --lr"},
    {"--router wav --fixed-beta 1", "--fixed-beta takes no value, got '1'; write --fixed-beta, or --fixed-beta=0"},
    {"--layers 1000 --channels 65536 --context 1000000 --batch 1000000", "beyond 64-bit sizes"},
    {"eval", "eval needs a checkpoint: train_gpt eval CKPT"},
    {"compare a", "compare needs two checkpoints"},
    {"show a b", "unexpected argument 'b'"},
    {"--verbose 1", "--verbose takes no value"},
    {"--verbose 3", "unknown command '3'"},
    {"train x", "unexpected argument 'x'"},
    {"--channels 130", "--channels must be a multiple of --heads, got 130 and 4"},
    {"--channels 12", "must be even (RoPE turns pairs), got 12 / 4 = 3"},
    {"--lr 1e-3 --min-lr 1e-2", "--min-lr must not exceed --lr"},
    {"--steps 100 --warmup 101", "--warmup must not exceed --steps, got 101 and 100"},
    {"--batch 8 --micro-batch 3", "--micro-batch must be a power of two when smaller than --batch, got 3 of 8"},
    {"--resume --init-from x", "--resume and --init-from exclude each other"},
    {"--split 90/5/6", "--split must be three percentages that add up to 100"},
    {"--split 90/5", "--split must be three percentages"},
    {"--split 0/50/50", "--split must be three percentages"},
    {"--split 90/5/5x", "--split must be three percentages"},
    {"--val x --split 90/5/5", "--val and --split exclude each other"},
    {"eval x --part test --val y", "--part test needs a part of --data"},
    {"--schedule constant --min-lr 0", "no meaning with --schedule constant"},
    {"--layerscale-init 0.1", "no meaning with --router prenorm"},
    {"--options /nonexistent/file", "--options: cannot open /nonexistent/file"},
    {"--help=html", "--help may be --help=markdown, got 'html'"},
    {"--out=", "--out must name a folder"},
};

static void test_errors() {
  check::test("every refusal names its reason, alone", [] {
    for (const Refusal &r : refusals) {
      const Parsed p = parse_line(r.line);
      check::that(contains(joined(p.errors), r.fragment), "%s: got '%s'", r.line, joined(p.errors).c_str());
      check::that(p.errors.size() == 1, "%s: %zu errors: %s", r.line, p.errors.size(), joined(p.errors).c_str());
      for (const std::string &e : p.errors) check::that(!contains(e, "\n"), "%s: more than one line", r.line);
    }
  });
  check::test("all errors at once", [] {
    const Parsed p = parse_line("--foo 1 --lr x --heads 0 --steps 10 --warmup 11 --batch 8 --micro-batch 5 --router z");
    check::that(p.errors.size() == 6, "%zu errors: %s", p.errors.size(), joined(p.errors).c_str());
    for (const char *part : {"--foo", "--lr", "--heads", "--warmup", "--micro-batch", "--router"})
      check::that(contains(joined(p.errors), part), "nothing about %s", part);
  });
}

static void test_accepted() {
  check::test("values in both forms, commands, positionals", [] {
    const Parsed p = parse_line(
        "train --lr 2e-3 --steps=7 --warmup 0 --verbose --dry-run=0 --min-lr -1 "
        "--data=--odd --top-p .5");
    check::that(p.errors.empty(), "errors: %s", joined(p.errors).c_str());
    const Options &o = p.options;
    check::that(o.lr == 2e-3 && o.steps == 7 && o.verbose && !o.dry_run && o.data == "--odd" && o.top_p == .5,
                "values");
    check::that(p.given.size() == 8 && p.given.count("min-lr") && !p.given.count("seed"), "given");
    const Parsed c = parse_line("compare a b");
    check::that(c.errors.empty() && c.command == "compare" && c.positional.size() == 2 && c.positional[1] == "b",
                "compare");
    check::that(parse_line("--verbose sample x").command == "sample", "command after a flag");
    check::that(parse_line("--micro-batch 6 --batch 6").errors.empty() &&
                    parse_line("--micro-batch 4 --batch 7").errors.empty(),
                "micro-batch");
  });
  check::test("given twice: the last one counts, a note says so; -0 is 0", [] {
    const Parsed p = parse_line("--lr 1 --lr 0.5 --weight-decay -0 --seed -0 --lr 0.25");
    check::that(p.errors.empty() && p.options.lr == 0.25 && p.notes.size() == 2, "%s", joined(p.errors).c_str());
    check::that(contains(joined(p.notes), "--lr is given twice; the last one counts: 0.25"), "%s",
                joined(p.notes).c_str());
    check::that(!std::signbit(p.options.weight_decay) && p.options.seed == 0, "-0");
    check::that(parse_line("--lr x --lr 1").errors.size() == 1, "a value that is wrong is wrong, wherever it stands");
  });
  check::test("--resume with and without a value", [] {
    const Parsed bare = parse_line("--resume --steps 5"), file = parse_line("--resume x --steps 5");
    const Parsed none = parse_line("--steps 5");
    check::that(bare.options.resume && bare.options.resume_from.empty() && bare.errors.empty(), "bare");
    check::that(file.options.resume && file.options.resume_from == "x", "file");
    check::that(!none.options.resume, "none");
    check::that(parse_line("--resume --warmup 99999").errors.empty(), "contradictions wait for the checkpoint");
  });
}
static void test_sources() {
  check::test("built-in options, options file, command line: later wins", [] {
    const char *tmp = getenv("TMPDIR");
    std::string folder = std::string(tmp && *tmp ? tmp : "/tmp") + "/test_optionsXXXXXX";
    if (!mkdtemp(&folder[0])) throw Error("no temporary folder");
    const std::string path = folder + "/x.options";
    write_file(path,
               "# comment\n\n--lr 0.02  # high\n--layers=3\n"
               "--prompt \"C # minor\" # quoted\n  --verbose\n--heads 2\n");
    const Parsed p = parse_line("--heads 1 --options " + path, "--lr 0.01\n--seed 9\n--heads 8\n");
    check::that(p.errors.empty(), "errors: %s", joined(p.errors).c_str());
    const Options &o = p.options;
    check::that(o.lr == .02 && o.layers == 3 && o.prompt == "C # minor" && o.verbose && o.heads == 1 && o.seed == 9,
                "values");
    check::that(parse_line("show x", "--lr 0.01").errors.empty(), "built-in options of training do not disturb show");
    write_file(path, "\xEF\xBB\xBF--lr 1\n--prompt \"open\n\u2013lr 1\n");
    const std::string marks = joined(parse_line("--options " + path).errors);
    for (const char *part : {":1: the line begins with a byte order mark", ":2: the quote does not close: \"open",
                             ":3: '\u2013lr 1' begins with a typographic dash; write --lr 1"})
      check::that(contains(marks, path + part), "no '%s' in %s", part, marks.c_str());
    write_file(path, "--lr x\nlr 3\n--nope 1\n--lr 1\n--lr 2\n--options y\n");
    const std::string e = joined(parse_line("--options " + path).errors);
    for (const char *part : {":1: --lr must be a number", ":2: expected --name value, got 'lr 3'",
                             ":3: unknown option --nope", ":6: --options cannot stand"})
      check::that(contains(e, path + part), "no '%s' in %s", part, e.c_str());
    unlink(path.c_str());
    rmdir(folder.c_str());
  });
  check::test("defaults that choose", [] {
    Options o;
    check::that(effective_min_lr(o) == o.lr / 10 && effective_warmup(o) == 20 && effective_micro_batch(o) == 8,
                "defaults");
    o.steps = 100;
    o.micro_batch = 4;
    o.min_lr = 0;
    o.layers = 18;
    check::that(effective_min_lr(o) == 0 && effective_warmup(o) == 10 && effective_micro_batch(o) == 4, "set");
    check::that(effective_layerscale_init(o) == .1, "18 layers");
    o.layers = 24;
    o.steps = 5;
    check::that(effective_layerscale_init(o) == 1e-5 && effective_warmup(o) == 5, "24 layers");
    o.layers = 25;
    o.warmup = 3;
    check::that(effective_layerscale_init(o) == 1e-6 && effective_warmup(o) == 3, "25 layers");
  });
}

static void test_table() {
  check::test("help of a command holds its options with their defaults, and no other", [] {
    for (const CommandRow &row : command_table()) {
      const std::string page = help(row.name);
      for (const Option &option : option_table()) {
        const size_t at = page.find("\n  --" + std::string(option.name) + " ");
        const bool there = at != std::string::npos;
        check::that(there == ((option.commands & row.bit) != 0), "%s: --%s is%s there", row.name, option.name,
                    there ? "" : " not");
        if (!there) continue;
        std::string entry;  // in one line
        for (const char c : page.substr(at, page.find("\n  --", at + 1) - at))
          if (c != '\n' && !(c == ' ' && !entry.empty() && entry.back() == ' '))
            entry += c;
          else if (c == '\n' && !entry.empty() && entry.back() != ' ')
            entry += ' ';
        check::that(contains(entry, "default " + default_text(option) + "]"), "%s: %s", row.name, entry.c_str());
      }
    }
    check::that(contains(help("train"), "between 1 and 1024; default 4]"), "range and default of --heads");
    check::that(parse_line("eval --help").help == "text" && parse_line("-h").help == "text" &&
                    parse_line("--help=markdown").help == "markdown" && parse_line("eval --help").errors.empty(),
                "asked for");
  });
  check::test("markdown has one row per option", [] {
    const std::string s = help_markdown();
    for (const Option &option : option_table())
      check::that(contains(s, format("| `--%s` | %s |", option.name, default_text(option).c_str())), "%s", option.name);
  });
  check::test("names are unique, defaults are allowed values", [] {
    std::set<std::string> names;
    for (const Option &option : option_table()) {
      Options o;
      check::that(names.insert(option.name).second, "%s stands twice", option.name);
      check::that(set_value(option, o, value_text(option, o)).empty(), "%s: its default is refused", option.name);
    }
  });
}

static void test_json() {
  check::test("science goes through JSON unchanged, circumstance stays out", [] {
    Options o;
    o.lr = 0.1 + 0.2;
    o.steps = 123456789012;
    o.router = "rezero";
    o.eps = 1e-30;
    o.seed = INT64_MAX;
    o.threads = 7;
    Options back;
    options_from_science_json(back, science_json(o));
    check::that(back.lr == o.lr && back.steps == o.steps && back.router == o.router && back.eps == o.eps, "values");
    check::that(back.seed == INT64_MAX && back.threads == 0, "seed, threads");
    check::that(science_json(back) == science_json(o) && science_differences(o, back).empty(), "equal text");
    check::that(!contains(science_json(o), "threads") && contains(effective_json(o), "\"threads\":7"), "threads");
    const json::Value v = json::parse(effective_json(o), "effective");
    check::that(v.keys.size() == option_table().size(), "every option in run.json");
    Options copy;
    o.resume = true;
    o.resume_from = "x \"y\"";
    o.verbose = true;
    const json::Value all = json::parse(effective_json(o), "effective");
    for (size_t i = 0; i < all.keys.size(); i++) restore_option(copy, all.keys[i], all.items[i], "run.json");
    check::that(effective_json(copy) == effective_json(o), "every option can be restored");
  });
  check::test("a bad configuration is refused by name", [] {
    const Refusal bad[] = {{"{\"layers\":0}", "--layers must be between"}, {"{\"layers\":\"4\"}", "wrong JSON type"},
                           {"{\"layers\":4.5}", "whole number"},           {"{\"new\":1}", "unknown option \"new\""},
                           {"{\"threads\":1}", "does not belong"},         {"[]", "must be a JSON object"},
                           {"{\"layers\":4", "not JSON at offset 11"},     {"{\"lr\":\"NaN\"}", "wrong JSON type"}};
    for (const Refusal &r : bad) {
      std::string got;
      Options o;
      try {
        options_from_science_json(o, r.line, "step_1.safetensors");
      } catch (const Error &e) {
        got = e.what();
      }
      check::that(contains(got, r.fragment) && contains(got, "step_1"), "%s: got '%s'", r.line, got.c_str());
    }
  });
  check::test("differences of science name both values", [] {
    const Parsed p = parse_line("--resume --lr 0.002 --steps 2000 --threads 3");
    const Options stored;
    const std::string s = joined(science_differences(p.options, stored, &p.given));
    check::that(contains(s, "--lr is 0.002, but the checkpoint was trained with 0.001"), "lr: %s", s.c_str());
    check::that(contains(s, "--steps is 2000, but the checkpoint was trained with 1000"), "steps: %s", s.c_str());
    check::that(!contains(s, "threads"), "threads");
    Options other;
    other.seed = 5;
    check::that(science_differences(p.options, other, &p.given).size() == 2, "only what was given");
    check::that(science_differences(p.options, other).size() == 3, "all");
  });
}

int main(int argc, char **argv) {
  check::arguments(argc, argv);
  test_errors();
  test_accepted();
  test_sources();
  test_table();
  test_json();
  return check::report();
}
