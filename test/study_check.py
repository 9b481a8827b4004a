#!/usr/bin/env python3
"""What test/study.sh asks about studies, by code that shares nothing with dev/.

Needs:  python3, its standard library only
Run:    study_check.py logs RUNS                      every log has each step once and in order, each evaluation once
        study_check.py options RUN.json               its options, one a line, for --options
        study_check.py report PAGE TABLE RUNS PICTURES   every figure of the page's tables again from the runs' files
        study_check.py html PAGE                      tags are closed, pictures are inside, links lead somewhere
        study_check.py verdicts TABLE RECORDS FOLDER  what dev/report_numbers.py finds in records with losses made for it
        study_check.py plot RUN                       dev/plot.py puts every step where the log says
"""
import base64
import html.parser
import json
import os
import re
import sys

T975 = {2: 4.302652729911275, 3: 3.182446305284263, 4: 2.7764451051977987}  # tables of Student's t, by degrees of freedom
CIRCUMSTANCE = ("out resume stop-after threads options verbose reads names json markdown dry-run prompt tokens temperature top-k top-p "
                "samples sample-seed max-minutes keep save-every part").split()


def read_lines(path):
    with open(path, encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def read(path):
    with open(path, encoding="utf-8") as text:
        return text.read()


def fail(text):
    print(text)
    sys.exit(1)


def check_logs(runs):
    for name in sorted(os.listdir(runs)):
        path = os.path.join(runs, name, "log.jsonl")
        if not os.path.exists(path):
            continue
        steps = [event["step"] for event in read_lines(path) if event["event"] == "step"]
        if steps != list(range(1, len(steps) + 1)) or len(steps) != 80:
            fail(f"{path}: steps {steps}")
        evals = [event["step"] for event in read_lines(path) if event["event"] == "eval"]
        if evals != [20, 40, 60, 80]:
            fail(f"{path}: evaluations {evals}")


def print_options(path):
    for key, value in json.loads(read(path))["options"].items():
        if key in CIRCUMSTANCE or value in ("", False):
            continue
        print(f"--{key}" if value is True else f"--{key} {value}")

# ---- the report


class RunFiles:
    def __init__(self, folder):
        events, facts = read_lines(os.path.join(folder, "log.jsonl")), json.loads(read(os.path.join(folder, "run.json")))
        evals = [event for event in events if event["event"] == "eval"]
        self.loss, self.bits = [(e["loss"], e["bpc"] if "bpc" in e else e["bpb"]) for e in evals if e["whole"]][0]
        self.way = [(e["step"], e["loss"]) for e in evals if not e["whole"]]
        self.steps, self.options, self.parameters = 80, facts["options"], facts["parameters"]
        reads = json.loads(read(os.path.join(folder, "routing.json"))).get("reads", [])
        sources = sum(len(one["sources"]) for one in reads if len(one["sources"]) > 1)
        self.flops = facts["flops_per_token"] + 14 * facts["options"]["channels"] * sources
        study = json.loads(read(os.path.join(folder, "study.json")))
        self.seconds, self.peak = study["cpu_seconds"], study["peak_bytes"]

    def at(self, step):
        if step >= self.steps:
            return self.loss
        last_step, last = self.way[-1]
        step = min(step, last_step)
        left = max(point for point in self.way if point[0] <= step)
        right = min(point for point in self.way if point[0] >= step)
        slope = (right[1] - left[1]) / (right[0] - left[0]) if right != left else 0
        return self.loss + left[1] + slope * (step - left[0]) - last

    def reaches(self, target):
        curve = [(step, loss + self.loss - self.way[-1][1]) for step, loss in self.way]
        for left, right in zip(curve, curve[1:]):
            if left[1] > target >= right[1]:
                return left[0] + (target - left[1]) / (right[1] - left[1]) * (right[0] - left[0])
        return None


def moments(values):
    mean = sum(values) / len(values)
    if len(values) == 1:
        return mean, None
    return mean, (sum((value - mean) ** 2 for value in values) / (len(values) - 1)) ** 0.5


def spread(values):
    mean, sd = moments(values)
    return [mean] + [sd] * (sd is not None)


def difference(values):
    """mean, interval, n, sd as the page prints them."""
    mean, sd = moments(values)
    if sd is None:
        return [mean, 1]
    if len(values) == 2:
        return [mean, 2, sd]
    half = T975[len(values) - 1] * sd / len(values) ** 0.5
    return [mean, mean - half, mean + half, len(values), sd]


class Expected:
    """The numbers of every table of the page, row by row and cell by cell."""

    def __init__(self, runs):
        self.cells = {}
        for name in sorted(os.listdir(runs)):
            match = re.fullmatch(r"depth(\d+)-(\w+)-seed(\d+)", name)
            if match:
                depth, method, seed = match.groups()
                self.cells.setdefault((int(depth), method), {})[seed] = RunFiles(os.path.join(runs, name))

    def pairs(self, depth, one, other):
        mine, theirs = self.cells[depth, one], self.cells[depth, other]
        return [mine[seed].loss - theirs[seed].loss for seed in sorted(mine)]

    def order(self):
        return [(depth, method) for depth in (2, 4) for method in ("prenorm", "block", "wav", "again")]

    def losses(self):
        for depth, method in self.order():
            runs = self.cells[depth, method]
            row = [[depth], [], [len(runs)], spread([run.loss for run in runs.values()]), spread([run.bits for run in runs.values()])]
            yield row + [[] if base == method else difference(self.pairs(depth, method, base)) for base in ("block", "prenorm")]

    def noise(self):
        for depth in (2, 4):
            pairs = self.pairs(depth, "again", "block")
            yield [[depth], difference(pairs), pairs]

    def claims(self):
        for depth in (2, 4):
            noise = self.pairs(depth, "again", "block")
            yield [[depth], [], difference(self.pairs(depth, "wav", "block")), [max(map(abs, noise)), len(noise)], [], []]

    def target(self, depth, method):
        if method == "prenorm":
            return []
        theirs = self.cells[depth, "prenorm"]
        found = [run.reaches(theirs[seed].loss) for seed, run in sorted(self.cells[depth, method].items())]
        steps = [step for step in found if step is not None]
        return (spread(steps) + [len(steps)] if steps else []) + [len(found) - len(steps)] * (None in found)

    def budgets(self):
        for depth, method in self.order():
            runs = list(self.cells[depth, method].values())
            cheapest = min(run.flops for (d, _), cell in self.cells.items() if d == depth for run in cell.values())
            ratio = runs[0].flops / cheapest
            time = {"prenorm": (1, 1, 1), "block": (1.5, 1.1, 1.7)}.get(runs[0].options["router"]) if depth == 2 else None
            yield [[depth], [], [len(runs)], [runs[0].parameters], [ratio], spread([run.at(80 / ratio) for run in runs]),
                   list(time) if time else [], spread([run.at(80 / time[0]) for run in runs]) if time else [],
                   self.target(depth, method), spread([run.seconds for run in runs]), [max(run.peak for run in runs) / 1e6]]

    def runs(self):
        for depth, method in self.order():
            runs = self.cells[depth, method]
            yield [[depth], []] + [[runs[seed].loss] if seed in runs else [] for seed in "123"]


def numbers(cell):
    """[(value, decimals)] of a cell as printed; what is a link's address does not count."""
    text = re.sub(r"\]\([^)]*\)", "", cell).replace(",", "" if re.fullmatch(r"[\d,]+", cell) else " ")
    return [(float(number), len(number.partition(".")[2])) for number in re.findall(r"[-+]?\d+\.?\d*", re.sub(r"`[^`]*`", "", text))]


def tables_of(page):
    tables, heading = {}, ""
    for line in read(page).splitlines():
        if line.startswith("#"):
            heading = line.strip("# ")
        elif line.startswith("|") and not line.startswith("| ---"):
            tables.setdefault(heading, []).append([cell.strip() for cell in line.strip("|").split(" | ")])
    return {heading: rows[1:] for heading, rows in tables.items()}


def compare(heading, printed, expected):
    expected = list(expected)
    if len(printed) != len(expected):
        fail(f"{heading}: {len(printed)} rows, need {len(expected)}")
    count = 0
    for row, need in zip(printed, expected):
        for cell, values in zip(row, need):
            found = numbers(cell) if cell != "fewer than 3 seeds" else []
            near = all(abs(number - value) <= 0.51 * 10 ** -digits for (number, digits), value in zip(found, values))
            if len(found) != len(values) or not near:
                fail(f"{heading}: the cell '{cell}' of {row[:2]} should say {values}")
            count += len(values)
    return count


def check_report(page, table, runs, pictures):
    expected, tables = Expected(runs), tables_of(page)
    count = sum(compare(heading, tables[heading], rows) for heading, rows in (
        ("The study: depth, method, seed", expected.claims()), ("Loss at equal steps", expected.losses()),
        ("The noise floor", expected.noise()), ("Equal FLOPs, equal time, memory", expected.budgets()),
        ("Every run", expected.runs())))
    text = read(page)
    for label, address in re.findall(r"\[([^\]]+)\]\(([^)]+\.(?:json|png))\)", text):
        if not os.path.exists(os.path.join(os.path.dirname(page) or ".", address)):
            fail(f"{label}: no file {address}")
    if text.count(".png)") != len(os.listdir(pictures)) or text.count(".png)") != 5:
        fail(f"pictures: {os.listdir(pictures)}")
    print(f"{count} figures of {table}")


class Html(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.ids, self.links, self.pictures = [], set(), [], 0

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        if tag not in ("img", "meta", "link"):
            self.open.append(tag)
        if tag == "img":
            self.pictures += 1
            if not base64.b64decode(attrs["src"].partition("base64,")[2]).startswith(b"\x89PNG"):
                fail("a picture that is no PNG inside the page")
        self.ids.add(attrs.get("id"))
        self.links += [attrs["href"]] if tag == "a" else []
        if tag == "script":
            fail("a script")

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            fail(f"{self.getpos()}: </{tag}> closes nothing")


def check_html(page):
    parser = Html()
    parser.feed(read(page))
    missing = [link for link in parser.links if link.startswith("#") and link[1:] not in parser.ids]
    if parser.open or missing or parser.pictures != 5 or len(parser.links) < 30:
        fail(f"open: {parser.open}; links to nothing: {missing}; {parser.pictures} pictures, {len(parser.links)} links")


def import_dev():
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "dev"))


def check_verdicts(table, records, folder):
    """Losses of depth 2, three seeds: those of block, and of the others a difference for each seed."""
    import_dev()
    import experiments
    import report_numbers
    for degrees, value in T975.items():
        if abs(report_numbers.t_quantile(degrees) - value) > 1e-6:
            fail(f"t of {degrees} degrees of freedom: {report_numbers.t_quantile(degrees)}, need {value}")
    even, wide, none = (0.1, 0.11, 0.09), (0.1, 0.5, -0.2), (0.0, 0.001, -0.001)
    cases = (("2=worse", even, none, "supports"), ("2=worse", wide, none, "does not support"), ("2=level", wide, none, "supports"),
             ("2=better", even, none, "does not support"), ("2=better", [-x for x in even], none, "supports"),
             ("2=best", [-x for x in even], none, "supports"), ("2=best", [-x for x in even], wide, "cannot yet say"),
             ("2=best", [-x for x in even], [-2 * x for x in even], "does not support"), ("4=level", none, none, "cannot yet say"),
             ("2=worse 4=level", even, none, "cannot yet say"), ("2=better 4=level", even, none, "does not support"))
    os.makedirs(folder, exist_ok=True)
    for claim, wav, prenorm, answer in cases:
        for name in os.listdir(records):
            if name.endswith(".json"):
                record = json.loads(read(os.path.join(records, name)))
                shift = {"wav": wav, "prenorm": prenorm}.get(record["point"]["method"], none)
                seed = int(record["point"]["seed"])
                record["final_loss"] = 3 + seed / 10 + (shift[seed - 1] if record["point"]["method"] != "block" else 0)
                with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                    json.dump(record, file)
        described = experiments.Table(table)
        described.notes["claim"] = ["wav", "block"] + claim.split()
        found = report_numbers.Results(described, folder).answer()
        if found != answer:
            fail(f"{claim}, wav {wav}, prenorm {prenorm}: '{found}', need '{answer}'")


def check_plot(run):
    import_dev()
    import plot
    drawn = plot.Run(run).column("step", "loss")
    logged = {event["step"]: event["loss"] for event in read_lines(os.path.join(run, "log.jsonl")) if event["event"] == "step"}
    curve = plot.Curve("", [plot.Run(run)])
    if drawn != logged or min(drawn) != 1 or curve.axis([1, 80], False) != [1, 80]:
        fail(f"drawn {list(drawn.items())[:3]}, logged {list(logged.items())[:3]}")


if __name__ == "__main__":
    COMMANDS = {"logs": check_logs, "options": print_options, "report": check_report, "html": check_html,
                "verdicts": check_verdicts, "plot": check_plot}
    COMMANDS[sys.argv[1]](*sys.argv[2:])
