// options.cuh: the command line. parse() reads it against the table in option_table.cuh and reports all errors at
// once; nothing is allocated or opened before that, except the file of --options.
//
//   train_gpt [train|eval|sample|routes|show|compare] [CKPT...] --name value | --name=value | --flag | --flag=0|1
//   --options FILE and options built into the binary: one a line, `--name value`, `--name=value` or `--flag`; '#' at
//   the start or after a space begins a comment; a value in double quotes is taken as it stands between them.
//   Later wins: built-in options, then the file, then the command line, and inside each the last, which a note says.
//   A flag takes no value but behind '='.
//   A value that begins with "--" is written --name=value.
#pragma once
#include "../data/split.cuh"
#include "files.cuh"
#include "option_table.cuh"

namespace runtime {

struct Parsed {
  std::string command = "train";
  std::vector<std::string> positional;
  Options options;
  std::set<std::string> given;  // names of the options that were given, by whichever way
  std::vector<std::string> errors;
  std::vector<std::string> notes;  // what is worth saying and no error
  std::string help;                // "", "text" or "markdown"
};

// One option as it stands in a source; unset value: none was there
struct Argument {
  std::string where, name, value;
  bool has_value = false;
};

inline size_t edit_distance(const std::string &a, const std::string &b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); j++) row[j] = j;
  for (size_t i = 1; i <= a.size(); i++) {
    size_t corner = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); j++) {
      const size_t replace = corner + (a[i - 1] != b[j - 1]);
      corner = row[j];
      row[j] = std::min(replace, std::min(row[j], row[j - 1]) + 1);
    }
  }
  return row[b.size()];
}
template <class Rows> std::string nearest(const Rows &rows, const std::string &name) {
  size_t best = name.size() / 3 > 2 ? name.size() / 3 : 2;
  std::string found;
  for (const auto &row : rows) {
    const size_t d = edit_distance(name, row.name);
    if (d < best + found.empty()) {
      best = d;
      found = row.name;
    }
  }
  return found;
}

inline std::string trim(const std::string &s) {
  const size_t a = s.find_first_not_of(" \t\r\n"), b = s.find_last_not_of(" \t\r\n");
  return a == std::string::npos ? "" : s.substr(a, b - a + 1);
}

// "--lr" for a word that begins with a dash of typography (minus, en or em dash), "" for any other
inline std::string with_plain_dashes(const std::string &word) {
  size_t at = 0;
  while (word[at] == '-') at++;
  const std::string dash = word.substr(at, 3);
  if (dash != "\u2013" && dash != "\u2014" && dash != "\u2212" && dash != "\u2010" && dash != "\u2011") return "";
  while (at < word.size() && ((unsigned char)word[at] >= 0x80 || word[at] == '-')) at++;
  return "--" + word.substr(at);
}
inline bool looks_like_flag_value(const std::string &word) {
  for (const char *value : {"0", "1", "true", "false", "on", "off", "yes", "no"})
    if (word == value) return true;
  return false;
}

struct OptionReader {
  Parsed out;
  unsigned command = TRAIN;
  std::set<std::string> invalid;  // options whose value was refused: nothing is concluded from their defaults
  bool unknown_took_word = false;

  void error(const std::string &where, const std::string &text) { out.errors.push_back(where + text); }

  // Marks that an editor put there: the sentence names them
  bool refuse_typography(const std::string &where, const std::string &line) {
    const std::string plain = with_plain_dashes(line);
    if (!plain.empty()) error(where, "'" + line + "' begins with a typographic dash; write " + plain);
    const bool mark = !line.compare(0, 3, "\xEF\xBB\xBF");
    if (mark) error(where, "the line begins with a byte order mark (BOM); save the file without it");
    return mark || !plain.empty();
  }
  // Options of a text, one a line
  std::vector<Argument> read_lines(const std::string &text, const std::string &name) {
    std::vector<Argument> arguments;
    size_t line_number = 0;
    for (size_t at = 0; at < text.size();) {
      const size_t end = std::min(text.find('\n', at), text.size());
      std::string line = trim(text.substr(at, end - at));
      const std::string where = format("%s:%zu: ", name.c_str(), ++line_number);
      at = end + 1;
      if (line.empty() || line[0] == '#' || refuse_typography(where, line)) continue;
      if (line.compare(0, 2, "--")) {
        error(where, "expected --name value, got '" + line + "'");
        continue;
      }
      const size_t stop = std::min(line.find_first_of(" \t="), line.size());
      Argument a{where, line.substr(2, stop - 2), "", false};
      std::string rest = trim(line.substr(stop));
      if (!rest.empty() && rest[0] == '=') {
        a.has_value = true;
        rest = trim(rest.substr(1));
      }
      if (!rest.empty() && rest[0] == '"' && rest.find('"', 1) == std::string::npos)
        error(where, "the quote does not close: " + rest);
      const size_t quote = rest.size() > 1 && rest[0] == '"' ? rest.find('"', 1) : std::string::npos;
      if (quote != std::string::npos) {
        const std::string tail = trim(rest.substr(quote + 1));
        if (!tail.empty() && tail[0] != '#') error(where, "something follows the closing quote: '" + tail + "'");
        a.value = rest.substr(1, quote - 1);
        a.has_value = true;
      } else {
        for (size_t i = 0; i < rest.size(); i++)
          if (rest[i] == '#' && (i == 0 || rest[i - 1] == ' ' || rest[i - 1] == '\t')) rest = rest.substr(0, i);
        a.value = trim(rest);
        a.has_value = a.has_value || !a.value.empty();
      }
      arguments.push_back(a);
    }
    return arguments;
  }

  // Options of the command line; other words become positional
  std::vector<Argument> read_words(int argc, const char *const *argv) {
    std::vector<Argument> arguments;
    for (int i = 1; i < argc; i++) {
      const std::string word = argv[i];
      if (refuse_typography("", word)) {
        if (i + 1 < argc && argv[i + 1][0] != '-') i++;  // its value
        continue;
      }
      if (word.size() < 2 || word[0] != '-') {
        out.positional.push_back(word);
        continue;
      }
      const size_t equals = word.find('=');
      Argument a{"", word.substr(0, equals), "", equals != std::string::npos};
      if (a.has_value) a.value = word.substr(equals + 1);
      if (a.name == "-h") a.name = "--help";
      const bool dashes = !a.name.compare(0, 2, "--");
      if (dashes) a.name = a.name.substr(2);
      const Option *option = dashes ? find_option(a.name) : nullptr;
      const bool next = i + 1 < argc && strncmp(argv[i + 1], "--", 2) != 0;
      const bool takes = a.name != "help" && !(option && option->kind == Kind::flag);
      if (!a.has_value && takes && next) {
        a.value = argv[++i];
        a.has_value = true;
        if (!option) unknown_took_word = true;  // its value or a positional: who knows
      }
      if (!a.has_value && !takes && next && a.name != "help" && looks_like_flag_value(argv[i + 1]))
        error("", format("--%s takes no value, got '%s'; write --%s, or --%s=0", option->name, argv[++i], option->name,
                         option->name));
      arguments.push_back(a);
    }
    return arguments;
  }

  void apply(const std::vector<Argument> &arguments, bool built_in) {
    std::set<std::string> seen;
    for (const Argument &a : arguments) {
      if (a.name == "help") {
        out.help = a.value.empty() ? "text" : "markdown";
        if (a.has_value && a.value != "markdown")
          error(a.where, "--help may be --help=markdown, got '" + a.value + "'");
        continue;
      }
      const Option *option = find_option(a.name);
      if (!option) {
        const std::string near = nearest(option_table(), a.name[0] == '-' ? a.name.substr(1) : a.name);
        error(a.where, "unknown option " + std::string(a.name[0] == '-' ? "" : "--") + a.name +
                           (near.empty() ? "; --help lists the options" : "; did you mean --" + near + "?"));
        continue;
      }
      // what is built in belongs to the training run; its other commands take what concerns them
      if (!(option->commands & command)) {
        if (!built_in) error(a.where, format("--%s is not an option of %s", option->name, out.command.c_str()));
        continue;
      }
      if (!a.where.empty() && a.name == "options") {
        error(a.where, "--options cannot stand in an options file");
        continue;
      }
      if (!seen.insert(a.name).second)
        out.notes.push_back(a.where + format("--%s is given twice; the last one counts", option->name) +
                            (a.has_value ? ": " + a.value : ""));
      out.given.insert(a.name);
      set(a, *option);
    }
  }
  void set(const Argument &a, const Option &option) {
    std::string wrong;
    if (a.has_value)
      wrong = set_value(option, out.options, a.value);
    else if (option.kind == Kind::flag)
      wrong = set_value(option, out.options, "1");
    else if (option.kind == Kind::optional_text)
      wrong = set_value(option, out.options, "");
    else
      wrong = format("--%s needs a value: --%s %s (one that begins with -- is written --%s=...)", option.name,
                     option.name, option.metavar, option.name);
    invalid.erase(option.name);
    if (wrong.empty()) return;
    invalid.insert(option.name);
    error(a.where, wrong);
  }

  void choose_command() {
    if (out.positional.empty()) return;
    const std::string word = out.positional[0];
    out.positional.erase(out.positional.begin());
    for (const CommandRow &row : command_table())
      if (word == row.name) {
        command = row.bit;
        out.command = word;
        return;
      }
    const std::string near = nearest(command_table(), word);
    error("", "unknown command '" + word + "'" +
                  (near.empty() ? "; the commands are " + names_of(command_table()) : "; did you mean " + near + "?"));
    command = ANY;
    out.command = "";
    out.positional.clear();
  }
  void count_positionals() {
    if (command == ANY || unknown_took_word) return;
    for (const CommandRow &row : command_table()) {
      if (row.bit != command) continue;
      if (out.positional.size() < row.count)
        error("", format("%s needs %s: train_gpt %s %s", row.name, row.count == 1 ? "a checkpoint" : "two checkpoints",
                         row.name, row.positional));
      for (size_t i = row.count; i < out.positional.size(); i++)
        error("", "unexpected argument '" + out.positional[i] + "'");
    }
  }
};

// Which options the router knows, and blocks of even length under signed details
inline void check_routing(std::vector<std::string> &out, const Options &o, const std::set<std::string> &given,
                          const std::set<std::string> &invalid) {
  if (invalid.count("router")) return;
  const Method &method = method_named(o.router);
  for (const Option &option : option_table())
    if (given.count(option.name) && is_method_option(option.name) && !takes_option(method, option.name))
      out.push_back(format("--%s has no meaning with --router %s", option.name, method.name));
  bool even = false;
  std::set<std::string> seen;
  for (const std::string &name : effective_details(o)) {
    const Detail *detail = find_named(DETAILS, name);
    if (!detail)
      out.push_back("--details: '" + name + "' is none of " + names_of(DETAILS) + " (or none, or auto)");
    else if (!seen.insert(name).second)
      out.push_back("--details: " + name + " stands twice");
    even = even || !detail || detail->halves;
  }
  if (!method.details || !even || invalid.count("block") || invalid.count("layers")) return;
  const int64_t M = 2 * o.layers, last = M % o.block ? M % o.block : std::min(o.block, M);
  if ((M >= o.block && o.block % 2) || last % 2)
    out.push_back(
        format("--details other than duplicate need blocks of even length; %lld sublayers in blocks of %lld give a "
               "last block of %lld; choose an even --block",
               (long long)M, (long long)o.block, (long long)last));
}

// More elements of activations or parameters than 2^58, by a bound that no method reaches
inline bool too_large(const Options &o) {
  const double tokens = (double)effective_micro_batch(o) * (double)o.context, M = 2. * (double)o.layers;
  const double C = (double)o.channels, vocabulary = 1 << 24;
  const double activations = tokens * ((M + 1) * (40 * C + 4. * (double)o.heads + 8 * M) + vocabulary);
  return activations + M * 16 * C * C + 2 * vocabulary * C > 0x1p58;
}

// What no single value shows. `invalid` names options whose value was refused already: nothing is said about them.
// To be asked again when a checkpoint's science has replaced the options (with the same `given`).
inline std::vector<std::string> contradictions(const Options &o, const std::string &command,
                                               const std::set<std::string> &given,
                                               const std::set<std::string> &invalid = {}) {
  std::vector<std::string> out;
  const auto check = [&](std::initializer_list<const char *> names, bool wrong, const std::string &text) {
    for (const char *name : names) wrong = wrong && !invalid.count(name);
    if (wrong) out.push_back(text);
  };
  const long long C = o.channels, NH = o.heads, B = o.batch, pass = o.micro_batch;
  data::Split split;
  const std::string wrong_split = data::read_split(o.split, split);
  check({"split"}, !wrong_split.empty(), "--split " + wrong_split + ", got '" + o.split + "'");
  check({}, !o.val.empty() && given.count("split"),
        "--val and --split exclude each other: validation is a text of its own or a part of --data");
  if (command == "eval")
    check({"part"}, o.part == "test" && !o.val.empty(),
          "--part test needs a part of --data (--split); --val names a validation text only");
  if (command != "train") return out;
  check({}, o.data.empty(), "--data must name a file, a glob, or stories");
  check({}, o.out.empty(), "--out must name a folder");
  check({"channels", "heads"}, C % NH != 0,
        format("--channels must be a multiple of --heads, got %lld and %lld", C, NH));
  check({"channels", "heads"}, C % NH == 0 && C / NH % 2 != 0,
        format("the head size, --channels / --heads, must be even (RoPE turns pairs), got %lld / %lld = %lld", C, NH,
               C / NH));
  check({"min-lr", "lr"}, effective_min_lr(o) > o.lr,
        format("--min-lr must not exceed --lr, got %g and %g", o.min_lr, o.lr));
  check({"warmup", "steps"}, o.warmup > o.steps,
        format("--warmup must not exceed --steps, got %lld and %lld", (long long)o.warmup, (long long)o.steps));
  check({"micro-batch", "batch"}, pass > 0 && pass < B && (pass & (pass - 1)) != 0,
        format("--micro-batch must be a power of two when smaller than --batch, got %lld of %lld", pass, B));
  check({"layers", "channels", "context", "batch", "micro-batch"}, too_large(o),
        "--layers, --channels, --context and --batch make a model beyond 64-bit sizes; choose smaller ones");
  check({"schedule"}, o.schedule == "constant" && given.count("min-lr"),
        "--min-lr has no meaning with --schedule constant");
  check_routing(out, o, given, invalid);
  return out;
}

// `built_in`: options baked into the binary (one experiment), or ""
inline Parsed parse(int argc, const char *const *argv, const std::string &built_in = "") {
  OptionReader reader;
  const std::vector<Argument> words = reader.read_words(argc, argv);
  reader.choose_command();
  reader.apply(reader.read_lines(built_in, "built-in options"), true);
  for (const Argument &a : words) {
    if (a.name != "options" || !a.has_value) continue;
    try {
      reader.apply(reader.read_lines(read_file(a.value), a.value), false);
    } catch (const Error &e) {
      reader.error("--options: ", e.what());
    }
  }
  reader.apply(words, false);
  Parsed &out = reader.out;
  if (!out.help.empty()) return out;
  reader.count_positionals();
  // a resumed run takes its science from the checkpoint: the caller asks about contradictions once it has that
  if (!out.options.resume && reader.command != ANY) {
    const auto more = contradictions(out.options, out.command, out.given, reader.invalid);
    out.errors.insert(out.errors.end(), more.begin(), more.end());
  }
  if (out.options.resume && out.given.count("init-from"))
    out.errors.push_back("--resume and --init-from exclude each other: go on with a run, or begin one");
  return out;
}

// ---- help, all of it from the table

inline std::string default_text(const Option &option) {
  const std::string value = value_text(option, Options());
  if (option.kind == Kind::flag) return "off";
  return option.kind == Kind::optional_text || value.empty() ? "none" : value;
}
inline std::string wrapped(const std::string &text, size_t indent, size_t width) {
  std::string out;
  size_t column = indent;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(' ', at), text.size());
    if (column > indent && column + 1 + end - at > width) {
      out += '\n' + std::string(indent, ' ');
      column = indent;
    } else if (column > indent) {
      out += ' ';
      column++;
    }
    out += text.substr(at, end - at);
    column += end - at;
    at = end + 1;
  }
  return out;
}

// The options of one command, grouped, with range and default
inline std::string help(const std::string &command) {
  std::string s = "usage: train_gpt [command] [--name value | --name=value | --flag] ...\n\n";
  unsigned bit = TRAIN;
  for (const CommandRow &row : command_table()) {
    s += format("  %-16s%s\n", (std::string(row.name) + " " + row.positional).c_str(), row.help);
    if (command == row.name) bit = row.bit;
  }
  const Option *last = nullptr;
  for (const Option &option : option_table()) {
    if (!(option.commands & bit)) continue;
    if (!last || last->group != option.group) s += format("\n%s\n", group_name(option.group));
    last = &option;
    const std::string what = option.kind == Kind::choice ? list_choices(option, "|") : option.metavar;
    std::string left = "  --" + std::string(option.name) + (what.empty() ? "" : " " + what);
    left += left.size() < 24 ? std::string(25 - left.size(), ' ') : "\n" + std::string(25, ' ');
    std::string note = std::string(option.help);
    const bool number = option.kind == Kind::integer || option.kind == Kind::real;
    note += number ? " [" + requirement(option) + "; default " : " [default ";
    s += left + wrapped(note + default_text(option) + "]", 25, 110) + "\n";
  }
  return s + format("\nother\n  %-23s%s\n", "--help[=markdown]",
                    "this page (of one command: train_gpt COMMAND --help), or the tables of docs/options.md");
}

// The tables of docs/options.md
inline std::string help_markdown() {
  std::string s;
  const Option *last = nullptr;
  for (const Option &option : option_table()) {
    if (!last || last->group != option.group)
      s += format(
          "%s### %s\n\n| option | default | values | meaning | nature | commands |\n"
          "|---|---|---|---|---|---|\n",
          last ? "\n" : "", group_name(option.group));
    last = &option;
    std::string commands, values = requirement(option);
    for (const CommandRow &row : command_table())
      if (option.commands & row.bit) commands += (commands.empty() ? "" : ", ") + std::string(row.name);
    if (option.kind == Kind::text || option.kind == Kind::optional_text) values = option.metavar;
    for (size_t at = 0; (at = values.find('|', at)) != std::string::npos; at += 2) values.insert(at, "\\");
    s += format("| `--%s` | %s | %s | %s | %s | %s |\n", option.name, default_text(option).c_str(), values.c_str(),
                option.help, nature_name(option.nature), commands.c_str());
  }
  return s;
}

}  // namespace runtime
