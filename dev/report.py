#!/usr/bin/env python3
"""The report of a study: a Markdown page with its pictures, and one self-contained HTML page.

Needs:  pip install matplotlib
Run:    python3 dev/report.py dev/experiments/depth.table          docs/study.md, docs/study/*.png, runs/study.html
        python3 dev/report.py TABLE --records DIR --markdown FILE --html FILE

From the records that dev/study.py left (docs/study/TABLE/*.json); unfinished runs are missing in it, and n says so. Beside
the records may lie times*.txt, the output of `build/bench methods` at the study's shapes, for equal time.
Exit codes: 1 no record, or one that does not fit the table; 3 matplotlib is missing.
"""
import argparse
import base64
import glob
import html
import json
import os
import re
import sys

try:
    import report_pictures as pictures
except ImportError as missing:
    print(f"report.py: {missing}; install it with: pip install matplotlib", file=sys.stderr)
    sys.exit(3)
from experiments import ROOT, Table, as_arguments
from report_numbers import Results, Sample, t_quantile
from report_pictures import title

NONE = "–"

# ---- a document is a list of ("head", text), ("text", text), ("table", columns, rows), ("picture", name, text, png). Text
# may hold `code`, **strong**, [label](address); the address record:STUDY/NAME is the record of a run


class Markdown:
    def __init__(self, page, folder, records):
        self.page, self.folder, self.base = page, folder, os.path.dirname(os.path.abspath(page))  # of page and pictures
        self.records = os.path.relpath(os.path.dirname(os.path.abspath(records)), self.base)

    def write(self, document):
        os.makedirs(self.folder, exist_ok=True)
        os.makedirs(self.base, exist_ok=True)
        lines = []
        for kind, *parts in document:
            lines += getattr(self, kind)(*parts) + [""]
        with open(self.page, "w", encoding="utf-8") as file:
            file.write("\n".join(lines).rstrip("\n") + "\n")

    def link(self, text):
        return re.sub(r"\(record:([^)]+)\)", rf"({self.records}/\1.json)", text)

    def head(self, text):
        return ["# " + text if text.startswith("The study") else "## " + text]

    def text(self, text):
        return [self.link(text)]

    def table(self, columns, rows):
        return ["| " + " | ".join(self.link(cell) for cell in row) + " |"
                for row in [columns, ["---"] * len(columns)] + rows]

    def picture(self, name, text, png):
        path = os.path.join(self.folder, name)
        with open(path, "wb") as file:
            file.write(png)
        return [f"![{text}]({os.path.relpath(path, self.base)})"]


class Page:
    STYLE = ("body{font:15px/1.5 sans-serif;max-width:72em;margin:2em auto;padding:0 1em}table{border-collapse:collapse}"
             "td,th{border:1px solid #ccc;padding:.2em .6em;text-align:left}th{background:#f2f2f2}img{max-width:100%}"
             "pre{white-space:pre-wrap;overflow-wrap:anywhere;background:#f6f6f6;padding:.6em}code{background:#f2f2f2}"
             ":target{background:#ffc}")

    def __init__(self, page):
        self.page = page

    def write(self, document, records):
        os.makedirs(os.path.dirname(self.page) or ".", exist_ok=True)
        body = [line for kind, *parts in document for line in getattr(self, kind)(*parts)]
        body.append("<h2>The records</h2>")
        for name, record in records.items():
            text = ",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in record.items())
            body.append(f'<details id="{name}" open><summary>{name}</summary><pre>{html.escape(text)}</pre></details>')
        with open(self.page, "w", encoding="utf-8") as file:
            file.write('<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>The study</title>'
                       f"<link rel=\"icon\" href=\"data:,\"><style>{self.STYLE}</style></head><body>\n")
            file.write("\n".join(body) + "\n</body></html>\n")

    @staticmethod
    def inline(text):
        text = html.escape(text, quote=False)
        text = re.sub(r"`([^`]+)`", r"<code>\1</code>", text)
        text = re.sub(r"\*\*([^*]+)\*\*", r"<strong>\1</strong>", text)
        text = re.sub(r"\[([^]]+)\]\(record:([^)]+)\)", r'<a href="#\2">\1</a>', text)
        return re.sub(r"\[([^]]+)\]\(([^)]+)\)", r'<a href="\2">\1</a>', text)

    def head(self, text):
        level = "h1" if text.startswith("The study") else "h2"
        return [f"<{level}>{html.escape(text)}</{level}>"]

    def text(self, text):
        if text.startswith("    "):
            return [f"<pre>{html.escape(text)}</pre>"]
        return [f"<p>{self.inline(text)}</p>"]

    def table(self, columns, rows):
        lines = ["<tr>" + "".join(f"<th>{self.inline(cell)}</th>" for cell in columns) + "</tr>"]
        lines += ["<tr>" + "".join(f"<td>{self.inline(cell)}</td>" for cell in row) + "</tr>" for row in rows]
        return ["<table>"] + lines + ["</table>"]

    @staticmethod
    def picture(_, text, png):
        data = base64.b64encode(png).decode()
        return [f'<p><img alt="{html.escape(text)}" src="data:image/png;base64,{data}"></p>']

# ---- figures as text


def spread(sample, digits=4):
    if not sample.n:
        return NONE
    return f"{sample.mean:.{digits}f}" + (f" ± {sample.sd:.{digits}f}" if sample.sd is not None else "")


def difference(sample):
    """-0.0123 (n=2), or with its interval: -0.0123 [-0.0200, -0.0046] (n=3, sd 0.0031)."""
    if not sample.n:
        return NONE
    text = f"{sample.mean:+.4f}"
    if sample.half is not None:
        text += " [{:+.4f}, {:+.4f}]".format(*sample.interval())
    return text + (f" (n={sample.n}, sd {sample.sd:.4f})" if sample.sd is not None else f" (n={sample.n})")


def targets(results, setting, method):
    """Steps to the last loss of the last of compare: 812 ± 20 (n=2), and how many runs do not reach it."""
    steps, missed = results.target_steps(setting, method)
    if method == results.base[-1] or steps.n + missed == 0:
        return NONE
    text = f"{spread(steps, 0)} (n={steps.n})" if steps.n else ""
    return text + (", " if steps.n and missed else "") + (f"not reached by {missed}" if missed else "")


def linked(results, setting, method, text):
    """The text, linked to the first record of the cell; the table of all runs links each."""
    cell = results.cell(setting, method)
    return f"[{text}]({results.address(cell[min(cell)])})" if cell else text


def cells(results):
    return [(setting, method) for setting in results.settings for method in results.methods if results.cell(setting, method)]


def columns_of(results, *names):
    return results.axes + ["method"] + list(names)


def begin_row(setting, method):
    return [value for _, value in setting] + [f"`{method}`"]

# ---- the sections


def introduction(results, command):
    records = list(results.records.values())
    done, planned = len(records), results.planned
    first = records[0]
    times = [record["cpu_seconds"] for record in records if record["cpu_seconds"] is not None]
    kinds = sorted({record["machine"] for record in records})
    commits = sorted({record["commit"] for record in records})
    parts = f"{first['build']}, {first['simd']}, compiler {first['compiler']}, {first['threads']} thread a run"
    yield "head", "The study: depth, method, seed" if "depth" in results.axes else "The study: " + results.table.name
    yield "text", (f"Written by `{command}` from the records of finished runs; nothing here is edited by hand. "
                   + (f"**All {planned} runs are finished.**" if done == planned else
                      f"**Partial: {done} of {planned} runs are finished;** n stands beside every figure."))
    yield from claim_section(results)
    yield "head", "What was run"
    yield "text", (f"Options of all runs: `{' '.join(as_arguments(results.table.all))}`; those of the axes stand in "
                   f"[{results.table.name}.table](../dev/experiments/{results.table.name}.table). "
                   f"Data: {' '.join(results.table.notes['about'] + [''])}{first['data']}, fingerprint "
                   f"{' '.join(sorted({r['data_fingerprint'] for r in records}))}. The last evaluation reads the whole validation "
                   f"text ({first['predictions']:,} predictions): that is *the loss* below, in nats a character.")
    yield "text", (f"Program: commit {', '.join(commits)} ({parts}). Machine: {'; '.join(kinds)}, shared with others. Processor time of "
                   f"the {len(times)} runs whose time is known: {sum(times) / 3600:.1f} hours. The command, which may be stopped and "
                   "given again at any time, on any machine; a run that has a record is not run again:")
    yield "text", (f"    python3 dev/study.py dev/experiments/{results.table.name}.table --data TRAIN --val VALID --resume")
    if results.strange:
        yield "text", f"Records of no run of this table, left out: {', '.join(results.strange)}."


def claim_section(results):
    claims = results.claims()
    if not claims:
        return
    method, other, *_ = results.table.notes["claim"]
    sentence = ", ".join(f"{claimed} at {dict(setting)['depth']}" for setting, claimed, _, _ in claims)
    yield "text", (f"**The published sentence \"{method.upper()} is {sentence}\": this study {results.answer()} it** "
                   f"(compared with `{other}`; best: better than every other method here).")
    rows = []
    for setting, claimed, found, verdict in claims:
        sample, noise = results.paired(setting, method, other), results.noise(setting)
        rows.append([title(setting), claimed, linked(results, setting, method, difference(sample)), noise_text(noise),
                     "fewer than 3 seeds" if found == "open" else found,
                     {"yes": "supported", "no": "not supported", "open": "cannot yet say"}[verdict]])
    yield "table", ["setting", "published", f"{method} - {other}, 95 % interval", "noise floor", "found", "verdict"], rows
    yield "text", ("*Level* means that the interval holds 0, not that equality was shown: its width says what could be missed. "
                   "The intervals are each for itself, without a correction for their number.")


def noise_text(noise):
    if noise is None or not noise.n:
        return NONE
    largest = max(map(abs, noise.values))
    return f"largest {largest:.4f}, n={noise.n}"


def loss_section(results):
    yield "head", "Loss at equal steps"
    yield "text", ("Mean ± standard deviation (n-1) over the seeds; differences are paired: of one seed all methods share the backbone's "
                   f"initial weights and the order of the data. Brackets: 95 % t interval, from three seeds on (n=3: ± "
                   f"{t_quantile(2):.2f} sd / √3). Figures link to the record of the first seed, the last table to each.")
    rows = []
    for setting, method in cells(results):
        losses = results.losses(setting, method)
        bits = Sample([record["final_bpc"] for record in results.cell(setting, method).values()])
        rows.append(begin_row(setting, method) + [str(losses.n), linked(results, setting, method, spread(losses)), spread(bits)]
                    + [NONE if base == method else difference(results.paired(setting, method, base)) for base in results.base])
    yield "table", columns_of(results, "n", "loss", "bits a character", *[f"- `{base}`" for base in results.base]), rows
    if len(results.settings) > 1 and "depth" in results.axes:
        yield ("picture", "depth.png", "Loss and paired differences by depth; dots: seeds, bars: 95 % intervals, grey: noise floor",
               pictures.by_depth(results))


def noise_section(results):
    if not results.table.notes["noise"]:
        return
    twice, other = results.table.notes["noise"]
    yield "head", "The noise floor"
    yield "text", (f"The trainer is exact, so one configuration run twice gives the same bits, and a difference of zero. `{twice}` is `{other}` "
                   "with the same initial weights and its data in another order. Its difference to the first is one without a cause: "
                   "what a method must exceed. It is a cautious floor, because the methods of one seed share the order as well; the "
                   "intervals above measure what is left then.")
    rows = []
    for setting in results.settings:
        noise = results.noise(setting)
        if noise.n:
            rows.append([title(setting), linked(results, setting, twice, difference(noise)),
                         ", ".join(f"{value:+.4f}" for value in noise.values)])
    if rows:
        yield "table", ["setting", f"{twice} - {other}", "of each seed"], rows
    else:
        yield "text", "No such pair of runs is finished yet."


def budget_section(results):
    yield "head", "Equal FLOPs, equal time, memory"
    yield "text", ("Relative cost of a step; loss where the budget of the cheapest method's whole run (FLOPs) or PreNorm's (time) is used "
                   "up. FLOPs: the program's, and 14 C a source of each read (forward 4 C, backward 10 C) for the mixer. Time: `build/bench "
                   "methods` at these shapes, measured apart; processor time is of the runs, on a machine that others used. The "
                   "loss at an earlier step is the last one, moved by the difference of the evaluations on the way, linear between them. "
                   "**A run stopped there is in the middle of its schedule; one that is planned for fewer steps would do better**, so "
                   "equal budgets are somewhat unkind to the dearer methods. Steps to the last loss of "
                   f"`{results.base[-1]}` of the same seed: on the same curve.")
    rows = []
    for setting, method in cells(results):
        cell = list(results.cell(setting, method).values())
        flops = results.flops_ratio(setting, cell[0])
        time = results.time_ratio(cell[0])
        seconds = [record["cpu_seconds"] for record in cell if record["cpu_seconds"] is not None]
        rows.append(begin_row(setting, method) + [
            str(len(cell)), f"{cell[0]['parameters']:,}", f"{flops:.3f}",
            linked(results, setting, method, spread(results.at_budget(setting, method, lambda r, s=setting: results.flops_ratio(s, r)))),
            f"{time[0]:.3f} ({time[1]:.3f} to {time[2]:.3f})" if time else "not measured",
            spread(results.at_budget(setting, method, lambda _, t=time: t[0])) if time else NONE,
            targets(results, setting, method), spread(Sample(seconds), 0), f"{max(record['peak_bytes'] for record in cell) / 1e6:.0f} MB"])
    yield "table", columns_of(results, "n", "parameters", "FLOPs", "loss at equal FLOPs", "time (lowest to highest)",
                              "loss at equal time", f"steps to `{results.base[-1]}`'s loss", "processor seconds", "peak memory"), rows


def curve_section(results):
    yield "head", "Loss curves"
    yield "text", ("Left: training loss, a point the mean of the steps since the last. Right: evaluations on the way, paired with those of "
                   f"`{results.base[0]}`. Lines: means over the seeds; bands: one standard deviation, from two seeds on.")
    for setting in results.settings:
        if any(results.cell(setting, method) for method in results.methods):
            name = "curves_" + title(setting).replace(" ", "") + ".png"
            yield "picture", name, f"Loss curves, {title(setting)}", pictures.curves(results, setting)


def routing_section(results):
    yield "head", "What the reads take"
    yield "text", "Mean weight of every read by kind of source at the end of training, first seed; right: the details' share over training, all seeds."
    for setting in results.settings:
        image = pictures.routing(results, setting)
        if image:
            yield "picture", "routing_" + title(setting).replace(" ", "") + ".png", f"Routing, {title(setting)}", image


def rate_section(results):
    """The sweep that chose the learning rates: an axis called rate. Each depth's (and method's) lowest loss is strong."""
    if not results or not results.records:
        return
    groups = {}
    for record in results.records.values():
        key = tuple((axis, value) for axis, value in record["point"].items() if axis not in ("rate", "seed"))
        groups.setdefault(key, []).append(record)
    yield "head", "The learning rate"
    yield "text", (f"Chosen once per depth on one method by short runs, for all methods alike: `{' '.join(as_arguments(results.table.all))}`. "
                   "Strong: the lowest loss. A rate of its own for each method was not looked for.")
    rates = list(results.table.axes["rate"])
    rows = []
    for key, records in groups.items():
        loss = {record["point"]["rate"]: record for record in records}
        lowest = min(records, key=lambda record: record["final_loss"])["point"]["rate"]
        row = [" ".join(f"{axis} {value}" for axis, value in key)]
        for rate in rates:
            if rate not in loss:
                row.append(NONE)
                continue
            text = f"[{loss[rate]['final_loss']:.4f}]({results.address(loss[rate])})"
            row.append(f"**{text}**" if rate == lowest else text)
        rows.append(row)
    yield "table", ["setting"] + rates, rows


def run_section(results):
    yield "head", "Every run"
    seeds = list(results.table.axes.get("seed", {"": {}}))
    rows = []
    for setting, method in ((setting, method) for setting in results.settings for method in results.methods):
        cell = results.cell(setting, method)
        rows.append(begin_row(setting, method) + [f"[{cell[seed]['final_loss']:.4f}]({results.address(cell[seed])})" if seed in cell else NONE
                                                  for seed in seeds])
    yield "table", columns_of(results, *[f"seed {seed}" for seed in seeds]), rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", metavar="TABLE")
    parser.add_argument("--records", metavar="DIR", help="default docs/study/TABLE")
    parser.add_argument("--rates", metavar="TABLE", help="the sweep of the learning rate (default: rates.table beside TABLE)")
    parser.add_argument("--markdown", metavar="FILE", default=os.path.join(ROOT, "docs", "study.md"))
    parser.add_argument("--html", metavar="FILE", default=os.path.join("runs", "study.html"))
    args = parser.parse_args()
    try:
        table = Table(args.table)
        records = args.records or os.path.join(ROOT, "docs", "study", table.name)
        results = Results(table, records, sorted(glob.glob(os.path.join(records, "times*.txt"))))
        rates = None
        path = args.rates or os.path.join(os.path.dirname(args.table), "rates.table")
        if os.path.exists(path) and os.path.abspath(path) != os.path.abspath(args.table):
            sweep = Table(path)
            rates = Results(sweep, os.path.join(os.path.dirname(records), sweep.name))
        if not results.records:
            raise ValueError(f"no record in {records}; python3 dev/study.py makes them")
        if not results.base:
            raise ValueError(f"{args.table}: a report needs the statement compare")
    except (OSError, ValueError) as error:
        print(f"report.py: {error}", file=sys.stderr)
        return 1
    document = []
    for section in (introduction(results, f"python3 dev/report.py dev/experiments/{table.name}.table"), loss_section(results),
                    noise_section(results), budget_section(results), curve_section(results), routing_section(results),
                    rate_section(rates), run_section(results)):
        document += section
    page = Markdown(args.markdown, os.path.splitext(args.markdown)[0], records)
    page.write(document)
    Page(args.html).write(document, {one.address(record)[len("record:"):]: record for one in (results, rates) if one
                                     for record in one.records.values()})
    print(f"{args.markdown}\n{args.html}\n{len(results.records)} of {results.planned} runs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
