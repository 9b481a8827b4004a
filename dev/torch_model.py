"""The model, its optimizer and its files in PyTorch, written down a second time from the formulas.

Gradients are autograd's. Needs torch and numpy; dev/torch_reference.py imports it. Tensors and names are those of the
checkpoints; shapes: B sequences, T tokens, C channels, NH heads, HS head size, H hidden channels of the MLP,
V vocabulary, L layers.
"""
import json
import math
import sys

import numpy as np
import torch
from torch_routers import Plan, Router

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
