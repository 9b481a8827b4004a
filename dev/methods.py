"""The methods and what belongs to each, as the program itself lists them: `train_gpt methods --json`.

Imported by the scripts beside it, which take --program (default: build/train_gpt_cpu, else build/train_gpt_plain). What
a method computes is theirs to say (torch_routers.py); which methods there are, their implied details and their options
are said once, in routers/methods.cuh.
"""
import functools
import json
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
DEFAULTS = ("build/train_gpt_cpu", "build/train_gpt_plain")
chosen = []  # the program of --program, where there is one


def add_option(parser):
    parser.add_argument("--program", metavar="BINARY",
                        help=f"the train_gpt that lists the methods (default: {', else '.join(DEFAULTS)})")


def use(program):
    """The program that table() asks; to be called before it. None: the default."""
    chosen[:] = [program] if program else []


def find_program():
    for path in chosen or [os.path.join(ROOT, name) for name in DEFAULTS]:
        if os.access(path, os.X_OK) and os.path.isfile(path):
            return os.path.abspath(path)
    where = chosen[0] if chosen else " nor ".join(DEFAULTS)
    sys.exit(f"{where}: no such program, and the methods are listed by it; `make cpu` builds {DEFAULTS[0]}, "
             "--program names another")


@functools.lru_cache(maxsize=None)
def table():
    """name -> its row: family (stream|mix), sources (none|updates|blocks), delta, details, takes_details, options."""
    program = find_program()
    done = subprocess.run([program, "methods", "--json"], capture_output=True, text=True)
    try:
        return {row["name"]: row for row in json.loads(done.stdout)}
    except (ValueError, TypeError, KeyError):
        said = (done.stderr or done.stdout).strip().split("\n")[-1]
        sys.exit(f"{program}: `methods --json` gave no list of methods (code {done.returncode}: {said}); "
                 "build the program of this source: make cpu")
