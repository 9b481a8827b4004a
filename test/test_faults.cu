// test_faults.cu: the planted faults, test/faults/*.txt, and the program that plants them.
//
//   test_faults [--list] [WORD...]    checks that every fault still applies to the source; if not, names the row to mend
//                                     and the nearest line of the source
//   test_faults table                 number, program, case and what it is, a fault a line, with tabs between
//   test_faults apply NUMBER TREE     writes the file with the fault in it to TREE
//
// All from the root of the repository. A table is made of blocks with an empty line between them; # begins a comment. A
// block without `fault:` says which file and test those after it have. A fault:
//
//   fault: what it is
//   file: layers/x.cuh            where it is not that of the block above
//   test: PROGRAM CASE            likewise: a case of test_PROGRAM whose name begins so must fail; without CASE, any
//     a line before, to say where                            (these as in a diff: "  ", "- ", "+ ")
//   - a line of the source
//   + what becomes of it
//   ...                           another place in the same file follows
//
// Lines are compared without their indentation and without a comment at the end, and must stand exactly once.
#include "test/check.h"
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace fs = std::filesystem;
using check::that;
using Lines = std::vector<std::string>;

struct Hunk {
  Lines before, after;
  std::vector<int> rows;  // of `before`, in the table
};
struct Fault {
  std::string what, file, program, expected, table;
  std::vector<Hunk> hunks;
};

static Lines lines_of(std::istream &in) {
  Lines lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}
static Lines lines_of(const fs::path &path) {
  std::ifstream in(path);
  if (!in) throw std::runtime_error("there is no file " + path.string());
  return lines_of(in);
}
// What is compared of a line
static std::string bare(const std::string &line) {
  const std::string text = line.substr(0, line.find("//"));
  const size_t from = text.find_first_not_of(" \t"), to = text.find_last_not_of(" \t");
  return from == std::string::npos ? "" : text.substr(from, to - from + 1);
}
static std::string place(const std::string &file, int64_t line) { return file + ":" + std::to_string(line); }

// ---- the tables

struct Table {
  std::string name;
  std::vector<Fault> faults = {};
  Fault common = {}, block = {};
  bool separate = true;  // the next line of a hunk begins a new one

  // Is it a line `key: text`?
  static bool entry(const std::string &line, const std::string &key, std::string &text) {
    if (line.compare(0, key.size() + 2, key + ": ")) return false;
    text = line.substr(key.size() + 2);
    return true;
  }
  bool header(const std::string &line) {
    std::string test;
    if (entry(line, "fault", block.what) || entry(line, "file", block.file)) return true;
    if (!entry(line, "test", test)) return false;
    const size_t space = std::min(test.find(' '), test.size());
    block.program = test.substr(0, space);
    block.expected = test.substr(std::min(space + 1, test.size()));
    return true;
  }
  bool hunk(const std::string &line, int row) {
    const std::string mark = line.substr(0, 2), text = line.substr(std::min<size_t>(2, line.size()));
    if (block.what.empty() || (mark != "- " && mark != "+ " && mark != "  ")) return false;
    if (separate) block.hunks.push_back({});
    separate = false;
    if (mark != "- ") block.hunks.back().after.push_back(text);
    if (mark == "+ ") return true;
    block.hunks.back().before.push_back(text);
    block.hunks.back().rows.push_back(row);
    return true;
  }
  void end_of_block(int row) {
    if (block.what.empty()) {
      common = block;
    } else {
      block.table = name;
      faults.push_back(block);
      for (const Hunk &h : block.hunks)
        if (h.before.empty() || h.before == h.after) throw std::runtime_error(place(name, row) + ": changes nothing");
      if (block.hunks.empty() || block.file.empty() || block.program.empty())
        throw std::runtime_error(place(name, row) + ": a fault without lines, file or test");
    }
    block = common;
    separate = true;
  }
  void read(const Lines &lines) {
    for (size_t i = 0; i < lines.size(); i++) {
      const std::string &line = lines[i];
      if (line.empty())
        end_of_block((int)i);
      else if (line == "...")
        separate = true;
      else if (line[0] != '#' && !header(line) && !hunk(line, (int)i + 1))
        throw std::runtime_error(place(name, (int)i + 1) + ": not a line of a table: " + line);
    }
    end_of_block((int)lines.size());
  }
};
static std::vector<Fault> read_tables() {
  std::set<fs::path> paths;  // sorted: the numbers are the same everywhere
  for (const auto &entry : fs::directory_iterator("test/faults"))
    if (entry.path().extension() == ".txt") paths.insert(entry.path());
  std::vector<Fault> faults;
  for (const fs::path &path : paths) {
    Table table{path.string()};
    table.read(lines_of(path));
    faults.insert(faults.end(), table.faults.begin(), table.faults.end());
  }
  return faults;
}

// ---- planting

struct Source {
  std::string name;
  Lines lines;
};

// How alike two lines are: pairs of characters they share, of those they have; 1 if equal
static double likeness(const std::string &a, const std::string &b) {
  if (a == b) return 1;
  std::multiset<std::string> pairs;
  for (size_t i = 0; i + 1 < a.size(); i++) pairs.insert(a.substr(i, 2));
  const size_t all = a.size() + b.size();
  size_t shared = 0;
  for (size_t i = 0; i + 1 < b.size(); i++) {
    const auto found = pairs.find(b.substr(i, 2));
    if (found == pairs.end()) continue;
    pairs.erase(found);
    shared++;
  }
  return all ? 2. * (double)shared / (double)all : 0;
}
// Where the lines might be meant to stand: the place most like them, told by the first line that differs there
struct Place {
  std::string file;
  size_t line = 0, differs = 0;  // from 0; `differs` counts from the first line of the hunk, its length if none does
  double score = -1;
};
static Place most_like(const Hunk &h, const Source &s) {
  Place best;
  for (size_t i = 0; i + h.before.size() <= s.lines.size(); i++) {
    Place here{s.name, i, h.before.size(), 0};
    for (size_t j = 0; j < h.before.size(); j++) {
      const std::string want = bare(h.before[j]), have = bare(s.lines[i + j]);
      here.score += likeness(want, have);
      if (want != have) here.differs = std::min(here.differs, j);
    }
    if (here.score > best.score) best = here;
  }
  return best;
}
// What to mend: the row, the nearest line in its file, and where else these very lines stand
static std::string absent(const Fault &f, const Hunk &h, const std::vector<Source> &sources) {
  std::string near, moved;
  size_t differs = 0;
  for (const Source &s : sources) {
    const Place p = most_like(h, s);
    if (p.score < 0) continue;
    if (p.differs == h.before.size()) {
      moved += "\n      it stands at " + place(s.name, (int64_t)p.line + 1);
    } else if (s.name == f.file) {
      const size_t line = p.line + p.differs;
      near = "\n      nearest: " + place(s.name, (int64_t)line + 1) + ": " + bare(s.lines[line]);
      differs = p.differs;
    }
  }
  return place(f.table, h.rows[differs]) + ": not in " + f.file + ": " + h.before[differs] + near + moved;
}
// The one place where the hunk's lines stand; throws what is to be mended
static size_t find(const Fault &f, const Hunk &h, const Lines &lines, const std::vector<Source> &sources) {
  std::vector<size_t> found;
  for (size_t i = 0; i + h.before.size() <= lines.size(); i++) {
    size_t j = 0;
    while (j < h.before.size() && bare(lines[i + j]) == bare(h.before[j])) j++;
    if (j == h.before.size()) found.push_back(i);
  }
  if (found.size() == 1) return found[0];
  if (found.empty()) throw std::runtime_error(absent(f, h, sources));
  std::string text = place(f.table, h.rows[0]) + ": more than once in " + f.file + ", add lines before or after it:";
  for (size_t i : found) text += " " + place(f.file, (int64_t)i + 1);
  throw std::runtime_error(text);
}
static Lines plant(const Fault &f, const std::vector<Source> &sources) {
  Lines lines;
  for (const Source &s : sources)
    if (s.name == f.file) lines = s.lines;
  for (const Hunk &h : f.hunks) {
    const size_t at = find(f, h, lines, sources);
    const std::string indentation(std::min(lines[at].find_first_not_of(' '), lines[at].size()), ' ');
    lines.erase(lines.begin() + (int64_t)at, lines.begin() + (int64_t)(at + h.before.size()));
    for (size_t j = h.after.size(); j-- > 0;) lines.insert(lines.begin() + (int64_t)at, indentation + h.after[j]);
  }
  return lines;
}
static std::vector<Source> read_sources() {
  std::set<std::string> names;
  for (const auto &entry : fs::directory_iterator("."))
    if (entry.path().extension() == ".cuh") names.insert(entry.path().filename().string());
  for (const char *folder : {"layers", "routers", "runtime"}) {
    if (!fs::exists(folder)) continue;
    for (const auto &entry : fs::recursive_directory_iterator(folder))
      if (entry.path().extension() == ".cuh") names.insert(entry.path().string());
  }
  std::vector<Source> sources;
  for (const std::string &name : names) sources.push_back({name, lines_of(fs::path(name))});
  return sources;
}

// ---- what it checks

static std::string complaint(const Fault &fault, const std::vector<Source> &sources) {
  try {
    plant(fault, sources);
  } catch (const std::runtime_error &e) {
    return e.what();
  }
  return "";
}
static std::vector<Fault> table_of(const std::string &text) {
  std::istringstream in(text);
  Table table{"t"};
  table.read(lines_of(in));
  return table.faults;
}
static void test_planting() {
  const std::vector<Source> sources = {{"a", {"x = 1;", "  y = f(x);  // why", "x = 1;", "", "z = 2;"}},
                                       {"b", {"w = 3;"}}};
  const std::string head = "file: a\ntest: exact\n\nfault: f\n";
  check::test("a fault is planted at its one place, a few lines at a time", [&] {
    const std::vector<Fault> faults = table_of(head + "  x = 1;\n- y = f(x);\n+ y = g(x);\n+ y++;\n...\n- z = 2;\n");
    that(faults.size() == 1 && faults[0].hunks.size() == 2, "one fault, two hunks");
    const Lines want = {"x = 1;", "y = g(x);", "y++;", "x = 1;", ""};
    that(plant(faults[0], sources) == want, "the lines after it");
  });
  check::test("what does not apply is told with its row and the nearest line", [&] {
    const char *const cases[][2] = {
        {"- x = 1;\n", "t:5: more than once in a, add lines before or after it: a:1 a:3"},
        {"- y = f(z);\n", "t:5: not in a: y = f(z);\n      nearest: a:2: y = f(x);"},
        {"- w = 3;\n", "t:5: not in a: w = 3;\n      nearest: a:1: x = 1;\n      it stands at b:1"},
        {"  x = 1;\n- z = 2;\n", "t:6: not in a: z = 2;\n      nearest: a:2: y = f(x);"}};
    for (const auto &c : cases) {
      const std::string got = complaint(table_of(head + c[0]).at(0), sources);
      that(got == c[1], "'%s' gives '%s', not '%s'", c[0], got.c_str(), c[1]);
    }
  });
  check::test("what is no fault is refused with its row", [&] {
    const char *const cases[][2] = {{"- z = 2;\n+ z = 2;\n", "t:6: changes nothing"},
                                    {"z = 2;\n", "t:5: not a line of a table: z = 2;"},
                                    {"", "t:4: a fault without lines, file or test"}};
    for (const auto &c : cases) {
      std::string got;
      try {
        table_of(head + c[0]);
      } catch (const std::runtime_error &e) {
        got = e.what();
      }
      that(got == c[1], "'%s' gives '%s', not '%s'", c[0], got.c_str(), c[1]);
    }
  });
}
static void test_tables(const std::vector<Fault> &faults) {
  check::test("faults have names of their own and tests that exist", [&] {
    std::set<std::string> names;
    for (const Fault &f : faults) {
      that(names.insert(f.what).second, "%s: '%s' stands twice", f.table.c_str(), f.what.c_str());
      that(fs::exists("test/test_" + f.program + ".cu"), "%s: no test_%s", f.what.c_str(), f.program.c_str());
    }
    that(faults.size() >= 127, "only %d faults", (int)faults.size());
  });
  const std::vector<Source> sources = read_sources();
  for (size_t i = 0; i < faults.size(); i++)
    check::test(("fault " + std::to_string(i + 1) + " applies: " + faults[i].what).c_str(), [&] {
      const std::string wrong = complaint(faults[i], sources);
      that(wrong.empty(), "%s", wrong.c_str());
    });
}

static int apply(const std::vector<Fault> &faults, const std::string &number, const fs::path &tree) {
  const Fault &f = faults.at(std::stoul(number) - 1);
  const Lines lines = plant(f, read_sources());
  fs::remove(tree / f.file);  // it may be a link
  std::ofstream out(tree / f.file);
  for (const std::string &line : lines) out << line << "\n";
  return out.good() ? 0 : 1;
}

int main(int argc, char **argv) {
  const std::string command = argc > 1 ? argv[1] : "";
  try {
    const std::vector<Fault> faults = read_tables();
    if (command == "apply" && argc == 4) return apply(faults, argv[2], argv[3]);
    for (size_t i = 0; i < faults.size() && command == "table"; i++)
      printf("%d\t%s\t%s\t%s\n", (int)i + 1, faults[i].program.c_str(), faults[i].expected.c_str(),
             faults[i].what.c_str());
    if (command == "table") return 0;
    check::arguments(argc, argv);
    test_planting();
    test_tables(faults);
  } catch (const std::exception &e) {
    if (command == "apply" || command == "table") {
      fprintf(stderr, "test_faults: %s\n", e.what());
      return 1;
    }
    check::test("the tables can be read", [&] { that(false, "%s", e.what()); });
  }
  return check::report();
}
