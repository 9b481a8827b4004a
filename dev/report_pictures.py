"""The pictures of a study's report, as PNG bytes: used by report.py.

Needs:  pip install matplotlib
"""
import io
import math
import statistics

import matplotlib
matplotlib.use("Agg")  # no screen needed
import matplotlib.pyplot as plt
from matplotlib.ticker import NullFormatter

from plot_routes import COLORS
from report_numbers import way

FADED = 0.18


def png(figure):
    out = io.BytesIO()
    figure.savefig(out, dpi=85, format="png", metadata={"Software": None})  # equal input, equal bytes
    plt.close(figure)
    return out.getvalue()


def color(results, method):
    return f"C{results.methods.index(method) % 10}"


def title(setting):
    return " ".join(word for pair in setting for word in pair)


def drawn(results):
    """The methods, without the second entry of the noise floor."""
    return [method for method in results.methods if method not in results.table.notes["noise"][:1]]


def by_depth(results):
    """Loss and differences to the first of compare at every depth: a dot a seed, a line through the means."""
    other = results.base[0]
    figure, axes = plt.subplots(1, 2, figsize=(10.5, 4.2), layout="constrained")
    places = list(range(len(results.settings)))
    methods = drawn(results)
    for index, method in enumerate(methods):
        shift = (index - len(methods) / 2) * 0.05
        for axis, sample_of in ((axes[0], lambda s, m=method: results.losses(s, m)),
                                (axes[1], lambda s, m=method: results.paired(s, m, other))):
            samples = [(place, sample_of(setting)) for place, setting in zip(places, results.settings)]
            samples = [(place, sample) for place, sample in samples if sample.n]
            if axis is axes[1] and method == other:
                continue
            axis.plot([p + shift for p, _ in samples], [s.mean for _, s in samples], color=color(results, method), linewidth=1,
                      label=method)
            for place, sample in samples:
                axis.plot([place + shift] * sample.n, sample.values, ".", color=color(results, method), markersize=6)
                if axis is axes[1] and sample.half is not None:
                    axis.errorbar(place + shift, sample.mean, sample.half, color=color(results, method), capsize=3)
    floor = [max(map(abs, noise.values)) if noise and noise.n else math.nan
             for noise in (results.noise(setting) for setting in results.settings)]
    for place, height in zip(places, floor):
        if not math.isnan(height):
            axes[1].fill_between([place - 0.3, place + 0.3], -height, height, color="#bbbbbb", alpha=0.5, linewidth=0,
                                 label="noise floor" if place == places[0] else None)
    axes[1].axhline(0, color="black", linewidth=0.8)
    axes[0].set_ylabel("validation loss (nats)")
    axes[1].set_ylabel(f"difference to {other} of the same seed (nats)")
    for axis in axes:
        axis.set_xticks(places, [title(setting) for setting in results.settings])
        axis.grid(alpha=0.25)
    axes[0].legend(fontsize=8)
    return png(figure)


def band(axis, curves, shade, label=None):
    """Mean over the seeds, and one standard deviation on either side where there are two of them or more."""
    x = [point[0] for point in curves[0]]
    columns = list(zip(*[[point[1] for point in curve] for curve in curves]))
    means = [statistics.mean(column) for column in columns]
    axis.plot(x, means, color=shade, linewidth=1.2, label=label)
    if len(curves) > 1:
        spread = [statistics.stdev(column) for column in columns]
        axis.fill_between(x, [m - s for m, s in zip(means, spread)], [m + s for m, s in zip(means, spread)], color=shade,
                          alpha=FADED, linewidth=0)


def curves(results, setting):
    """Training loss, and the difference of the evaluations on the way to the first of compare, of one setting."""
    other = results.base[0]
    figure, (losses, differences) = plt.subplots(1, 2, figsize=(10.5, 3.8), layout="constrained")
    theirs = results.cell(setting, other)
    for method in drawn(results):
        mine = results.cell(setting, method)
        if mine:
            band(losses, [record["train_curve"] for record in mine.values()], color(results, method), f"{method}, n={len(mine)}")
        paired = [seed for seed in mine if seed in theirs and method != other]
        if paired:
            band(differences, [[[a[0], a[1] - b[1]] for a, b in zip(way(mine[seed]), way(theirs[seed]))] for seed in paired],
                 color(results, method))
    differences.axhline(0, color="black", linewidth=0.8)
    for axis in (losses, differences):
        axis.set_xlabel("step")
        axis.grid(alpha=0.25)
    losses.set_yscale("log")
    losses.yaxis.set_minor_formatter(NullFormatter())
    ticks = [1, 1.2, 1.5, 2, 2.5, 3, 4]
    losses.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    losses.set_ylabel("training loss (nats)")
    differences.set_ylabel(f"validation loss - that of {other}")
    losses.set_title(title(setting), fontsize="medium")
    losses.legend(fontsize=7)
    return png(figure)


def routing(results, setting):
    """Weight of every read by kind of source, of each method's first seed, and the details' share over training."""
    chosen = []
    for method in drawn(results):
        cell = results.cell(setting, method)
        if cell and (cell[min(cell)]["routing"] or {}).get("shares"):
            chosen.append((method, cell[min(cell)]))
    if not chosen:
        return None
    figure, axes = plt.subplots(1, len(chosen) + 1, figsize=(3.4 * (len(chosen) + 1), 4.2), layout="constrained")
    for axis, (method, record) in zip(axes, chosen):
        shares, kinds = record["routing"]["shares"], record["routing"]["kinds"]
        left = [0.0] * len(shares)
        for index in sorted(range(len(kinds)), key=lambda i: list(COLORS).index(kinds[i]) if kinds[i] in COLORS else 99):
            width = [row[index] for row in shares]
            axis.barh(range(len(shares)), width, left=left, height=1, color=COLORS.get(kinds[index]), label=kinds[index])
            left = [a + b for a, b in zip(left, width)]
        axis.set_xlim(0, 1)
        axis.set_title(f"{method}, {title(setting)}", fontsize="medium")
        axis.set_xlabel("share of the read's weight")
        axis.set_ylabel("read (sublayer)")
    handles = {label: handle for axis in axes[:-1] for handle, label in zip(*axis.get_legend_handles_labels())}
    axes[0].legend(handles.values(), handles.keys(), fontsize=7, loc="upper right")
    for method, record in chosen:
        cell = results.cell(setting, method).values()
        for one in cell if any(share for one in cell for _, share in one["share_curve"]) else []:
            axes[-1].plot(*zip(*one["share_curve"]), color=color(results, method), linewidth=1,
                          label=method if one is record else None)
    axes[-1].set_title("details' share of the weight", fontsize="medium")
    axes[-1].set_xlabel("step")
    axes[-1].set_ylim(bottom=0)
    if axes[-1].lines:
        axes[-1].legend(fontsize=7)
    axes[-1].grid(alpha=0.25)
    return png(figure)
