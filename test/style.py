#!/usr/bin/env python3
"""The habits of this house that a program can check, over every tracked source file.

Needs:  python3, its standard library only; clang-format 14 for the last rule (skipped by name where there is none)
Run:    python3 test/style.py              one line per finding (FILE:LINE: what), one per rule, then the sum
        python3 test/style.py FILE...      the same over these files
        python3 test/style.py --selftest   every rule finds its planted example and passes its counterexample

The C++ rules read tokens (strings, comments, raw strings and preprocessor lines are known), not lines; the bodies of
macros are not read. A statement that the small parser does not understand is a finding, so nothing is passed over.
"""
import ast
import functools
import os
import re
import shutil
import subprocess
import sys
from style_cpp import Cpp, NotUnderstood, tokens_of

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FILE_LINES, FUNCTION_LINES = 500, 60
CPP, SCRIPTS = (".cuh", ".cu", ".h", ".cpp"), (".py", ".sh")
CLANG_FORMAT = 14  # other versions break lines elsewhere
TABLE = "routers/methods.cuh"  # the one place that names the routers
ROUTERS = {"prenorm", "rezero", "layerscale", "attnres", "block", "delta", "delta-block", "wav", "haares"}

# Where a literal may be a router's name without being a list or a comparison of methods: (path or folder, names, why)
ROUTERS_ALLOWED = (
    (TABLE, ROUTERS, "the table itself"),
    ("test/", ROUTERS, "tests of single methods say which"),
    ("docs/", ROUTERS, "examples"),
    ("runtime/option_table.cuh", {"block"}, "the option --block"),
    ("runtime/options.cuh", {"block"}, "the option --block"),
    ("routers/mix_plan.cuh", {"block"}, "a kind of source in routing.json"),
    ("runtime/methods_text.cuh", {"delta"}, "a key of methods --json"),
    ("routes.cuh", {"block"}, "a kind of source in routing.json"),
    ("dev/torch_routers.py", ROUTERS, "the independent reference says what each name means"),
    ("dev/torch_goldens.py", ROUTERS, "the goldens are of named methods"),
    ("dev/bench.cu", {"prenorm"}, "the base line of every ratio"),
    ("dev/bench_methods.cuh", {"prenorm"}, "the base line of every ratio"),
    ("dev/plot_routes.py", {"block"}, "a kind of source in routing.json"),
)

# ---- the rules: (path, text) -> [(line, what)]

@functools.lru_cache(maxsize=None)
def parsed(text):
    """The Cpp of a text, or why there is none; each text is parsed once."""
    try:
        return Cpp(text)
    except (NotUnderstood, IndexError, KeyError, RecursionError) as problem:
        return problem


def unreadable(problem):
    line, what = problem.args if isinstance(problem, NotUnderstood) else (1, repr(problem))
    return [(line, f"style.py does not understand this: {what}")]


def long_files(path, text):
    n = text.count("\n")
    return [(n, f"a file of {n} lines, {FILE_LINES} are enough")] if n > FILE_LINES else []


def long_functions(path, text):
    if path.endswith(".sh"):
        return []
    if path.endswith(".py"):
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
        found = [(f.name, f.lineno, f.end_lineno) for f in ast.walk(ast.parse(text)) if isinstance(f, kinds)]
    else:
        cpp = parsed(text)
        if isinstance(cpp, Exception):
            return unreadable(cpp)
        found = cpp.functions
    return [(first, f"{name}() of {last - first + 1} lines, {FUNCTION_LINES} are enough")
            for name, first, last in found if last - first + 1 > FUNCTION_LINES]


def comma_operators(path, text):
    cpp = parsed(text) if path.endswith(CPP) else None
    return cpp.commas if isinstance(cpp, Cpp) else []


def nested_conditionals(path, text):
    cpp = parsed(text) if path.endswith(CPP) else None
    return cpp.conditionals if isinstance(cpp, Cpp) else []


def casts(path, text):
    if not path.endswith(CPP) or path.startswith(("test/", "dev/")):
        return []
    return [(t.line, f"{t.text} in the product") for t in tokens_of(text) if t.text in ("dynamic_cast", "const_cast")]


def router_names(path, text):
    allowed = set()
    for place, names, _ in ROUTERS_ALLOWED:
        if path == place or place.endswith("/") and path.startswith(place):
            allowed |= names
    if path.endswith(CPP):
        literals = [(t.line, t.text.strip('"')) for t in tokens_of(text) if t.kind == "string"]
    elif path.endswith(".py"):
        literals = [(n.lineno, n.value) for n in ast.walk(ast.parse(text))
                    if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    else:  # a shell script's own list: three names or more in one line of code
        lines = [(i + 1, set(re.findall(r"[\w-]+", line.split("#")[0]))) for i, line in enumerate(text.split("\n"))]
        literals = [(i, name) for i, words in lines if len(words & ROUTERS) > 2 for name in sorted(words & ROUTERS)]
    return [(line, f"the router's name \"{name}\" outside of {TABLE}") for line, name in literals
            if name in ROUTERS - allowed]


@functools.lru_cache()
def clang_format():
    """The path of a clang-format of the right version, or None and why."""
    program = shutil.which(f"clang-format-{CLANG_FORMAT}") or shutil.which("clang-format")
    if not program:
        return None, "no clang-format"
    version = re.search(r"version (\d+)", subprocess.run([program, "--version"], capture_output=True, text=True).stdout)
    if not version or int(version.group(1)) != CLANG_FORMAT:
        return None, f"clang-format is not version {CLANG_FORMAT}"
    return program, ""


def layout(path, text):
    program, _ = clang_format()
    if not path.endswith(CPP) or not program:
        return []
    run = subprocess.run([program, "--dry-run", "-Werror", "--assume-filename=" + os.path.join(ROOT, path)],
                         input=text, capture_output=True, text=True)
    lines = sorted({int(n) for n in re.findall(r"^[^\n:]*:(\d+):\d+: error:", run.stderr, re.M)})
    return [(n, "not as clang-format writes it") for n in lines] or ([(1, run.stderr)] if run.returncode else [])


RULES = (
    (f"no file over {FILE_LINES} lines", long_files),
    (f"no function over {FUNCTION_LINES} lines", long_functions),
    ("no comma operator outside of for headers", comma_operators),
    ("no conditional operator inside of another", nested_conditionals),
    ("no dynamic_cast and no const_cast in the product", casts),
    (f"no router's name outside of {TABLE}", router_names),
    (f"as clang-format {CLANG_FORMAT} writes it", layout),
)

# ---- the rules' own examples: per rule what it must find and what it must pass (path, text)

LONG = "void f() {\n" + "  g();\n" * FUNCTION_LINES + "}\n"
SHORT = "void f() {\n" + "  g();\n" * (FUNCTION_LINES - 2) + "}\n"
EXAMPLES = (
    (long_files,
     [("a.cuh", "\n" * 501), ("a.py", "\n" * 501), ("a.sh", "\n" * 501)],
     [("a.cuh", "\n" * 500)]),
    (long_functions,
     [("a.cuh", LONG), ("a.cuh", "struct S {\n  S() : a(1), b{2} " + LONG[9:] + "};\n"),
      ("a.cuh", 'namespace n { const char *s = "}"; // }\n#define A {\n' + LONG + "}\n"),
      ("a.cuh", LONG[:-2] + "  const auto g = [] {\n  };\n}\n"), ("a.py", "def f():\n" + "    g()\n" * 60),
      ("a.cuh", "void f() {"), ("a.cuh", "void f() ]")],
     [("a.cuh", SHORT), ("a.cuh", SHORT * 2), ("a.py", "def f():\n" + "    g()\n" * 59),
      ("a.cuh", "struct S {\n" + SHORT * 2 + "};\n")]),
    (comma_operators,
     [("a.cuh", "void f() { %s }" % s) for s in
      ("a = 1, b = 2;", "if (x) a(), b();", "return a, b;", "x = (a, b);", "while (a, b) c();", "x[a, b] = c;",
       "for (;;) a = 1, b = 2;", "const auto g = [&] { a = 1, b = 2; };", "f(1, (a, b));", "case 1: a++, b++;",
       "if (int n = 1, m = 2; n, m) c();", "do a++, b++; while (c);", "*p = 1, q = 2;", "UNROLL for (;;) a++, b++;")],
     [("a.cuh", "void f() { %s }" % s) for s in
      ("int a = 1, b = 2;", "std::vector<int> a, b;", "for (i = 0, j = 1; i < j; i++, j--) g(i, j);", "f(a, b);",
       "const auto [a, b] = g();", "auto g = [a, b](int x, int y) { return x; };", "T x{1, 2}, *y = nullptr;",
       "f<a, b>(c);", "g(std::map<A, B>{}, x);", 's = "a, b"; // a, b\n', "using A = B<C, D>;", "a::B<c, d> e, f;",
       "struct stat s, t;", "typedef int v __attribute__((a, b));", "asm(\"x\" : \"r\"(a), \"r\"(b));",
       "enum { a, b };", "x = y < (z) ? 1 : 2;")]),
    (nested_conditionals,
     [("a.cuh", "void f() { %s }" % s) for s in
      ("x = a ? b : c ? d : e;", "x = a ? (b ? c : d) : e;", "x = (a ? b : c) ? d : e;", "g(a ? h(b ? c : d) : e);",
       "return a ? T{b ? c : d} : e;", "x = a ? y = b ? c : d : e;", "if (a ? b ? c : d : e) g();",
       "x = [&] { return a ? b : c ? d : e; }();")] + [("a.cuh", "int x = a ? b : c ? d : e;")],
     [("a.cuh", "void f() { %s }" % s) for s in
      ("x = a ? b : c;", "g(a ? b : c, d ? e : f);", "x = (a ? b : c) + (d ? e : f);", "x[a ? b : c] = d ? e : f;",
       "x = a ? g([&] { return b ? c : d; }) : e;", "int x = a ? b : c, y = d ? e : f;", 's = a ? "?" : "? :";',
       "std::map<A, B> x = a ? b : c;", "x = a ? b : c; y = d ? e : f;")]),
    (casts,
     [("runtime/a.cuh", "auto x = dynamic_cast<A *>(y);"), ("a.cu", "f(const_cast<A *>(y));")],
     [("test/a.cu", "auto x = dynamic_cast<A *>(y);"), ("a.cu", "// const_cast\n")]),
    (router_names,
     [("a.cu", 'if (router == "wav") f();'), ("runtime/options.cuh", 'x = "haares";'), ("dev/a.py", "x = 'delta'"),
      ("dev/a.sh", "for m in prenorm rezero wav; do")],
     [("test/a.cu", 'f("wav");'), ("runtime/options.cuh", 'x = "block";'), (TABLE, 'x = "wav";'),
      ("a.cu", 'f("wavelet"); // "wav"\n'), ("dev/a.sh", "--router wav")]),
    (layout, [("a.cuh", "int  x;\n")], [("a.cuh", "int x;\n")]),
)


def selftest():
    passed = failed = 0
    for (name, rule), (same, bad, good) in zip(RULES, EXAMPLES):
        assert rule is same
        if rule is layout and not clang_format()[0]:
            print(f"  skip {name}: {clang_format()[1]}")
            continue
        wrong = [f"found nothing in {path}: {text[:80]!r}" for path, text in bad if not rule(path, text)]
        for path, text in good:
            wrong += [f"{path}: {text[:80]!r}: {what}" for _, what in rule(path, text)]
        if rule in (comma_operators, nested_conditionals):  # an example that cannot be read proves nothing
            wrong += [f"{parsed(text)!r}: {text}" for _, text in bad + good if isinstance(parsed(text), Exception)]
        for line in wrong:
            print("    " + line)
        print(f"  {'FAIL' if wrong else 'ok  '} {name}: {len(bad)} planted, {len(good)} innocent")
        passed, failed = passed + (not wrong), failed + bool(wrong)
    return passed, failed, len(RULES) - passed - failed


def tracked():
    listed = subprocess.run(["git", "-C", ROOT, "ls-files"], capture_output=True, text=True)
    if listed.returncode == 0 and listed.stdout:
        return [f for f in listed.stdout.split("\n") if f.endswith(CPP + SCRIPTS) and os.path.exists(f"{ROOT}/{f}")]
    found = []  # a copy of the tree without its repository
    for folder, inner, names in os.walk(ROOT):
        inner[:] = [d for d in inner if not d.startswith((".", "build")) and d not in ("runs", "__pycache__")]
        found += [os.path.relpath(os.path.join(folder, n), ROOT) for n in names if n.endswith(CPP + SCRIPTS)]
    return sorted(found)


def check(files):
    texts = []
    for path in files:
        with open(os.path.join(ROOT, path), encoding="utf-8") as file:
            texts.append((path, file.read()))
    passed = failed = 0
    for name, rule in RULES:
        if rule is layout and not clang_format()[0]:
            print(f"  skip {name}: {clang_format()[1]}")
            continue
        found = [(path, line, what) for path, text in texts for line, what in rule(path, text)]
        for path, line, what in found:
            print(f"{path}:{line}: {what}")
        print(f"  {'FAIL' if found else 'ok  '} {name}" + (f": {len(found)}" if found else ""))
        passed, failed = passed + (not found), failed + bool(found)
    return passed, failed, len(RULES) - passed - failed


def main():
    arguments = sys.argv[1:]
    files = [os.path.relpath(os.path.abspath(f), ROOT) for f in arguments] or tracked()
    passed, failed, skipped = selftest() if arguments == ["--selftest"] else check(files)
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    sys.exit(1 if failed or not passed else 0)


if __name__ == "__main__":
    main()
