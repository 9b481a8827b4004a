#!/usr/bin/env python3
"""An independent PyTorch model of what this program trains: the truth for the tests, and a second opinion on a run.

Needs:  pip install numpy torch          (torch takes about 5 GB of disk with its libraries; the CPU is enough)
Run:    python3 dev/torch_reference.py goldens
            writes test/golden/*.safetensors (float64): inputs, outputs and gradients of every layer and of whole models
        python3 dev/torch_reference.py loss runs/NAME/step_1000.safetensors --val FILE [--limit N]
            evaluates a checkpoint: nats, bits per byte, perplexity
        python3 dev/torch_reference.py follow runs/NAME/step_0.safetensors --log runs/NAME/log.jsonl --data FILE
            trains from that checkpoint on the same batches and compares the losses step by step; exit 1 if they part
        python3 dev/torch_reference.py selftest
            known values of the random generator, and that every permutation is one
        python3 dev/torch_reference.py routers
            what must hold between the routers: same start, special cases, detail bases (figures of each; a minute)

All but selftest ask the program which methods there are (methods.py; --program BINARY, default build/train_gpt_cpu);
what a method computes is written down here a second time: torch_model.py, torch_routers.py, torch_goldens.py.
"""
import argparse
import glob
import json
import math
import os
import sys
from fractions import Fraction

import methods
try:
    import numpy as np
    import torch
except ImportError as missing:
    sys.exit(f"torch_reference.py: {missing}; install with: pip install numpy torch")
from torch_goldens import GOLDEN, goldens
from torch_model import cross_entropy, forward, read_safetensors, shapes, train_step
from torch_routers import M64, Checks, below, key_of, needed, philox


# ---- random numbers ------------------------------------------------------------------------------------------------

def permute(key, i, n):
    """Place of i in a permutation of 0..n-1: four Feistel rounds on 2 x half bits, walked until below n."""
    half = next((h for h in range(1, 31) if 1 << 2 * h >= n), 31)
    mask = (1 << half) - 1
    while True:
        left, right = i >> half, i & mask
        for stream in (1, 2, 3, 4):
            left, right = right, left ^ philox(key, right, stream)[0] & mask
        i = left << half | right
        if i < n:
            return i


def selftest(_):
    """Vectors published with Random123 (kat_vectors), and permutations of several lengths."""
    ones, pi = M64, (0x85A308D3243F6A88, 0x0370734413198A2E, 0x299F31D0A4093822)  # counter, stream, key
    vectors = [((0, 0, 0), "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
               ((ones, ones, ones), "408f276d 41c83b0e a20bc7c6 6d5451fd"),
               ((pi[2], pi[0], pi[1]), "d16cfe09 94fdcceb 5001e420 24126ea1")]
    failed = 0
    for arguments, expected in vectors:
        got = " ".join(f"{word:08x}" for word in philox(*arguments))
        failed += got != expected
        print(f"philox{arguments}: {got} {'ok' if got == expected else 'expected ' + expected}")
    for n in (1, 2, 3, 4, 5, 16, 17, 1000):
        good = sorted(permute(key_of(7, "order"), i, n) for i in range(n)) == list(range(n))
        failed += not good
        print(f"permute of {n}: {'ok' if good else 'not a permutation'}")
    sys.exit(1 if failed else 0)


# ---- data and checkpoints -----------------------------------------------------------------------------------------

def part_of(tokens, split, part):
    """The slice of a stream that split 'a/b/c' (percent; training, validation, test) gives; without split all of it."""
    if not split:
        return tokens
    shares = [Fraction(share) for share in split.split("/")]
    ends = [0] + [int(len(tokens) * sum(shares[:i + 1]) / 100) for i in range(len(shares))]
    if sum(shares) != 100 or part >= len(shares):
        sys.exit(f"--split {split}: need percentages like 90/5/5 that add up to 100")
    return tokens[ends[part]:ends[part + 1]]


def read_tokens(path, tokenizer, skip_unknown=False, split="", part=0):
    """Tokens of a text file (tokenizer 'bytes:HEX') or of llm.c .bin shards, as an integer numpy array."""
    if not tokenizer.startswith("bytes:"):
        shards = []
        for name in [path] if os.path.exists(path) else sorted(glob.glob(path), key=os.fsencode):
            if os.path.basename(name) == "tokenizer.bin":
                continue
            header = np.fromfile(name, "<i4", 256)
            if len(header) < 256 or header[0] != 20240520:
                sys.exit(f"{name}: not a .bin shard (magic 20240520), but the checkpoint was trained on token data")
            shards.append(np.memmap(name, "<u2", "r", 1024, (int(header[2]),)))
        if not shards:
            sys.exit(f"{path}: no such file")
        return part_of(np.concatenate(shards), split, part)
    if not os.path.isfile(path):
        sys.exit(f"{path}: no such file (the built-in stories exist only inside train_gpt; train on a text file)")
    alphabet = bytes.fromhex(tokenizer[6:])
    table = np.full(256, -1, np.int16)
    table[list(alphabet)] = np.arange(len(alphabet))
    tokens = table[part_of(np.fromfile(path, np.uint8), split, part)]
    unknown = int((tokens < 0).sum())
    if unknown and not skip_unknown:
        sys.exit(f"{path}: {unknown} bytes are not in the checkpoint's vocabulary; --skip-unknown leaves them out")
    return tokens[tokens >= 0] if unknown else tokens


NEEDED = ("router layers channels heads context eps batch order data-seed steps lr min-lr warmup schedule weight-decay "
          "beta1 beta2 adam-eps clip").split()


def load_checkpoint(path, dtype):
    """Returns (parameters, first moments, second moments, config, metadata)."""
    try:
        tensors, metadata = read_safetensors(path)
    except OSError as error:
        sys.exit(f"{path}: {error.strerror}")
    if "config" not in metadata:
        sys.exit(f"{path}: the metadata have no 'config'; expected a checkpoint of train_gpt")
    config = json.loads(metadata["config"])
    missing = [key for key in NEEDED + (needed(config) if "router" in config else []) if key not in config]
    if missing:
        sys.exit(f"{path}: the configuration lacks {', '.join(missing)}")
    params, m, v = {}, {}, {}
    for name, shape in shapes(config, tensors["embed"].shape[0]).items():
        if name not in tensors or tensors[name].shape != shape:
            have = tensors[name].shape if name in tensors else "nothing"
            sys.exit(f"{path}: tensor {name}: have {have}, need {shape}")
        params[name] = torch.tensor(tensors[name], dtype=dtype)
        for moments, prefix in ((m, "adam.m."), (v, "adam.v.")):
            moments[name] = torch.tensor(tensors.get(prefix + name, np.zeros(shape)), dtype=dtype)
    return params, m, v, config, metadata


# ---- loss: the evaluation rule ------------------------------------------------------------------------------------

def evaluate(params, config, tokens, limit=None):
    """(sum of the losses, number of predictions): N tokens give N-1 predictions, in windows of T, the last shorter.

    limit: about so many predictions, rounded down to whole windows, at least one.
    """
    T, predictions = config["context"], len(tokens) - 1
    if limit and limit < predictions:
        predictions = min(predictions, max(limit // T, 1) * T)
    total, whole = 0.0, predictions // T
    starts = [list(range(T * i, T * min(i + 16, whole), T)) for i in range(0, whole, 16)]
    pieces = [(group, T) for group in starts] + ([([T * whole], predictions % T)] if predictions % T else [])
    with torch.no_grad():
        for group, length in pieces:
            batch = torch.stack([torch.from_numpy(tokens[at:at + length + 1].astype(np.int64)) for at in group])
            total += cross_entropy(forward(params, batch[:, :-1], config), batch[:, 1:]).double().sum().item()
    return total, predictions


def loss(arguments):
    params, _, _, config, metadata = load_checkpoint(arguments.checkpoint, getattr(torch, arguments.dtype))
    tokenizer = metadata["tokenizer"]
    if not (arguments.val or (arguments.data and arguments.split)):
        sys.exit("loss: need --val FILE, or --data FILE --split 90/5/5 (evaluates the second part)")
    if arguments.val:
        tokens = read_tokens(arguments.val, tokenizer, arguments.skip_unknown)
    else:
        part = 2 if arguments.part == "test" else 1
        tokens = read_tokens(arguments.data, tokenizer, arguments.skip_unknown, arguments.split, part)
    if len(tokens) < 2:
        sys.exit(f"{arguments.val or arguments.data}: {len(tokens)} tokens, need at least 2")
    total, predictions = evaluate(params, config, tokens, arguments.limit)
    mean = total / predictions
    bits = f"{mean / math.log(2):.6f} bits per byte, " if tokenizer.startswith("bytes:") else ""
    print(f"{mean:.6f} nats, {bits}perplexity {math.exp(mean):.6f}, {predictions} predictions")


# ---- follow: the same training, step by step ----------------------------------------------------------------------

def window_start(config, size, s):
    """First token of the window of sequence number s (0, 1, ... over the whole run) in a stream of `size` tokens.

    W = (size-1)/T windows; window i starts at iT. shuffle: permuted, anew in every epoch of W sequences; random: any
    start; sequential: one after another.
    """
    T, key = config["context"], key_of(config["data-seed"], "order")
    W = (size - 1) // T
    if config["order"] == "random":
        return below(key, s, size - T)
    if config["order"] == "sequential":
        return s % W * T
    words = philox(key, s // W)
    return permute(words[1] << 32 | words[0], s % W, W) * T


def follow(arguments):
    dtype = getattr(torch, arguments.dtype)
    params, m, v, config, metadata = load_checkpoint(arguments.checkpoint, dtype)
    if arguments.options_of:
        config = load_checkpoint(arguments.options_of, dtype)[3]
    if config["steps"] == 0:
        sys.exit(f"{arguments.checkpoint}: made with --steps 0, so it does not hold the run's schedule; "
                 "name a later checkpoint of the run with --options-of")
    tokens = read_tokens(arguments.data, metadata["tokenizer"], arguments.skip_unknown, arguments.split)
    T, B, first = config["context"], config["batch"], int(metadata.get("step", 0))
    if len(tokens) < T + 1:
        sys.exit(f"{arguments.data}: {len(tokens)} tokens, need {T + 1} for one window")
    try:
        with open(arguments.log, encoding="utf-8") as log:
            events = [json.loads(line) for line in log]
    except OSError as error:
        sys.exit(f"{arguments.log}: {error.strerror}")
    # the log counts finished steps: step 1 is the first, its loss that of the parameters before its update
    ours = {event["step"] - 1: event["loss"] for event in events if event.get("event") == "step"}
    steps = [step for step in range(first, first + arguments.steps) if step in ours]
    if not steps or steps[-1] - first + 1 != len(steps):
        sys.exit(f"{arguments.log}: no events 'step' that follow step {first} of the checkpoint without a gap")

    print(f"{'step':>6} {'train_gpt':>12} {'PyTorch':>12} {'difference':>12}")
    worst = 0.0
    for step in steps:
        starts = [window_start(config, len(tokens), step * B + b) for b in range(B)]
        batch = torch.stack([torch.from_numpy(tokens[at:at + T + 1].astype(np.int64)) for at in starts])
        loss, _, _ = train_step(params, m, v, batch[:, :-1], batch[:, 1:], step, config)
        difference = abs(ours[step] - loss)
        worst = difference if not difference <= worst else worst  # NaN stays
        print(f"{step:6} {ours[step]:12.6f} {loss:12.6f} {difference:12.2e}", flush=True)
        if step == first and not difference <= arguments.tolerance:
            print("the first step differs already: other data (--split?), other batches or another model")
    good = worst <= arguments.tolerance
    print(f"largest difference over {len(steps)} steps: {worst:.2e}, "
          f"{'within' if good else 'ABOVE'} the tolerance {arguments.tolerance:g}")
    sys.exit(0 if good else 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    asks = argparse.ArgumentParser(add_help=False)
    methods.add_option(asks)
    command = commands.add_parser("goldens", parents=[asks])
    command.set_defaults(run=goldens)
    command.add_argument("--out", default=GOLDEN, help="folder (test/golden)")
    commands.add_parser("selftest").set_defaults(run=selftest, program=None)
    command = commands.add_parser("routers", parents=[asks])
    command.set_defaults(run=lambda _: sys.exit(Checks(forward, shapes).all()))

    for name, run in (("loss", loss), ("follow", follow)):
        command = commands.add_parser(name, parents=[asks])
        command.set_defaults(run=run)
        command.add_argument("checkpoint")
        command.add_argument("--data", required=run is follow, help="training text, or a glob of .bin shards")
        command.add_argument("--split", default="", help="a/b/c, if the run was made without --val")
        command.add_argument("--skip-unknown", action="store_true", help="leave out bytes that training never saw")
        command.add_argument("--dtype", choices=("float64", "float32"), default="float64")
        if run is loss:
            command.add_argument("--val", help="validation text, or a glob of .bin shards")
            command.add_argument("--part", choices=("val", "test"), default="val", help="of --data with --split")
            command.add_argument("--limit", type=int, help="about so many predictions, whole windows")
        else:
            command.add_argument("--log", required=True, help="log.jsonl of the run that began at the checkpoint")
            command.add_argument("--options-of", metavar="CKPT", help="take the training options from this checkpoint")
            command.add_argument("--steps", type=int, default=50)
            command.add_argument("--tolerance", type=float, default=5e-4)
    arguments = parser.parse_args()
    methods.use(arguments.program)
    arguments.run(arguments)


if __name__ == "__main__":
    main()
