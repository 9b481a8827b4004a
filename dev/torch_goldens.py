"""What test/golden holds: inputs, outputs and gradients of every layer, and small models of every method, in float64.

Needs torch and numpy; run by `python3 dev/torch_reference.py goldens`.
"""
import json
import os

import methods
import numpy as np
import torch
from torch_model import (adamw, attention, cross_entropy, forward, learning_rate, linear, rmsnorm, rope, shapes, swiglu,
                         train_step, write_safetensors)
from torch_routers import Plan, write_stream

GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "test", "golden")
FIRST_SEED = 1337


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


def golden_models():
    """name -> (seed, changes to the configuration): every method, and the mixer's options and depths.

    A full block of 4 and a short last block of 2; details: every option away from its default; deep, m10: more than 8
    sublayers, in one block of 10 and a rest of 2. A seed stays with its model, so that a new method changes no file.
    """
    models = {}
    for i, (name, method) in enumerate(methods.table().items()):
        reached = {"rho": 1.5} if method["details"] else {}  # a rho that some tokens reach
        models["model_" + name] = (FIRST_SEED + (i + 1 if i < 9 else i + 5), {"router": name, **reached})
    models.update({
        "model_details": (FIRST_SEED + 10, {
            "router": "block", "details": "phase,split,random,duplicate,learned", "final-read": "all",
            "key-eps": 1e-3, "wav-eps": 5e-2, "rho": 1.2, "router-lr": 0.7, "seed": 4}),
        "model_attnres_deep": (FIRST_SEED + 11, {"router": "attnres", "layers": 6}),
        "model_wav_m10": (FIRST_SEED + 12, {"router": "wav", "layers": 6, "block": 10}),
        "model_learned": (FIRST_SEED + 13, {
            "router": "block", "details": "learned,duplicate", "fixed-beta": True, "beta": -0.7})})
    return models


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


def goldens(arguments):
    files = {"layers": (FIRST_SEED, golden_layers)}
    for name, (seed, changes) in golden_models().items():
        files[name] = (seed, lambda changes=changes: golden_model(changes))
    os.makedirs(arguments.out, exist_ok=True)
    total = 0
    for name, (seed, make) in files.items():
        torch.manual_seed(seed)
        tensors, metadata = make()
        arrays = {key: x.detach().numpy() for key, x in tensors.items()}
        arrays = dict(sorted(arrays.items(), key=lambda item: item[1].dtype == np.int32))  # float64 first: aligned
        path = os.path.join(arguments.out, name + ".safetensors")
        write_safetensors(path, arrays, metadata)
        total += os.path.getsize(path)
        print(f"{os.path.relpath(path)}: {len(arrays)} tensors, {os.path.getsize(path)} bytes")
    print(f"total {total} bytes")
