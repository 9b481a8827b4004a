#!/usr/bin/env python3
"""Curves of one or several runs, from runs/NAME/log.jsonl.

Needs:  pip install matplotlib
Run:    python3 dev/plot.py runs/A [runs/B ...] [-o FILE.png]      (default: loss.png in the first run's folder)
        python3 dev/plot.py --band runs/study/*                    one curve and band for the runs that differ in seeds only
        python3 dev/plot.py routes runs/A [-o FILE.png]            the routing of a model: plot_routes.py

From above: training loss (thin: every step, thick: smoothed) and validation loss (dots); learning rate and gradient norm;
speed; details' share of the reads' weight, where a method has details. --hours: the time spent in steps instead of steps.
--band: mean over the seeds, and one standard deviation (n-1) on either side. A run is a folder, or its log.jsonl.
Exit codes: 1 a log that cannot be read, 3 matplotlib is missing.
"""
import argparse
import json
import math
import os
import re
import statistics
import sys

try:
    import matplotlib
    matplotlib.use("Agg")  # no screen needed
    import matplotlib.pyplot as plt
    from matplotlib.ticker import FuncFormatter, LogLocator
except ImportError:
    print("plot.py: matplotlib is missing; install it with: pip install matplotlib", file=sys.stderr)
    sys.exit(3)


class Run:
    """Name and events of a run. Events with a loss that is no number are left out."""

    def __init__(self, path):
        file = os.path.join(path, "log.jsonl") if os.path.isdir(path) else path
        self.folder = os.path.dirname(os.path.abspath(file))
        self.name, self.events = os.path.basename(self.folder), {"step": [], "eval": [], "routes": []}
        try:
            with open(file, encoding="utf-8") as lines:
                for number, line in enumerate(lines, 1):
                    self.add(line, f"{file}:{number}")
        except OSError as error:
            sys.exit(f"{file}: {error.strerror}; expected the folder of a run, or its log.jsonl")
        if not self.events["step"] and not self.events["eval"]:
            sys.exit(f"{file}: no event 'step' or 'eval' with a loss; was anything trained?")
        self.facts = {}
        if os.path.exists(os.path.join(self.folder, "run.json")):
            with open(os.path.join(self.folder, "run.json"), encoding="utf-8") as text:
                self.facts = json.load(text)

    def add(self, line, where):
        try:
            event = json.loads(line)
        except json.JSONDecodeError:
            print(f"{where}: not a line of JSON, skipped", file=sys.stderr)
            return
        loss = event.get("loss")
        finite = isinstance(loss, (int, float)) and math.isfinite(loss)
        if event.get("event") == "routes" or (event.get("event") in self.events and finite):
            self.events[event["event"]].append(event)

    def column(self, kind, key):
        """{step: value} of the events that have the key. A step's event stands at the steps done with it, from 1."""
        return {event["step"]: event[key] for event in self.events[kind] if isinstance(event.get(key), (int, float))}

    def hours(self):
        """{step: hours spent in steps so far}; none without the options in run.json."""
        options = self.facts.get("options", {})
        tokens = options.get("batch", math.nan) * options.get("context", math.nan)
        spent, result = 0.0, {}
        for step, speed in self.column("step", "tokens_per_second").items():
            spent += tokens / speed / 3600
            result[step] = spent
        return result


class Curve:
    """Runs that are drawn as one: alone, or the seeds of one configuration; values(kind, key): {step: [value of each]}."""

    def __init__(self, name, runs):
        self.name, self.runs = name, runs

    def values(self, kind, key):
        columns = [run.column(kind, key) for run in self.runs]
        steps = sorted(set(columns[0]).intersection(*columns[1:]))
        return {step: [column[step] for column in columns] for step in steps}

    def axis(self, steps, hours):
        if not hours:
            return [max(1, step) for step in steps]  # a logarithmic axis has no place for 0
        columns = [run.hours() for run in self.runs]
        spent = {step: statistics.mean(column[step] for column in columns) for step in set(columns[0]).intersection(*columns[1:])}
        reached = sorted(spent)
        return [spent[max((done for done in reached if done <= step), default=reached[0])] for step in steps]


def grouped(runs):
    """The runs of equal options but for seeds and circumstances in one curve, called by what their names have in common."""
    groups = {}
    for run in runs:
        skip = ("seed", "data-seed", "sample-seed", "out", "resume", "data", "val", "threads")
        options = {key: value for key, value in run.facts.get("options", {"name": run.name}).items() if key not in skip}
        groups.setdefault(json.dumps(options, sort_keys=True), []).append(run)
    result = []
    for members in groups.values():
        name = re.sub(r"[-_]?seed[-_]?\d+", "", members[0].name) if len(members) > 1 else members[0].name
        result.append(Curve(f"{name}, n={len(members)}", members))
    return result


def smoothed(values):
    """Centred mean over a tenth of the steps so far: as wide everywhere on a logarithmic axis, and without a lag."""
    sums = [0.0]
    for value in values:
        sums.append(sums[-1] + value)
    result = []
    for i in range(len(values)):
        first, last = i - i // 20, min(i + i // 20, len(values) - 1)
        result.append((sums[last + 1] - sums[first]) / (last + 1 - first))
    return result


def draw(axis, curve, kind, key, color, options, smooth=False, **style):
    """The mean of a curve, and its band where it has several runs. Returns whether there was anything."""
    values = curve.values(kind, key)
    if not values:
        return False
    x = curve.axis(list(values), options.hours)
    means, spread = [statistics.mean(row) for row in values.values()], None
    if len(curve.runs) > 1:
        spread = [statistics.stdev(row) for row in values.values()]
    if smooth:
        means, spread = smoothed(means), spread and smoothed(spread)
    axis.plot(x, means, color=color, **style)
    if spread:
        axis.fill_between(x, [m - s for m, s in zip(means, spread)], [m + s for m, s in zip(means, spread)], color=color,
                          alpha=0.18, linewidth=0)
    return True


def draw_losses(axis, curves, options):
    for index, curve in enumerate(curves):
        color = f"C{index % 10}"
        last = curve.values("eval", "loss")
        label = curve.name
        if last:
            label += f" (validation {statistics.mean(last[max(last)]):.4f})"
        if len(curve.runs) == 1:
            draw(axis, curve, "step", "loss", color, options, linewidth=0.5, alpha=0.35)
        trained = draw(axis, curve, "step", "loss", color, options, smooth=True, linewidth=1.6, label=label)
        draw(axis, curve, "eval", "loss", color, options, linewidth=0.8, linestyle=":", marker="o", markersize=5,
             markeredgecolor="white", label=None if trained else label)
    axis.set_ylabel("loss (nats)")
    axis.legend(title="line: training, smoothed   dots: validation", title_fontsize="small", fontsize="small")


def draw_schedule(axis, curves, options):
    norms = axis.twinx()
    for index, curve in enumerate(curves):
        draw(axis, curve, "step", "lr", f"C{index % 10}", options, linewidth=1.4)
        draw(norms, curve, "step", "norm", f"C{index % 10}", options, linewidth=0.5, alpha=0.5)
    axis.set_ylabel("learning rate (thick)")
    axis.ticklabel_format(axis="y", style="sci", scilimits=(-2, 3))
    axis.set_ylim(bottom=0)
    norms.set_ylabel("gradient norm (thin)")
    norms.set_yscale("log")
    norms.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    norms.yaxis.set_major_formatter(FuncFormatter(plain_number))
    norms.yaxis.set_minor_formatter("")


def draw_speed(axis, curves, options):
    for index, curve in enumerate(curves):
        draw(axis, curve, "step", "tokens_per_second", f"C{index % 10}", options, smooth=True, linewidth=1)
    axis.set_ylabel("tokens a second")
    axis.set_ylim(bottom=0)


def draw_details(axis, curves, options):
    for index, curve in enumerate(curves):
        if any(any(row) for row in curve.values("routes", "details_share").values()):
            draw(axis, curve, "routes", "details_share", f"C{index % 10}", options, linewidth=1.2, marker=".")
    axis.set_ylabel("details' share")
    axis.set_ylim(0, 1.1 * axis.get_ylim()[1])


def plain_number(value, _):
    return f"{value:g}"


def main():
    if sys.argv[1:2] == ["routes"]:
        import plot_routes  # beside this file
        plot_routes.main(sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", metavar="RUN", help="folder of a run, or its log.jsonl")
    parser.add_argument("-o", "--out", metavar="FILE.png", help="default: loss.png in the first run's folder")
    parser.add_argument("--band", action="store_true", help="runs that differ in seeds only: their mean and a band")
    parser.add_argument("--hours", action="store_true", help="hours spent in steps instead of steps")
    parser.add_argument("--linear", action="store_true", help="linear axes instead of logarithmic ones")
    arguments = parser.parse_args()
    runs = [Run(path) for path in arguments.runs]
    if arguments.hours and not all(run.hours() for run in runs):
        sys.exit("--hours: a run without run.json or without steps; its time is not known")
    curves = grouped(runs) if arguments.band else [Curve(run.name, [run]) for run in runs]
    panels, heights = [draw_losses, draw_schedule, draw_speed], [3, 1, 0.8]
    if any(event.get("details_share") for run in runs for event in run.events["routes"]):
        panels, heights = panels + [draw_details], heights + [0.8]

    figure, axes = plt.subplots(len(panels), 1, sharex=True, figsize=(9, 2 + 1.6 * sum(heights)), layout="constrained",
                                gridspec_kw={"height_ratios": heights})
    for axis, panel in zip(axes, panels):
        panel(axis, curves, arguments)
        axis.grid(alpha=0.25)
    axes[-1].set_xlabel("hours" if arguments.hours else "step")
    if not arguments.linear:
        axes[0].set_xscale("linear" if arguments.hours else "log")
        axes[0].set_yscale("log")
        axes[0].yaxis.set_major_locator(LogLocator(subs=(1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8)))
        axes[0].yaxis.set_minor_formatter("")
        for axis in (axes[0].xaxis, axes[0].yaxis):
            axis.set_major_formatter(FuncFormatter(plain_number))
    first = arguments.runs[0]
    out = arguments.out or os.path.join(first if os.path.isdir(first) else os.path.dirname(first) or ".", "loss.png")
    try:
        figure.savefig(out, dpi=130)
    except OSError as error:
        sys.exit(f"{out}: {error.strerror}")
    print(out)


if __name__ == "__main__":
    main()
