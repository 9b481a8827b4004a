"""The numbers of a study's report, from the table and the records alone: used by report.py and report_pictures.py.

Needs:  python3, its standard library only

A *setting* is the values of all axes but method and seed, a *cell* a setting and a method: its runs differ in the seed.
Differences are paired: of the same setting and seed, which share the backbone's initial weights and the order of the data.
"""
import glob
import math
import os
import re
import statistics

from study import read_json


def t_quantile(freedom, level=0.95):
    """The t with P(|T| <= t) = level, for T of Student's distribution: the density summed by Simpson's rule, and bisection."""
    factor = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(freedom * math.pi)

    def inside(t, pieces=2000):
        width, total = t / pieces, 0.0
        for at in range(pieces + 1):
            weight = 4 if at % 2 else 2
            total += (1 if at in (0, pieces) else weight) * (1 + (at * width) ** 2 / freedom) ** (-(freedom + 1) / 2)
        return 2 * factor * total * width / 3

    low, high = 0.0, 100.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if inside(middle) < level else (low, middle)
    return low


class Sample:
    """n, mean, standard deviation (n-1) and, from three values on, half of the 95 % t interval of the mean."""

    def __init__(self, values):
        self.values, self.n = list(values), len(values)
        self.mean = statistics.mean(values) if self.n else math.nan
        self.sd = statistics.stdev(values) if self.n > 1 else None
        self.half = t_quantile(self.n - 1) * self.sd / math.sqrt(self.n) if self.n > 2 else None

    def interval(self):
        return None if self.half is None else (self.mean - self.half, self.mean + self.half)


def interpolated(curve, x):
    """The curve [[x, y, ...], ...] at x, linear between its points."""
    for (x0, y0), (x1, y1) in zip([p[:2] for p in curve], [p[:2] for p in curve[1:]]):
        if x0 <= x <= x1:
            return y0 + (y1 - y0) * (x - x0) / (x1 - x0)
    return math.nan


def way(record):
    """Evaluations on the way: all on the same part of the validation text, unlike the last."""
    return [point for point in record["eval_curve"] if point[2] != record["predictions"]]


def loss_at(record, step):
    """Loss of the whole validation text at an earlier step: the last evaluation, moved by as much as those on the way."""
    curve = way(record)
    if step >= record["steps"] or not curve:
        return record["final_loss"] if step >= record["steps"] else math.nan
    return record["final_loss"] + interpolated(curve, min(step, curve[-1][0])) - curve[-1][1]


def steps_to(record, target):
    """The step at which the moved curve of loss_at first reaches the target; None where it does not."""
    if not way(record):
        return None
    shift = record["final_loss"] - way(record)[-1][1]
    curve = [[step, loss + shift] for step, loss, _ in way(record)]
    for (x0, y0), (x1, y1) in zip(curve, curve[1:]):
        if y1 <= target < y0:
            return x0 + (x1 - x0) * (y0 - target) / (y0 - y1)
    return None


def routing_flops(record):
    """Of the depth mixer, a token, forward and backward: 14 C for each source of each read; a lone source is a copy."""
    sources = (record["routing"] or {}).get("sources") or []
    return 14 * record["options"]["channels"] * sum(n for n in sources if n > 1)


def read_times(paths):
    """{(C, L, T, B, method): (ratio, lowest, highest)} from the output of `build/bench methods`."""
    times, shape = {}, None
    for path in paths:
        with open(path, encoding="utf-8") as lines:
            for line in lines:
                head = re.match(r"methods C=(\d+) L=(\d+) T=(\d+) B=(\d+),.* relative to (\S+)", line)
                row = re.match(r"  (\S+) +~? *([\d.]+) +\(([\d.]+) to ([\d.]+)\)", line)
                if head:
                    shape = tuple(map(int, head.groups()[:4]))
                    times[shape + (head.group(5),)] = (1.0, 1.0, 1.0)
                elif row and shape:
                    times[shape + (row.group(1),)] = tuple(map(float, row.groups()[1:]))
    return times


class Results:
    def __init__(self, table, folder, times=()):
        self.table, self.folder = table, folder
        self.records, self.times = {}, read_times(times)
        planned = table.runs()
        self.planned = len(planned)
        names = {name for name, _, _ in planned}
        for name, _, options in planned:
            path = os.path.join(folder, name + ".json")
            if os.path.exists(path):
                record = read_json(path)
                if record["given"] != options:
                    raise ValueError(f"{path}: made with other options than those of {table.path}")
                self.records[name] = record
        self.strange = sorted(set(os.path.basename(path)[:-5] for path in glob.glob(os.path.join(folder, "*.json"))) - names)
        self.axes = [axis for axis in table.axes if axis not in ("method", "seed")]
        self.settings = list(dict.fromkeys(self.setting(point) for _, point, _ in planned))
        self.methods = list(table.axes.get("method", {"": {}}))
        self.base = table.notes["compare"]

    def setting(self, point):
        return tuple((axis, point[axis]) for axis in self.axes)

    def address(self, record):
        return f"record:{os.path.basename(os.path.normpath(self.folder))}/{record['name']}"

    def cell(self, setting, method):
        """{seed: record}"""
        return {record["point"].get("seed", ""): record for record in self.records.values()
                if self.setting(record["point"]) == setting and record["point"].get("method", "") == method}

    def losses(self, setting, method):
        return Sample([record["final_loss"] for record in self.cell(setting, method).values()])

    def paired(self, setting, method, other, value=lambda record: record["final_loss"]):
        mine, theirs = self.cell(setting, method), self.cell(setting, other)
        return Sample([value(mine[seed]) - value(theirs[seed]) for seed in mine if seed in theirs])

    # ---- budgets

    def time_ratio(self, record):
        """Time of a step relative to PreNorm's: the median, the lowest, the highest; None where it was not measured."""
        options = record["options"]
        return self.times.get(tuple(options[key] for key in ("channels", "layers", "context", "batch", "router")))

    def flops_ratio(self, setting, record):
        """FLOPs of a step, those of the mixer included, relative to the cheapest method of the setting."""
        def flops(one):
            return one["flops_per_token"] + routing_flops(one)
        return flops(record) / min(flops(one) for method in self.methods for one in self.cell(setting, method).values())

    def at_budget(self, setting, method, ratio):
        """Losses where the budget of the reference's whole run is used up; ratio(record): cost of a step relative to it."""
        losses = []
        for record in self.cell(setting, method).values():
            cost = ratio(record)
            if cost:
                losses.append(loss_at(record, record["steps"] / max(1.0, cost)))
        return Sample(losses)

    def target_steps(self, setting, method):
        """Steps to the last loss of the last of compare, of the same seed; and of how many runs that do not reach it."""
        theirs = self.cell(setting, self.base[-1])
        found = [steps_to(record, theirs[seed]["final_loss"]) for seed, record in self.cell(setting, method).items() if seed in theirs]
        return Sample([step for step in found if step is not None]), found.count(None)

    # ---- the published sentence

    def noise(self, setting):
        """Paired differences of one configuration entered twice; None where the table has no such pair."""
        pair = self.table.notes["noise"]
        return self.paired(setting, *pair) if pair else None

    def relation(self, setting, method, other):
        """("worse", "better", "level" or "open", the differences)."""
        differences = self.paired(setting, method, other)
        if differences.n < 3:
            return "open", differences
        low, high = differences.interval()
        if low <= 0 <= high:
            return "level", differences
        return ("worse" if low > 0 else "better"), differences

    def claims(self):
        """[(setting, claimed, found, verdict "yes", "no" or "open")] of the table's claim."""
        if not self.table.notes["claim"]:
            return []
        method, other, *sayings = self.table.notes["claim"]
        result = []
        for depth, claimed in (saying.split("=") for saying in sayings):
            for setting in self.settings:
                if dict(setting).get("depth") == depth:
                    result.append((setting, claimed) + self.judged(setting, method, other, claimed))
        return result

    def judged(self, setting, method, other, claimed):
        """(found, verdict). Best: better than every other method; one that is not told apart leaves it open."""
        twice = self.table.notes["noise"][:1]
        if claimed != "best":
            found, _ = self.relation(setting, method, other)
            if found == "open":
                return found, "open"
            return found, "yes" if found == claimed else "no"
        rivals = [rival for rival in self.methods if rival != method and rival not in twice]
        found = {rival: self.relation(setting, method, rival)[0] for rival in rivals}
        words = ", ".join(f"{what} than {rival}" if what in ("better", "worse") else f"{what} with {rival}"
                          for rival, what in found.items() if what != "open")
        if "worse" in found.values():
            return words, "no"
        if all(what == "better" for what in found.values()):
            return "best", "yes"
        return words or "open", "open"

    def answer(self):
        verdicts = [verdict for *_, verdict in self.claims()]
        if "no" in verdicts:
            return "does not support"
        return "supports" if verdicts and all(verdict == "yes" for verdict in verdicts) else "cannot yet say"
