#!/usr/bin/env python3
"""The experiments of dev/experiments: reads their files and lists parameters and FLOPs.

Needs:  python3, its standard library only; the program (make cpu)
Run:    make experiments                                   every file of dev/experiments
        python3 dev/experiments.py BINARY [FILE...]        the same of these files
        python3 dev/experiments.py BINARY --data FILE ...  with the vocabulary of that text; default: the built-in stories

NAME.options is one run, an option a line: `make NAME` bakes it into build/NAME. NAME.table is many runs, for
`python3 dev/study.py`, one statement a line; # begins a comment:
    all: OPTIONS                options of every run
    AXIS VALUE: OPTIONS         a value of an axis and the options it stands for; {AXIS} in them is that axis's value
    loop AXIS AXIS ...          order of the runs, outermost loop first; default: the axes as they appear
    skip AXIS=VALUE ...         leaves out the runs for which all of these hold
The runs are all combinations of the axes. Of an option that stands twice the last counts, axes in the order in which they
first appear. A run is called by its axes and values, the axis "method" by its value alone: depth12-wav-seed1.
For dev/report.py, values of the axis "method":
    compare METHOD ...          what the others are compared with
    noise METHOD OTHER          two names of one configuration that differ in a seed only
    about WORDS                 a sentence for the page: the texts
    claim METHOD OTHER DEPTH=worse|level|better|best ...    a published sentence, to be supported or not

FLOPs as the program counts them: 6 x parameters of the matrix products + 6 L C T a token; nothing for norms and routing.
"""
import argparse
import glob
import itertools
import math
import os
import re
import shlex
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FOLDER = os.path.join(ROOT, "dev", "experiments")
NOTES = ("compare", "noise", "claim", "about")


class Table:
    """The statements of a table file; runs() gives every run as (name, {axis: value}, {option: value})."""

    def __init__(self, path):
        self.path, self.name = path, os.path.splitext(os.path.basename(path))[0]
        self.all, self.axes, self.loop, self.skips = {}, {}, [], []
        self.notes = {word: [] for word in NOTES}
        with open(path, encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                try:
                    self.statement(line.split("#")[0].strip())
                except ValueError as error:
                    raise ValueError(f"{path}:{number}: {error}") from None
        unknown = [axis for axis in self.loop if axis not in self.axes]
        if unknown or (self.loop and len(set(self.loop)) != len(self.axes)):
            raise ValueError(f"{path}: loop must name every axis once: {' '.join(self.axes)}")
        for axis in (axis for skip in self.skips for axis in skip):
            if axis not in self.axes:
                raise ValueError(f"{path}: skip: there is no axis {axis}")
        for method in self.notes["compare"] + self.notes["noise"] + self.notes["claim"][:2]:
            if method not in self.axes.get("method", {}):
                raise ValueError(f"{path}: compare, noise, claim: the axis method has no value {method}")

    def statement(self, line):
        head, colon, rest = line.partition(":")
        words = head.split()
        if not line:
            return
        if colon and words == ["all"]:
            self.all.update(options_of(rest))
        elif colon and len(words) == 2:
            values = self.axes.setdefault(words[0], {})
            if words[1] in values:
                raise ValueError(f"{words[0]} {words[1]} is there already")
            if not re.fullmatch(r"[A-Za-z0-9._+-]+", "".join(words)):
                raise ValueError("axes and values are made of letters, digits and . _ + -")
            values[words[1]] = options_of(rest)
        elif not colon and words[0] == "loop" and len(words) > 1:
            self.loop = words[1:]
        elif not colon and words[0] == "skip" and all("=" in word for word in words[1:]):
            self.skips.append(dict(word.split("=", 1) for word in words[1:]))
        elif not colon and words[0] in NOTES and len(words) > 1:
            self.notes[words[0]] += words[1:]
        else:
            raise ValueError(f"not understood: {line}")

    def runs(self):
        result = []
        loop = self.loop or list(self.axes)
        for combination in itertools.product(*(self.axes[axis] for axis in loop)):
            point = dict(zip(loop, combination))
            if any(all(point[axis] == value for axis, value in skip.items()) for skip in self.skips):
                continue
            point = {axis: point[axis] for axis in self.axes}
            options = dict(self.all)
            for axis, value in point.items():
                options.update(self.axes[axis][value])
            for axis, value in point.items():
                options = {key: text.replace("{" + axis + "}", value) for key, text in options.items()}
            order = [axis for axis in self.axes if axis != "seed"] + ["seed"] * ("seed" in self.axes)
            name = "-".join(point[axis] if axis == "method" else axis + point[axis] for axis in order)
            result.append((name or "run", point, options))
        return result


def options_of(text):
    """{"lr": "1e-3", "fixed-beta": ""} of "--lr 1e-3 --fixed-beta"."""
    options, words = {}, shlex.split(text)
    for at, word in enumerate(words):
        if word.startswith("--"):
            key, _, value = word[2:].partition("=")
            options[key] = value
        elif at and words[at - 1].startswith("--") and "=" not in words[at - 1]:
            options[words[at - 1][2:]] = word
        else:
            raise ValueError(f"{word}: expected --OPTION [VALUE]")
    return options


def as_arguments(options):
    return [word for key, value in options.items() for word in ["--" + key] + [str(value)] * (value != "")]


def plan_of(binary, options):
    """What --dry-run says of a run: {"parameters", "matrices": those of the matrix products, "memory": text}."""
    result = subprocess.run([binary, "--dry-run"] + as_arguments(options), capture_output=True, text=True, check=False)
    if result.returncode:
        raise ValueError(result.stderr.strip() or result.stdout.strip())
    tensors = re.findall(r"^  (\S+) +(\d+) x (\d+) (.*)$", result.stdout, re.M)
    size = {name: int(rows) * int(columns) for name, rows, columns, _ in tensors}
    matrices = sum(size[name] for name, _, _, kind in tensors if "decay" in kind and name != "embed")
    layers, channels, context = map(int, re.search(r"(\d+) layers, (\d+) channels.*context (\d+)", result.stdout).groups())
    return {"parameters": sum(size.values()), "flops_per_token": 6 * matrices + 6 * layers * channels * context,
            "memory": re.search(r"^ *(.*?)  in all$", result.stdout, re.M).group(1)}


def tokens_of(options, defaults):
    return math.prod(int(options.get(key, defaults[key])) for key in ("steps", "batch", "context"))


def defaults_of(binary):
    """Default values of the options that count tokens."""
    text = subprocess.run([binary, "--help=markdown"], capture_output=True, text=True, check=True).stdout
    return {key: re.search(rf"^\| `--{key}` \| (\S+) ", text, re.M).group(1) for key in ("steps", "batch", "context")}


def options_file(path):
    with open(path, encoding="utf-8") as lines:
        return options_of(" ".join(line.split("#")[0].strip() for line in lines))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", metavar="BINARY")
    parser.add_argument("files", nargs="*", metavar="FILE")
    parser.add_argument("--data", metavar="FILE", help="text whose vocabulary counts (default: the built-in stories)")
    args = parser.parse_args()
    defaults = defaults_of(args.binary)
    files = args.files or sorted(glob.glob(os.path.join(FOLDER, "*.options"))) + sorted(glob.glob(os.path.join(FOLDER, "*.table")))
    for path in files:
        try:
            runs = Table(path).runs() if path.endswith(".table") else [("", {}, options_file(path))]
            list_runs(path, runs, args, defaults)
        except (OSError, ValueError) as error:
            print(f"experiments.py: {path}: {error}", file=sys.stderr)
            return 1
    return 0


def list_runs(path, runs, args, defaults):
    """A line for each set of options that the seeds have in common."""
    shown = {}
    for name, point, options in runs:
        shown.setdefault(tuple((axis, value) for axis, value in point.items() if axis != "seed"), []).append((name, options))
    print(f"{os.path.basename(path)}: {len(runs)} run{'s' * (len(runs) > 1)}")
    print(f"  {'':28} {'runs':>4} {'parameters':>11} {'FLOPs a token':>14} {'tokens':>9} {'FLOPs of a run':>15} {'memory':>10}")
    total = 0
    for point, same in shown.items():
        options = {key: value for key, value in same[0][1].items() if key not in ("data", "val", "split", "out")}
        plan = plan_of(args.binary, {**options, "data": args.data or "stories:0.1"})
        tokens = tokens_of(options, defaults)
        total += len(same) * tokens * plan["flops_per_token"]
        name = " ".join(value if axis == "method" else axis + " " + value for axis, value in point)
        print(f"  {name:28} {len(same):4} {plan['parameters']:11,} {plan['flops_per_token']:14,} {tokens:9.3g} "
              f"{tokens * plan['flops_per_token']:15.3g} {plan['memory']:>10}")
    print(f"  in all {total:.3g} FLOPs")


if __name__ == "__main__":
    sys.exit(main())
