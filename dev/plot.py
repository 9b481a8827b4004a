#!/usr/bin/env python3
"""Loss curves of one or several runs, from runs/NAME/log.jsonl.

Needs:  pip install matplotlib
Run:    python3 dev/plot.py runs/A [runs/B ...] [-o FILE.png]      (default: loss.png in the first run's folder)
        python3 dev/plot.py routes runs/A [-o FILE.png]            the routing of a model: plot_routes.py

Above: training loss (thin: every step, thick: smoothed) and validation loss (dots). Below: learning rate and gradient
norm. A run is a folder, or its log.jsonl. Exit codes: 1 a log that cannot be read, 3 matplotlib is missing.
"""
import argparse
import json
import math
import os
import sys

try:
    import matplotlib
    matplotlib.use("Agg")  # no screen needed
    import matplotlib.pyplot as plt
    from matplotlib.ticker import FuncFormatter, LogLocator
except ImportError:
    print("plot.py: matplotlib is missing; install it with: pip install matplotlib", file=sys.stderr)
    sys.exit(3)


def read_log(path):
    """Returns (name of the run, events 'step', events 'eval'). Events with a loss that is no number are left out."""
    file = os.path.join(path, "log.jsonl") if os.path.isdir(path) else path
    events = {"step": [], "eval": []}
    try:
        with open(file, encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                try:
                    event = json.loads(line)
                except json.JSONDecodeError:
                    print(f"{file}:{number}: not a line of JSON, skipped", file=sys.stderr)
                    continue
                loss = event.get("loss")
                if event.get("event") in events and isinstance(loss, (int, float)) and math.isfinite(loss):
                    events[event["event"]].append(event)
    except OSError as error:
        sys.exit(f"{file}: {error.strerror}; expected the folder of a run, or its log.jsonl")
    if not events["step"] and not events["eval"]:
        sys.exit(f"{file}: no event 'step' or 'eval' with a loss; was anything trained?")
    name = os.path.basename(os.path.dirname(os.path.abspath(file)))
    return name, events["step"], events["eval"]


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


def column(events, key):
    """(steps counted from 1, values) of the events that have the key: a logarithmic axis has no place for 0."""
    pairs = [(event["step"] + 1, event[key]) for event in events if isinstance(event.get(key), (int, float))]
    return [step for step, _ in pairs], [value for _, value in pairs]


def draw_losses(axis, runs):
    for index, (name, steps, evals) in enumerate(runs):
        color = f"C{index % 10}"
        x, y = column(steps, "loss")
        if x:
            axis.plot(x, y, color=color, linewidth=0.5, alpha=0.35)
            label = name if not evals else f"{name} (validation {evals[-1]['loss']:.4f})"
            axis.plot(x, smoothed(y), color=color, linewidth=1.6, label=label)
        # an evaluation is made with the weights after `step` updates: no shift
        x, y = [max(1, event["step"]) for event in evals], [event["loss"] for event in evals]
        if x:
            axis.plot(x, y, color=color, linewidth=0.8, linestyle=":", marker="o", markersize=5,
                      markeredgecolor="white", label=None if steps else name)
    axis.set_ylabel("loss (nats)")
    axis.legend(title="line: training, smoothed   dots: validation", title_fontsize="small", fontsize="small")


def draw_schedule(axis, runs):
    norms = axis.twinx()
    for index, (_, steps, _) in enumerate(runs):
        axis.plot(*column(steps, "lr"), color=f"C{index % 10}", linewidth=1.4)
        x, y = column(steps, "norm")
        norms.plot(x, y, color=f"C{index % 10}", linewidth=0.5, alpha=0.5)
    axis.set_ylabel("learning rate (thick)")
    axis.ticklabel_format(axis="y", style="sci", scilimits=(-2, 3))
    axis.set_ylim(bottom=0)
    norms.set_ylabel("gradient norm (thin)")
    norms.set_yscale("log")
    norms.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    norms.yaxis.set_major_formatter(FuncFormatter(plain_number))
    norms.yaxis.set_minor_formatter("")
    axis.set_xlabel("step")


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
    parser.add_argument("--linear", action="store_true", help="linear axes instead of logarithmic ones")
    arguments = parser.parse_args()
    runs = [read_log(path) for path in arguments.runs]

    figure, (losses, schedule) = plt.subplots(2, 1, sharex=True, figsize=(9, 7), layout="constrained",
                                              gridspec_kw={"height_ratios": [3, 1]})
    draw_losses(losses, runs)
    draw_schedule(schedule, runs)
    if not arguments.linear:
        losses.set_xscale("log")
        losses.set_yscale("log")
        losses.yaxis.set_major_locator(LogLocator(subs=(1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8)))
        losses.yaxis.set_minor_formatter("")
        for axis in (losses.xaxis, losses.yaxis):
            axis.set_major_formatter(FuncFormatter(plain_number))
    for axis in (losses, schedule):
        axis.grid(alpha=0.25)
    first = arguments.runs[0]
    out = arguments.out or os.path.join(first if os.path.isdir(first) else os.path.dirname(first) or ".", "loss.png")
    try:
        figure.savefig(out, dpi=130)
    except OSError as error:
        sys.exit(f"{out}: {error.strerror}")
    print(out)


if __name__ == "__main__":
    main()
