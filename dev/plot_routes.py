"""One picture of a model's routing, from routing.json (train_gpt routes CKPT) and the run's log.jsonl.

Needs:  pip install matplotlib
Run:    python3 dev/plot.py routes runs/A [-o FILE.png]        (default: routing.png beside routing.json)

Above: the mean weight of every source (column) in every read (row), the open block's sources last, and beside it every
read's weight by kind of source. Below: rms of the stream, of the updates and of the gradients by depth, and how the
shares moved over training, from the events "routes" of log.jsonl. The stream methods have the lower left picture only,
and their scales. FILE is a routing.json, or its folder.
Exit codes: 1 a file that cannot be read, 3 matplotlib is missing (from plot.py).
"""
import argparse
import json
import math
import os
import sys

import matplotlib.pyplot as plt
from matplotlib.colors import PowerNorm
from matplotlib.ticker import MaxNLocator

# one colour per kind everywhere; whatever is a detail is warm
COLORS = {"embedding": "#4d4d4d", "update": "#3b76af", "block": "#3b76af", "partial": "#8fbce0", "phase": "#c8452b",
          "split": "#ee8a3a", "random": "#b5438c", "duplicate": "#8a6d3b", "learned": "#d9b310",
          "partial detail": "#f6c9a0"}
ORDER = list(COLORS)


def read_json(path):
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except OSError as error:
        sys.exit(f"{path}: {error.strerror}; write it with: train_gpt routes CKPT")
    except json.JSONDecodeError as error:
        sys.exit(f"{path}: not JSON: {error}")


def read_events(path):
    """The events "routes" of a log, in order of their steps; none where there is no log."""
    events = {}
    if os.path.exists(path):
        with open(path, encoding="utf-8") as lines:
            for line in lines:
                try:
                    event = json.loads(line)
                except json.JSONDecodeError:
                    continue  # a line that a crash left unfinished
                if event.get("event") == "routes":
                    events[event["step"]] = event
    return [events[step] for step in sorted(events)]


def columns_of(reads):
    """Every source once: completed sources in the order they appear, those of an open block last."""
    complete, partial = [], []
    for read in reads:
        for source, kind in zip(read["sources"], read["kinds"]):
            names = partial if kind.startswith("partial") else complete
            if source not in names:
                names.append(source)
    return complete, partial


def draw_weights(axis, figure, reads):
    complete, partial = columns_of(reads)
    names = complete + partial
    place = {name: i for i, name in enumerate(names)}
    rows = [[math.nan] * len(names) for _ in reads]
    for row, read in zip(rows, reads):
        for source, weight in zip(read["sources"], read["weights"]):
            row[place[source]] = weight
    image = axis.imshow(rows, aspect="auto", interpolation="nearest", cmap="viridis",
                        norm=PowerNorm(0.5, vmin=0, vmax=1))
    axis.set_facecolor("#eeeeee")  # not a source of this read
    if partial:
        axis.axvline(len(complete) - 0.5, color="white", linewidth=2)
    axis.set_xticks(range(len(names)))
    axis.set_xticklabels(names, rotation=90 if len(names) > 8 else 0, fontsize=min(8, 500 / len(names)))
    label_reads(axis, reads)
    axis.set_title("mean weight of every source in every read", fontsize="medium")
    figure.colorbar(image, ax=axis, ticks=[0, 0.01, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1], pad=0.01, fraction=0.04)


def label_reads(axis, reads):
    skip = math.ceil(len(reads) / 32)
    rows = [i for i in range(len(reads)) if i % skip == 0 or i == len(reads) - 1]
    axis.set_yticks(rows)
    axis.set_yticklabels([reads[i]["read"] for i in rows], fontsize=8)
    axis.set_ylabel("read (sublayer)")


def kinds_in(reads):
    found = {kind for read in reads for kind in read["kinds"]}
    return [kind for kind in ORDER if kind in found] + sorted(found - set(ORDER))


def draw_shares(axis, reads):
    left = [0.0] * len(reads)
    for kind in kinds_in(reads):
        share = [sum(w for k, w in zip(read["kinds"], read["weights"]) if k == kind) for read in reads]
        axis.barh(range(len(reads)), share, left=left, height=0.9, color=COLORS.get(kind), label=kind)
        left = [a + b for a, b in zip(left, share)]
    axis.plot([read["effective_sources"] / len(read["sources"]) for read in reads], range(len(reads)), color="black",
              linewidth=0.9, marker=".", markersize=4, label="effective sources / sources")
    axis.set_xlim(0, 1)
    axis.set_xlabel("share of the read's weight")
    axis.tick_params(labelleft=False)
    details = [read["details_share"] for read in reads[1:]]
    mean = sum(details) / len(details)
    axis.set_title(f"by kind; details {100 * mean:.1f} % on average" if any(details) else "by kind", fontsize="medium")
    axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.13), ncol=2, fontsize=7, frameon=False)


def draw_depth(axis, report):
    axis.plot(report["rms"], color="#222222", marker=".", markersize=4, label="input of the sublayer, output last")
    axis.plot(report["update_rms"], color="#3b76af", marker=".", markersize=4, label="update")
    if "mix_rms" in report:
        axis.plot(range(1, len(report["mix_rms"])), report["mix_rms"][1:], color="#8a6d3b", label="mix")
    if "scale" in report:
        axis.plot(report["scale"], color="#c8452b", linestyle=":", label="mean |scale|")
    axis.set_yscale("log")
    axis.set_xlabel("sublayer")
    axis.set_ylabel("rms")
    handles, labels = axis.get_legend_handles_labels()
    if "gradient_norm" in report:
        norms = axis.twinx()
        handles += norms.plot(report["gradient_norm"], color="#d9822b", linestyle="--", linewidth=1)
        labels.append("gradient norm (right)")
        norms.set_yscale("log")
        norms.tick_params(axis="y", labelsize=8)
    axis.legend(handles, labels, fontsize=7)
    axis.set_title("size by depth", fontsize="medium")
    axis.grid(alpha=0.25)


def draw_training(axis, events):
    axis.set_title("mean share of the weight over training", fontsize="medium")
    axis.set_xlabel("step")
    if not events:
        axis.text(0.5, 0.5, 'no events "routes" in log.jsonl', ha="center", va="center", transform=axis.transAxes)
        return
    steps = [event["step"] for event in events]
    for kind in events[-1]["kinds"]:
        axis.plot(steps, [event["kinds"].get(kind, math.nan) for event in events], color=COLORS.get(kind), linewidth=1,
                  marker=".", markersize=4, label=kind)
    if any(event["details_share"] for event in events):
        axis.plot(steps, [event["details_share"] for event in events], color="#c8452b", linewidth=2.6,
                  label="details in all")
    axis.set_ylim(0, 1.4 * axis.get_ylim()[1])  # room for the legend
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.legend(fontsize=7, ncol=2)
    axis.grid(alpha=0.25)


def draw(report, events):
    reads = report.get("reads")
    if not reads:
        figure, axis = plt.subplots(figsize=(9, 4.5), layout="constrained")
        draw_depth(axis, report)
    else:
        height = min(12, max(4, 0.2 * len(reads)))
        figure = plt.figure(figsize=(13, height + 3.8), layout="constrained")
        above, below = figure.subfigures(2, 1, height_ratios=[height, 3.2])
        weights, shares = above.subplots(1, 2, sharey=True, width_ratios=[2.2, 1])
        draw_weights(weights, above, reads)
        draw_shares(shares, reads)
        depth, training = below.subplots(1, 2, width_ratios=[2.2, 1])
        draw_depth(depth, report)
        draw_training(training, [event for event in events if "kinds" in event])
    block = f", blocks of {report['block']} sublayers" if "block" in report else ""
    details = ", details " + ", ".join(report["details"]) if report.get("details") else ""
    figure.suptitle(f"{report['router']}: {report['layers']} layers, {report['channels']} channels{block}{details}; "
                    f"mean over {report['tokens']:,} tokens", fontsize="large")
    return figure


def main(arguments):
    parser = argparse.ArgumentParser(prog="plot.py routes", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", metavar="FILE", help="routing.json, or its folder")
    parser.add_argument("-o", "--out", metavar="FILE.png", help="default: routing.png beside it (.svg, .pdf as well)")
    options = parser.parse_args(arguments)
    path = os.path.join(options.file, "routing.json") if os.path.isdir(options.file) else options.file
    folder = os.path.dirname(path) or "."
    report = read_json(path)
    if "rms" not in report:
        sys.exit(f"{path}: no report of train_gpt routes: it has no \"rms\"")
    out = options.out or os.path.join(folder, "routing.png")
    try:
        draw(report, read_events(os.path.join(folder, "log.jsonl"))).savefig(out, dpi=130)
    except OSError as error:
        sys.exit(f"{out}: {error.strerror}")
    print(out)
