#!/usr/bin/env python3
"""Runs a table of trainings, several at a time, and keeps a small record of each: a study of depth, method and seed.

Needs:  python3, its standard library only; the program (make cpu)
Run:    python3 dev/study.py TABLE --data TRAIN --val VALID            all runs of the table, one process a core
        python3 dev/study.py TABLE --data TRAIN --val VALID --resume   goes on: with begun runs, after finished ones
        python3 dev/study.py TABLE --list                              which runs are finished, begun, to do
        python3 dev/report.py TABLE                                    the report, from the records alone

The tables are dev/experiments/*.table; dev/experiments.py says how one is written.
A run's folder is RUNS/NAME (default runs/TABLE/NAME); its record, a few KB for version control, RECORDS/NAME.json (default
docs/study/TABLE/NAME.json). A run that has a record is not run again, wherever it was made; a begun one goes on from its
newest checkpoint. The study may be killed at any moment: TERM and INT save first; KILL takes the runs along.
While the file of --pause-file exists all runs stand still (SIGSTOP) and none is started: for others who measure speed.
Exit codes: 0 all runs have a record, 1 some failed, 2 wrong table or options, 3 stopped before the end.
"""
import argparse
import ctypes
import fcntl
import glob
import hashlib
import json
import os
import platform
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time

from experiments import ROOT, Table, as_arguments, defaults_of, plan_of, tokens_of

# where and how a run was computed: no part of what a record calls its options
CIRCUMSTANCE = ("data val out resume threads options verbose reads names json markdown dry-run prompt tokens temperature top-k "
                "top-p samples sample-seed sample-every stop-after save-every keep max-minutes part").split()


def read_json(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def write_json(path, value):
    """One member a line, atomically."""
    lines = [f"  {json.dumps(key)}: {json.dumps(member)}" for key, member in value.items()]
    with open(path + ".new", "w", encoding="utf-8") as file:
        file.write("{\n" + ",\n".join(lines) + "\n}\n")
    os.replace(path + ".new", path)


def processor():
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            model = re.search(r"model name\s*:\s*(.*)", file.read())
    except OSError:
        model = None
    return f"{model.group(1) if model else platform.machine()}, {os.cpu_count()} CPUs"

# ---- the record of a finished run


def rounded(value, digits=5):
    """Floats of a list or of a value to some significant digits: pictures need no more."""
    if isinstance(value, list):
        return [rounded(item, digits) for item in value]
    return float(f"{value:.{digits}g}") if isinstance(value, float) else value


def routing_of(folder):
    """Of routing.json: per read its weight by kind of source; rms by depth."""
    path = os.path.join(folder, "routing.json")
    if not os.path.exists(path):
        return None
    report = read_json(path)
    result = {key: rounded(report[key], 3) for key in ("rms", "update_rms", "scale") if key in report}
    reads = report.get("reads") or []
    kinds = list(dict.fromkeys(kind for read in reads for kind in read["kinds"]))
    result["kinds"] = kinds
    result["sources"] = [len(read["sources"]) for read in reads]
    result["shares"] = [[round(sum(w for k, w in zip(read["kinds"], read["weights"]) if k == kind), 4) for kind in kinds]
                        for read in reads]
    return result


def record_of(table, name, point, options, folder):
    run = read_json(os.path.join(folder, "run.json"))
    with open(os.path.join(folder, "log.jsonl"), encoding="utf-8") as lines:
        events = [json.loads(line) for line in lines]
    steps = [event for event in events if event["event"] == "step"]
    evals = [event for event in events if event["event"] == "eval"]
    routes = [event for event in events if event["event"] == "routes"]
    tokens = run["options"]["batch"] * run["options"]["context"]
    window = max(1, len(steps) // 50)
    checkpoint = max(glob.glob(os.path.join(folder, "step_*.safetensors")), key=os.path.getmtime)
    with open(checkpoint, "rb") as file:
        digest = hashlib.sha256(file.read()).hexdigest()
    whole = [event for event in evals if event.get("whole")][-1]
    study = read_json(os.path.join(folder, "study.json"))
    return {
        "study": table.name, "name": name, "point": point, "given": options,
        "options": {key: value for key, value in run["options"].items() if key not in CIRCUMSTANCE},
        **{key: run.get(key) for key in ("commit", "build", "simd", "compiler", "float_order", "data_fingerprint", "parameters",
                                         "flops_per_token", "planned_bytes")},
        "data": run["data"].split(": ")[-1], "machine": processor(), "finished": time.strftime("%Y-%m-%d", time.gmtime()),
        "steps": len(steps), "tokens_per_step": tokens,
        "final_loss": whole["loss"], "final_bpc": whole.get("bpc", whole.get("bpb")), "predictions": whole["predictions"],
        "final_train_loss": statistics.mean(event["loss"] for event in steps[-window:]),
        # a point is the mean over the window of steps that ends there
        "train_curve": [[steps[at + window - 1]["step"], round(statistics.mean(e["loss"] for e in steps[at:at + window]), 5)]
                        for at in range(0, len(steps) - window + 1, window)],
        "eval_curve": [[event["step"], event["loss"], event["predictions"]] for event in evals],
        "share_curve": [[event["step"], event.get("details_share", 0)] for event in routes],
        "routes": {key: value for key, value in routes[-1].items() if key != "event"} if routes else None,
        "routing": routing_of(folder),
        "median_step_seconds": rounded(statistics.median(tokens / event["tokens_per_second"] for event in steps)),
        "cpu_seconds": None if study["lost"] else round(study["cpu_seconds"], 1), "threads": study["threads"],
        "peak_bytes": study["peak_bytes"], "checkpoint_bytes": os.path.getsize(checkpoint), "checkpoint_sha256": digest,
    }

# ---- running


class Job:
    """One run on its way: the training, then the look at its routing, then the record."""

    def __init__(self, study, name, point, options):
        self.study, self.name, self.point, self.options = study, name, point, options
        self.folder = os.path.join(study.runs, name)
        self.process, self.phase = None, "train"
        self.notes = os.path.join(self.folder, "study.json")

    def start(self):
        args = self.study.args
        if self.phase == "train" and self.status() == "finished":
            self.phase = "routes"
        checkpoints = self.checkpoints()
        if self.phase == "train" and not checkpoints:
            shutil.rmtree(self.folder, ignore_errors=True)  # nothing of it can be used
        os.makedirs(self.folder, exist_ok=True)
        notes = {"cpu_seconds": 0, "peak_bytes": 0, "lost": False, "threads": args.threads, "running": False}
        if os.path.exists(self.notes):
            notes = read_json(self.notes)
        notes["lost"] |= notes["running"]  # killed with the study: its processor time is not known
        notes["running"] = self.phase == "train"
        write_json(self.notes, notes)
        options = {**self.study.given(self.options), "threads": args.threads}
        texts = {key: options[key] for key in ("data", "val", "split", "threads") if key in options}
        if self.phase == "routes":
            command = ["routes", self.folder, "--eval-tokens", "16384"] + as_arguments(texts)
        elif checkpoints:  # a checkpoint knows what decides the result, not how often it is looked at
            command = as_arguments({**options, "resume": self.folder})
        else:
            command = as_arguments({**options, "out": self.folder})
        if self.phase == "train":
            command += ["--save-every", str(args.save_every), "--keep", "2"]
        with open(self.folder + ".out", "ab") as out:
            self.process = subprocess.Popen([args.binary] + command, stdout=out, stderr=out, stdin=subprocess.DEVNULL,
                                            start_new_session=True, preexec_fn=self.study.child,
                                            pass_fds=[self.study.lock.fileno()])

    def checkpoints(self):
        """Those to go on from. One whose evaluation is missing was saved just before the end of the program: not that one."""
        result = glob.glob(os.path.join(self.folder, "step_*.safetensors"))
        every, last = int(self.options.get("eval-every", 100)), int(self.options.get("steps", 1000))
        for path in list(result) if self.phase == "train" else []:
            step = int(re.search(r"step_(\d+)", path).group(1))
            if step == last or (every and step and step % every == 0 and f'"eval","step":{step},' not in self.log()):
                os.remove(path)
                result.remove(path)
        return result

    def log(self):
        try:
            with open(os.path.join(self.folder, "log.jsonl"), encoding="utf-8") as file:
                return file.read()
        except OSError:
            return ""

    def status(self):
        try:
            return read_json(os.path.join(self.folder, "run.json"))["status"]
        except (OSError, ValueError, KeyError):
            return ""

    def step(self):
        """The last logged step."""
        return int((re.findall(r'"event":"step","step":(\d+)', self.log()) or [0])[-1])

    def poll(self):
        """None while it runs; then "done", "stopped" or the reason of the failure."""
        pid, status, usage = os.wait4(self.process.pid, os.WNOHANG)
        if pid == 0:
            return None
        code = self.process.returncode = os.waitstatus_to_exitcode(status)
        notes = read_json(self.notes)
        notes.update(running=False, cpu_seconds=notes["cpu_seconds"] + usage.ru_utime + usage.ru_stime,
                     peak_bytes=max(notes["peak_bytes"], usage.ru_maxrss * 1024))
        if self.phase == "train":
            write_json(self.notes, notes)
            if self.status() == "stopped":
                return "stopped"
            if code or self.status() != "finished":
                return f"exit code {code}; see {self.folder}.out"
            if self.study.stopping:
                return "stopped"
            self.phase = "routes"
            self.start()
            return None
        if code:
            return f"routes: exit code {code}; see {self.folder}.out"
        record = record_of(self.study.table, self.name, self.point, self.options, self.folder)
        write_json(os.path.join(self.study.records, self.name + ".json"), record)
        return "done"


class Study:
    def __init__(self, table, args):
        self.table, self.args, self.stopping, self.paused = table, args, False, False
        self.pid, self.lock = os.getpid(), None
        self.texts = {key: getattr(args, key) for key in ("data", "val") if getattr(args, key)}
        self.runs = args.runs or os.path.join("runs", table.name)
        self.records = args.records or os.path.join(ROOT, "docs", "study", table.name)
        self.todo, self.finished = [], 0
        for name, point, options in table.runs():
            path = os.path.join(self.records, name + ".json")
            if not os.path.exists(path):
                self.todo.append(Job(self, name, point, options))
                continue
            self.finished += 1
            if read_json(path)["given"] != options:
                raise ValueError(f"{path}: the table now gives {name} other options; remove the record or rename the value")

    def locked(self):
        """One study at a time, and none beside runs that an earlier one has left behind: they hold the lock as well."""
        os.makedirs(self.runs, exist_ok=True)
        self.lock = open(os.path.join(self.runs, "lock"), "w", encoding="utf-8")
        for _ in range(100):
            try:
                return fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                time.sleep(0.05)
        raise ValueError(f"{self.runs}: another study, or a run of one, is at work there")

    def given(self, options):
        """A run's options with the texts of the command line, which win over the table's."""
        if "val" in self.texts:
            options = {key: value for key, value in options.items() if key != "split"}
        return {**options, **self.texts}

    def child(self):
        """In the child, before the program: nice, and no life without the study."""
        os.nice(self.args.nice)
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        if os.getppid() != self.pid:  # it ended before that call
            os._exit(1)

    def list(self):
        for name, _, _ in self.table.runs():
            job = next((job for job in self.todo if job.name == name), None)
            print(name, "finished" if not job else f"begun, step {job.step()}" if os.path.exists(job.folder) else "to do")
        print(f"{self.finished} finished, {len(self.todo)} to do")

    def check(self):
        """Every run's options, before the first is started. Sets their weights: FLOPs."""
        defaults = defaults_of(self.args.binary)
        for job in self.todo:
            try:
                plan = plan_of(self.args.binary, {**self.given(job.options), "out": job.folder + ".none"})
            except ValueError as error:
                raise ValueError(f"{job.name}: {error}") from None
            job.weight = plan["flops_per_token"] * tokens_of(job.options, defaults)

    def pause(self, running):
        wanted = any(map(os.path.exists, self.args.pause_file)) and not self.stopping
        if wanted != self.paused:
            self.paused = wanted
            say("paused" if wanted else "goes on")
        for job in running:  # also those whose second phase has just begun
            os.kill(job.process.pid, signal.SIGSTOP if wanted else signal.SIGCONT)

    def left(self, running, work, seconds):
        """Text: the time left, from the work of this session; in FLOPs."""
        done = work + sum(self.share(job) - job.first for job in running)
        weight = sum(job.weight for job in self.todo) + sum(job.weight - self.share(job) for job in running)
        places = ", ".join(f"{job.name} {job.step()}" for job in running)
        time_left = f"about {weight / done * seconds / 3600:.1f} h left" if done > 0 else "time left not known yet"
        return f"{self.finished} finished, {len(self.todo)} to do, {time_left}; running: {places or 'none'}"

    def share(self, job):
        return job.weight * job.step() / max(1, int(job.options.get("steps", 1000)))

    def go(self):
        self.locked()
        os.makedirs(self.records, exist_ok=True)
        self.check()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: setattr(self, "stopping", True))
        running, failed, work, seconds, said, told = [], [], 0.0, 0.0, 0.0, False
        before = time.monotonic()
        while running or (self.todo and not self.stopping):
            self.pause(running)
            now = time.monotonic()
            seconds, before = seconds + (now - before) * (not self.paused), now
            if self.stopping and not told:
                told = True
                say("stopping: the runs save")
                for job in running:
                    os.kill(job.process.pid, signal.SIGTERM)
            while self.todo and len(running) < self.args.jobs and not self.paused and not self.stopping:
                job = self.todo.pop(0)
                job.first = self.share(job)
                job.start()
                running.append(job)
            for job in list(running):
                result = job.poll()
                if result is None:
                    continue
                running.remove(job)
                work += self.share(job) - job.first
                self.finished += result == "done"
                if result not in ("done", "stopped"):
                    failed.append(job.name)
                say(f"{job.name}: {result}")
            if now - said >= self.args.say_every and not self.paused:
                said = now
                say(self.left(running, work, seconds))
            time.sleep(self.args.poll)
        if failed:
            say(f"failed: {' '.join(failed)}")
        say(f"{self.finished} of {len(self.table.runs())} runs have a record in {self.records}")
        return 1 if failed else 3 if self.finished < len(self.table.runs()) else 0


def say(text):
    print(time.strftime("%H:%M:%S"), text, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", metavar="TABLE")
    parser.add_argument("--data", metavar="TRAIN", help="training text, where the table names none or another")
    parser.add_argument("--val", metavar="VALID", help="validation text; the last evaluation reads all of it")
    parser.add_argument("--binary", default=os.path.join(ROOT, "build", "train_gpt_cpu"))
    parser.add_argument("--runs", metavar="DIR", help="folders of the runs (default runs/TABLE)")
    parser.add_argument("--records", metavar="DIR", help="records of finished runs (default docs/study/TABLE)")
    parser.add_argument("--resume", action="store_true", help="go on with a study that was begun")
    parser.add_argument("--list", action="store_true", help="say what is finished, begun and to do; run nothing")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes at a time (default: the cores)")
    parser.add_argument("--threads", type=int, default=1, help="threads of a process (1)")
    parser.add_argument("--nice", type=int, default=19)
    parser.add_argument("--save-every", type=int, default=100, metavar="N", help="steps between checkpoints (100)")
    parser.add_argument("--pause-file", metavar="FILE", action="append", default=[],
                        help="while it exists, all runs stand still; may be given several times")
    parser.add_argument("--poll", type=float, default=1, metavar="SECONDS", help=argparse.SUPPRESS)
    parser.add_argument("--say-every", type=float, default=60, metavar="SECONDS", help="between lines of progress (60)")
    args = parser.parse_args()
    try:
        table = Table(args.table)
        study = Study(table, args)
        if args.list:
            study.list()
            return 0
        if any("data" not in study.given(options) for _, _, options in table.runs()):
            raise ValueError("--data is needed: the table names no text")
        begun = study.finished + sum(os.path.exists(job.folder) for job in study.todo)
        if begun and not args.resume:
            raise ValueError(f"{begun} runs of this table are begun or finished; --resume goes on")
        return study.go()
    except (ValueError, OSError) as error:
        print(f"study.py: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
