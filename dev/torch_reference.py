#!/usr/bin/env python3
"""An independent PyTorch model of what this program trains: the truth for the tests, and a second opinion on a run.

Needs:  pip install numpy torch          (torch takes about 5 GB of disk with its libraries; the CPU is enough)
Run:    python3 dev/torch_reference.py goldens
            writes test/golden/*.safetensors (float64): inputs, outputs and gradients of every layer and of whole models
        python3 dev/torch_reference.py loss runs/NAME/step_1000.safetensors --val FILE [--limit N]
            evaluates a checkpoint: nats, bits per character, perplexity
        python3 dev/torch_reference.py follow runs/NAME/step_0.safetensors --log runs/NAME/log.jsonl --data FILE
            trains from that checkpoint on the same batches and compares the losses step by step; exit 1 if they part
        python3 dev/torch_reference.py selftest
            known values of the random generator, and that every permutation is one
        python3 dev/torch_reference.py routers
            what must hold between the routers: same start, special cases, detail bases (figures of each; a minute)

Nothing here is shared with the C++ code: same mathematics, written down a second time, gradients by autograd.
Tensors and names are those of the checkpoints; shapes: B sequences, T tokens, C channels, NH heads, HS head size,
H hidden channels of the MLP, V vocabulary, L layers.
"""
import argparse
import glob
import json
import math
import os
import sys
from fractions import Fraction

try:
    import numpy as np
    import torch
except ImportError as missing:
    sys.exit(f"torch_reference.py: {missing}; install with: pip install numpy torch")
from torch_routers import M64, Checks, Plan, Router, below, key_of, needed, philox, write_stream

GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "test", "golden")
MATRICES = ("embed", "head", "qkv", "proj", "gateup", "down")  # what weight decay acts on


# ---- files: safetensors -------------------------------------------------------------------------------------------

KINDS = {"F64": np.float64, "F32": np.float32, "I32": np.int32}


def write_safetensors(path, tensors, metadata):
    """tensors: name -> numpy array (float64, float32 or int32), stored back to back; metadata: str -> str."""
    kind_of = {np.dtype(kind): name for name, kind in KINDS.items()}
    header, offset = {"__metadata__": metadata}, 0
    for name, array in tensors.items():
        header[name] = {"dtype": kind_of[array.dtype], "shape": list(array.shape),
                        "data_offsets": [offset, offset + array.nbytes]}
        offset += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % 256)  # data start at a multiple of 256
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for array in tensors.values():
            file.write(np.ascontiguousarray(array).tobytes())


def read_safetensors(path):
    """Returns (name -> numpy array, metadata)."""
    with open(path, "rb") as file:
        data = file.read()
    start = 8 + int.from_bytes(data[:8], "little")
    if start > len(data):
        sys.exit(f"{path}: not a safetensors file: header of {start - 8} bytes, the file has {len(data)}")
    header = json.loads(data[8:start])
    metadata = header.pop("__metadata__", {})
    tensors = {}
    for name, entry in header.items():
        if entry["dtype"] not in KINDS:
            continue  # counters and other things that this script does not read
        first, last = entry["data_offsets"]
        tensors[name] = np.frombuffer(data[start + first:start + last], KINDS[entry["dtype"]]).reshape(entry["shape"])
    return tensors, metadata


# ---- the model ----------------------------------------------------------------------------------------------------

def rmsnorm(x, gain, eps):  # (..., C), (C)
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps) * gain


def linear(x, weight):  # (..., C), (OC, C) -> (..., OC)
    return x @ weight.T


def rope(qkv, heads):
    """qkv (B,T,3C): rotates the pairs (i, i+HS/2) of every head of q and k by t * 10000^(-2i/HS); v stays."""
    B, T, C3 = qkv.shape
    HS = C3 // 3 // heads
    half = HS // 2
    frequency = 10000.0 ** (-2.0 * torch.arange(half, dtype=torch.float64) / HS)
    angle = torch.arange(T, dtype=torch.float64)[:, None] * frequency  # (T, HS/2)
    cos, sin = angle.cos()[:, None, :].to(qkv.dtype), angle.sin()[:, None, :].to(qkv.dtype)

    def rotate(x):  # (B,T,NH,HS)
        x1, x2 = x[..., :half], x[..., half:]
        return torch.cat([x1 * cos - x2 * sin, x1 * sin + x2 * cos], -1)

    q, k, v = qkv.reshape(B, T, 3, heads, HS).unbind(2)
    return torch.stack([rotate(q), rotate(k), v], 2).reshape(B, T, C3)


def attention(qkv, heads):
    """qkv (B,T,3C), already rotated -> (B,T,C): causal softmax attention, scale 1/sqrt(HS)."""
    B, T, C3 = qkv.shape
    HS = C3 // 3 // heads
    q, k, v = qkv.reshape(B, T, 3, heads, HS).permute(2, 0, 3, 1, 4)  # each (B,NH,T,HS)
    scores = q @ k.transpose(-1, -2) / math.sqrt(HS)
    future = torch.ones(T, T, dtype=torch.bool).triu(1)
    weights = torch.softmax(scores.masked_fill(future, -math.inf), -1)
    return (weights @ v).transpose(1, 2).reshape(B, T, C3 // 3)


def swiglu(gateup):  # (..., 2H) -> (..., H)
    gate, up = gateup.chunk(2, -1)
    return gate * torch.sigmoid(gate) * up


def cross_entropy(logits, targets):  # (B,T,V), (B,T) -> (B,T), nats
    return logits.logsumexp(-1) - logits.gather(-1, targets[..., None]).squeeze(-1)


def forward(params, tokens, config, record=None):
    """tokens (B,T) -> logits (B,T,V); record: see Router."""
    eps, heads = config["eps"], config["heads"]
    router = Router(params, config, params["embed"][tokens], record)
    for layer in range(config["layers"]):
        name = f"layer.{layer}."
        h = rmsnorm(router.read(2 * layer), params[name + "attn.norm"], eps)
        h = attention(rope(linear(h, params[name + "attn.qkv"]), heads), heads)
        router.write(2 * layer, linear(h, params[name + "attn.proj"]))
        h = rmsnorm(router.read(2 * layer + 1), params[name + "mlp.norm"], eps)
        h = swiglu(linear(h, params[name + "mlp.gateup"]))
        router.write(2 * layer + 1, linear(h, params[name + "mlp.down"]))
    return linear(rmsnorm(router.read_final(), params["final.norm"], eps), params["head"])


def hidden_channels(C):
    return -(-8 * C // 96) * 32  # 8C/3, rounded up to a multiple of 32


def shapes(config, V):
    """Parameter name -> shape, in the order of the files."""
    C, L = config["channels"], config["layers"]
    H = hidden_channels(C)
    table = {"embed": (V, C)}
    for layer in range(L):
        name = f"layer.{layer}."
        table.update({name + "attn.norm": (C,), name + "attn.qkv": (3 * C, C), name + "attn.proj": (C, C),
                      name + "mlp.norm": (C,), name + "mlp.gateup": (2 * H, C), name + "mlp.down": (C, H)})
    table.update({"final.norm": (C,), "head": (V, C)})
    table.update(Plan(config).rows())
    return table


# ---- the optimizer ------------------------------------------------------------------------------------------------

def learning_rate(step, config):
    """step counts from 0. Warm-up, then from lr at step = warmup to min-lr at step = steps; wsd: in the last fifth."""
    lr, low, steps, schedule = config["lr"], config["min-lr"], config["steps"], config["schedule"]
    start = config["warmup"]
    if step < start:
        return lr * (step + 1) / start
    if schedule == "constant":
        return lr
    if schedule == "wsd":
        start = max(start, steps - steps // 5)
        if step < min(start, steps):
            return lr
    share = (step - start) / (steps - start) if step < steps else 1.0
    if schedule == "cosine":
        return low + (lr - low) * 0.5 * (1 + math.cos(math.pi * share))
    return lr + (low - lr) * share  # linear, wsd


def adamw(p, g, m, v, step, lr, decay, config):
    """One step, step counts from 0. Returns the new p, m, v."""
    beta1, beta2 = config["beta1"], config["beta2"]
    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * g * g
    mhat, vhat = m / (1 - beta1 ** (step + 1)), v / (1 - beta2 ** (step + 1))
    return p - lr * (mhat / (torch.sqrt(vhat) + config["adam-eps"]) + decay * p), m, v


def train_step(params, m, v, tokens, targets, step, config):
    """Replaces the entries of params, m and v. Returns (loss before the update, gradients, norm before clipping)."""
    leaves = {name: p.detach().requires_grad_() for name, p in params.items()}
    loss = cross_entropy(forward(leaves, tokens, config), targets).mean()
    loss.backward()
    grads = {name: p.grad if p.grad is not None else torch.zeros_like(p) for name, p in leaves.items()}
    norm = math.sqrt(sum((g.double() * g.double()).sum().item() for g in grads.values()))
    scale = min(1.0, config["clip"] / norm) if config["clip"] > 0 and norm > 0 else 1.0
    for name in params:
        lr = learning_rate(step, config) * (config.get("router-lr", 1.0) if name.startswith("router.") else 1.0)
        decay = config["weight-decay"] if name.split(".")[-1] in MATRICES else 0.0
        params[name], m[name], v[name] = adamw(params[name], grads[name] * scale, m[name], v[name],
                                               step, lr, decay, config)
    return loss.item(), grads, norm


# ---- goldens ------------------------------------------------------------------------------------------------------

def golden_layer(out, layer, function, inputs, upstream, output):
    """Runs function on the named float inputs; adds inputs, output, upstream gradient and all input gradients."""
    leaves = {name: x.clone().requires_grad_() for name, x in inputs.items()}
    y = function(*leaves.values())
    dy = torch.randn(y.shape, dtype=torch.float64)
    y.backward(dy)
    for name, x in leaves.items():
        out[f"{layer}.{name}"], out[f"{layer}.d{name}"] = x.detach(), x.grad
    out[f"{layer}.{output}"], out[f"{layer}.{upstream}"] = y.detach(), dy


def golden_layers():
    """Every layer function at small odd sizes."""
    B, T, C, OC, NH, H, V, eps = 3, 5, 12, 7, 2, 9, 11, 1e-2  # an eps that shows
    out = {}

    def randn(*shape):
        return torch.randn(*shape, dtype=torch.float64)

    golden_layer(out, "rmsnorm", lambda x, gain: rmsnorm(x, gain, eps),
                 {"x": randn(B, T, C), "gain": 1 + 0.2 * randn(C)}, "dy", "y")
    golden_layer(out, "matmul", linear, {"inp": randn(B, T, C), "weight": randn(OC, C)}, "dout", "out")
    golden_layer(out, "rope", lambda x: rope(x, NH), {"x": randn(B, T, 3 * C)}, "dy", "y")
    golden_layer(out, "attention", lambda qkv: attention(qkv, NH), {"qkv": 1.5 * randn(B, T, 3 * C)}, "dout", "out")
    golden_layer(out, "swiglu", swiglu, {"gateup": 2 * randn(B, T, 2 * H)}, "dout", "out")
    golden_layer(out, "rezero", lambda x, u, a: write_stream(x, u, 0, {"router.0.a": a}, "rezero"),
                 {"x": randn(B, T, C), "u": randn(B, T, C), "a": 0.5 + 0.3 * randn(1)}, "dy", "y")
    golden_layer(out, "layerscale", lambda x, u, l: write_stream(x, u, 0, {"router.0.l": l}, "layerscale"),
                 {"x": randn(B, T, C), "u": randn(B, T, C), "l": 0.5 + 0.3 * randn(C)}, "dy", "y")

    tokens = torch.randint(0, V - 1, (B, T))  # the last token never occurs: its gradient is zero
    golden_layer(out, "embedding", lambda weight: weight[tokens], {"weight": randn(V, C)}, "dout", "out")
    out["embedding.tokens"] = tokens.int()

    logits, targets = 3 * randn(B, T, V), torch.randint(0, V, (B, T))
    logits[1, 2] += 1000  # overflows unless the maximum is taken first
    logits.requires_grad_()
    losses = cross_entropy(logits, targets)
    losses.mean().backward()
    out.update({"crossentropy.logits": logits.detach(), "crossentropy.losses": losses.detach(),
                "crossentropy.dlogits": logits.grad, "crossentropy.targets": targets.int()})

    step, lr, decay = 6, 3e-3, 0.1
    constants = {"beta1": 0.9, "beta2": 0.95, "adam-eps": 1e-8}
    p, g, m, v = randn(13), randn(13), 0.5 * randn(13), randn(13) ** 2
    g[4], m[4], v[4] = 0, 0, 0  # only the decay moves this one
    p1, m1, v1 = adamw(p, g, m, v, step, lr, decay, constants)
    out.update({f"adamw.{name}": x for name, x in zip("p g m v p1 m1 v1".split(), (p, g, m, v, p1, m1, v1))})
    metadata = {"rmsnorm.eps": repr(eps), "rope.NH": str(NH), "attention.NH": str(NH), "adamw.step": str(step),
                "adamw.lr": repr(lr), "adamw.weight-decay": repr(decay)}
    metadata.update({f"adamw.{name}": repr(x) for name, x in constants.items()})
    return out, metadata


# The routers' goldens: a full block of 4 and a short last block of 2; details: every option away from its default;
# deep, m10: more than 8 sublayers, in one block of 10 and a rest of 2
MODELS = {"model_" + router: {"router": router} for router in
          ("prenorm", "rezero", "layerscale", "attnres", "block", "delta", "delta-block")}
MODELS.update({
    "model_wav": {"router": "wav", "rho": 1.5},  # a rho that some tokens reach
    "model_haares": {"router": "haares", "rho": 1.5},
    "model_details": {"router": "block", "details": "phase,split,random,duplicate,learned", "final-read": "all",
                      "key-eps": 1e-3, "wav-eps": 5e-2, "rho": 1.2, "router-lr": 0.7, "seed": 4},
    "model_attnres_deep": {"router": "attnres", "layers": 6},
    "model_wav_m10": {"router": "wav", "layers": 6, "block": 10},
    "model_learned": {"router": "block", "details": "learned,duplicate", "fixed-beta": True, "beta": -0.7}})


def golden_model(changes):
    """One small model: parameters, logits, loss, all gradients, 20 steps of AdamW on a fixed batch.

    Of the routers that mix also, of every read j = 1 .. M-1 and final: h.j (B,T,C), weights.j (B,T,sources), of delta
    y.j, the mix alone; `reads` of the metadata names the sources.
    """
    V, T, B, L, C, router = 11, 7, 3, 2, 12, changes["router"]
    config = {"router": router, "layers": L, "channels": C, "heads": 2, "context": T, "eps": 1e-5, "batch": B,
              "steps": 20, "lr": 3e-3, "min-lr": 3e-4, "warmup": 5, "schedule": "cosine", "weight-decay": 0.1,
              "beta1": 0.9, "beta2": 0.95, "adam-eps": 1e-8, "router-lr": 1.0,
              "clip": 1.5 if router == "layerscale" else 0.5}  # 1.5: some steps are clipped, some are not
    plan, record = Plan(config), {}
    if not plan.stream:
        config.update({"layers": 3, "block": 4, "details": "auto", "final-read": "c", "rho": 2.0, "beta": -2.0,
                       "fixed-beta": False, "wav-eps": 1e-6, "key-eps": 1e-12, "seed": 1, "clip": 2.5, **changes})
        plan = Plan(config)
    params = {}
    for name, shape in shapes(config, V).items():
        x = torch.randn(shape, dtype=torch.float64)
        if name.startswith("router."):
            params[name] = plan.random(name, x)
        else:
            params[name] = 1 + 0.2 * x if name.endswith("norm") else 0.3 * x
    out = {"p." + name: x for name, x in params.items()}
    tokens, targets = torch.randint(0, V, (B, T)), torch.randint(0, V, (B, T))
    out["logits"] = forward(params, tokens, config, record)
    metadata = {"config": json.dumps(config), "V": str(V)}
    if not plan.stream:
        metadata["reads"] = record.pop("reads")
        record.pop("h.0")
        out.update(record)
    if plan.details:
        metadata["coefs"] = json.dumps({f"{kind}{b}": plan.coefs(kind, b) for kind in plan.details
                                        if kind != "learned" for b in range(plan.count())})

    m = {name: torch.zeros_like(x) for name, x in params.items()}
    v = {name: torch.zeros_like(x) for name, x in params.items()}
    losses, norms = [], []
    for step in range(config["steps"]):
        loss, grads, norm = train_step(params, m, v, tokens, targets, step, config)
        if step == 0:
            out["loss"] = torch.tensor([loss], dtype=torch.float64)
            out.update({"g." + name: g for name, g in grads.items()})
        losses.append(loss)
        norms.append(norm)
    out["losses"], out["norms"] = (torch.tensor(x, dtype=torch.float64) for x in (losses, norms))
    out["lrs"] = torch.tensor([learning_rate(s, config) for s in range(config["steps"])], dtype=torch.float64)
    out.update({"q." + name: x for name, x in params.items()})
    out["tokens"], out["targets"] = tokens.int(), targets.int()
    clipped = sum(norm > config["clip"] for norm in norms)
    print(f"  {router}: loss {losses[0]:.6f} -> {losses[-1]:.6f}, gradient norm {norms[0]:.4f} -> {norms[-1]:.4f}, "
          f"{clipped} of {len(norms)} steps clipped")
    return out, metadata


def goldens(_):
    files = {"layers": golden_layers}
    files.update({name: lambda changes=changes: golden_model(changes) for name, changes in MODELS.items()})
    os.makedirs(GOLDEN, exist_ok=True)
    total = 0
    for seed, (name, make) in enumerate(files.items()):
        torch.manual_seed(1337 + seed)
        tensors, metadata = make()
        arrays = {key: x.detach().numpy() for key, x in tensors.items()}
        arrays = dict(sorted(arrays.items(), key=lambda item: item[1].dtype == np.int32))  # float64 first: aligned
        path = os.path.join(GOLDEN, name + ".safetensors")
        write_safetensors(path, arrays, metadata)
        total += os.path.getsize(path)
        print(f"{os.path.relpath(path)}: {len(arrays)} tensors, {os.path.getsize(path)} bytes")
    print(f"total {total} bytes")


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
    bits = f"{mean / math.log(2):.6f} bits per character, " if tokenizer.startswith("bytes:") else ""
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
    commands.add_parser("goldens").set_defaults(run=goldens)
    commands.add_parser("selftest").set_defaults(run=selftest)
    commands.add_parser("routers").set_defaults(run=lambda _: sys.exit(Checks(forward, shapes).all()))

    for name, run in (("loss", loss), ("follow", follow)):
        command = commands.add_parser(name)
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
    arguments.run(arguments)


if __name__ == "__main__":
    main()
