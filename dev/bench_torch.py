#!/usr/bin/env python3
"""The training step of the same model in PyTorch, eager and compiled, beside ours.

Needs:  pip install torch (2.4 or newer), g++ for torch.compile; `make build/bench` for --ours
Run:    python3 dev/bench_torch.py --ours build/bench                     C=384 L=12, then C=128 L=48
        python3 dev/bench_torch.py --ours build/bench --layers 6 --channels 256 --heads 4
        python3 dev/bench_torch.py --ours build/bench --router wav --modes eager
        python3 dev/bench_torch.py --ours build/bench --bf16 --modes eager  PyTorch under autocast to bfloat16, ours fp32
        python3 dev/bench_torch.py --modes eager                          without ours: times only

A step is forward, backward, clip_grad_norm_ and fused AdamW, fp32 (or --bf16), with scaled_dot_product_attention, RMSNorm, RoPE and
SwiGLU: what `build/bench step` times. The methods are those of the program (methods.py; --program BINARY, default
build/train_gpt_cpu) as torch_routers.py computes them, with a faster read: a product of every source with g*q, a
softmax, a chain of addcmul (stacking the sources takes three times as long here).

Each mode runs in a process of its own and waits while another one works: ours, eager, ours, compile, ours, ... for
--pairs rounds. A ratio divides the step time of PyTorch by the mean of ours just before and just after; the median is
printed, also of what there is when it is stopped by Ctrl-C or TERM. Peak memory is the peak of the resident memory of each process. Exit codes: 1 something failed, 3 torch is
missing, 130 stopped.
"""
import argparse
import re
import resource
import signal
import statistics
import subprocess
import sys
import time

import methods

SHAPES = [dict(channels=384, layers=12, heads=6), dict(channels=128, layers=48, heads=4)]


def layer_class(torch, a):
    """Two sublayers: their updates. a: channels, heads, context."""
    nn, F = torch.nn, torch.nn.functional
    C, NH, T = a.channels, a.heads, a.context
    HS, H = C // NH, -(-C // 12) * 32  # 8/3 C rounded up to a multiple of 32
    half = torch.arange(HS // 2, dtype=torch.float64)
    angle = torch.arange(T, dtype=torch.float64)[:, None] * 10000.0 ** (-2 * half / HS)
    cos, sin = angle.cos().float(), angle.sin().float()

    def rope(x):  # (B, NH, T, HS), pairs (i, i + HS/2)
        p, q = x.chunk(2, dim=-1)
        return torch.cat((p * cos - q * sin, p * sin + q * cos), dim=-1)

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.attn_norm, self.mlp_norm = nn.RMSNorm(C, eps=1e-12), nn.RMSNorm(C, eps=1e-12)
            self.qkv, self.proj = nn.Linear(C, 3 * C, bias=False), nn.Linear(C, C, bias=False)
            self.gateup, self.down = nn.Linear(C, 2 * H, bias=False), nn.Linear(H, C, bias=False)

        def attention(self, x):
            B = x.shape[0]
            q, k, v = (y.view(B, T, NH, HS).transpose(1, 2) for y in self.qkv(self.attn_norm(x)).chunk(3, dim=-1))
            y = F.scaled_dot_product_attention(rope(q), rope(k), v, is_causal=True)
            return self.proj(y.transpose(1, 2).reshape(B, T, C))

        def mlp(self, x):
            gate, up = self.gateup(self.mlp_norm(x)).chunk(2, dim=-1)
            return self.down(F.silu(gate) * up)

    return Layer


def mixer_class(torch):
    """The reference's sources, blocks and details; the read in fewer, larger steps."""
    import torch_routers

    class Mixer(torch_routers.Router):
        def mixed(self, j, sources):
            name, biased = f"router.{j}", any(x.detail is not None for x in sources)
            w = self.params[name + ".g"] * self.params[name + ".q"]
            z = torch.stack([x.s @ w for x in sources]) * torch.stack([x.r for x in sources])
            if biased:
                zero, beta = torch.zeros(1), self.params[name + ".beta"]
                z = z + torch.cat([zero if x.detail is None else beta[x.detail, None] for x in sources])[:, None, None]
            p = torch.softmax(z, 0).unsqueeze(-1).unbind(0)
            h = p[0] * sources[0].s
            for p_i, x in zip(p[1:], sources[1:]):
                h = torch.addcmul(h, p_i, x.s)
            return h

    return Mixer


def build_model(torch, a):
    """The model of gpt.cuh. a: channels, layers, heads, context, vocabulary, router."""
    import torch_routers
    nn, F = torch.nn, torch.nn.functional
    C, Layer, Mixer = a.channels, layer_class(torch, a), mixer_class(torch)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.norm = nn.Embedding(a.vocabulary, C), nn.RMSNorm(C, eps=1e-12)
            self.layers = nn.ModuleList(Layer() for _ in range(a.layers))
            self.head = nn.Linear(C, a.vocabulary, bias=False)
            for p in self.parameters():
                if p.dim() == 2:
                    nn.init.normal_(p, std=0.02)
            self.config = dict(router=a.router, layers=a.layers, channels=C)
            plan = torch_routers.Plan(self.config)
            rows = {name: nn.Parameter(plan.initial(name).float()) for name in plan.rows()}
            self.rows, self.names = nn.ParameterList(rows.values()), list(rows)

        def forward(self, tokens, targets):
            x = self.embed(tokens)
            router = Mixer(dict(zip(self.names, self.rows)), self.config, x)
            for j, sublayer in enumerate(f for layer in self.layers for f in (layer.attention, layer.mlp)):
                router.write(j, sublayer(router.read(j)))
            x = router.read_final()
            return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), targets.flatten())

    return Model()


def worker(a):
    """One mode. A line on stdin: a.steps steps, their mean time in seconds to stdout. At the end the peak in bytes."""
    import torch

    torch.manual_seed(1)
    torch.set_num_threads(a.threads)
    model = build_model(torch, a)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    run = torch.compile(model) if a.worker == "compile" else model
    tokens, targets = torch.randint(a.vocabulary, (2, a.batch, a.context))

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=a.bf16):
            loss = run(tokens, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    for _ in range(2):
        step()
    print("ready", flush=True)
    for _ in sys.stdin:
        start = time.perf_counter()
        for _ in range(a.steps):
            step()
        print((time.perf_counter() - start) / a.steps, flush=True)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, flush=True)


def shape_options(a):
    names = ("channels", "layers", "heads", "context", "batch", "vocabulary", "threads", "router")
    return [part for name in names for part in (f"--{name}", str(getattr(a, name)))]


def ours(a, section):
    command = [a.ours, section, "--rounds", str(a.steps)] + shape_options(a)
    done = subprocess.run(command, capture_output=True, text=True)
    pattern = r"([\d.]+) ms," if section == "step" else r"peak ([\d.]+) MB"
    found = re.search(pattern, done.stdout)
    if done.returncode or not found:
        sys.exit(f"bench_torch.py: {' '.join(command)} failed: {done.stderr.strip() or done.stdout.strip()}")
    return float(found.group(1)) * (1e-3 if section == "step" else 1e6)


class Mode:
    def __init__(self, a, name):
        command = [sys.executable, __file__, "--worker", name, "--steps", str(a.steps)] + shape_options(a)
        command += ["--program", a.program] if a.program else []
        command += ["--bf16"] if a.bf16 else []
        self.name, self.times, self.ratios = name, [], []
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.answer("ready")

    def answer(self, what):
        line = self.process.stdout.readline().strip()
        if not line:
            sys.exit(f"bench_torch.py: the process of mode {self.name} ended before it was {what}; see above")
        return line

    def step(self):
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        return float(self.answer("done"))

    def peak(self):
        self.process.stdin.close()
        return float(self.answer("asked for its peak"))


def measure(a, modes, our_times):
    """Fills the times and ratios of the modes, round by round."""
    before = ours(a, "step") if a.ours else None
    for _ in range(a.pairs):
        for mode in modes:
            mode.times.append(mode.step())
            if a.ours:
                after = ours(a, "step")
                mode.ratios.append(mode.times[-1] / ((before + after) / 2))
                our_times.append(after)
                before = after


def compare(a):
    print(f"C={a.channels} L={a.layers} NH={a.heads} T={a.context} B={a.batch} V={a.vocabulary} {a.router}, "
          f"{a.threads} threads, {a.pairs} rounds of {a.steps} steps", flush=True)
    modes = [Mode(a, name) for name in a.modes]
    our_times, stopped = [], False
    try:
        measure(a, modes, our_times)
    except KeyboardInterrupt:
        stopped = True
        print(f"  stopped after {min(len(mode.times) for mode in modes)} rounds; of these:")
    peak = ours(a, "memory") if a.ours and not stopped else None
    if our_times:
        print(f"  ours     {1e3 * statistics.median(our_times):9.1f} ms" + (f", peak {peak / 1e6:5.0f} MB" if peak else ""))
    for mode in modes:
        if not mode.times:
            continue
        its_peak = None if stopped else mode.peak()
        line = f"  {mode.name:8} {1e3 * statistics.median(mode.times):9.1f} ms"
        line += f", peak {its_peak / 1e6:5.0f} MB" if its_peak else ""
        line += f": {statistics.median(mode.ratios):.2f} times our step" if mode.ratios else ""
        line += f", {its_peak / peak:.2f} times our memory" if peak else ""
        print(line, flush=True)
    if stopped:
        for mode in modes:
            mode.process.kill()
        sys.exit(130)


def interrupted(*_):
    raise KeyboardInterrupt


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ours", metavar="BINARY", help="build/bench")
    parser.add_argument("--modes", nargs="+", choices=["eager", "compile"], default=["eager", "compile"])
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=2, help="per measurement")
    parser.add_argument("--bf16", action="store_true", help="PyTorch under autocast to bfloat16; ours stays fp32")
    parser.add_argument("--worker", choices=["eager", "compile"], help=argparse.SUPPRESS)
    parser.add_argument("--router", metavar="METHOD", help="of the program's methods; the first of them if not given")
    methods.add_option(parser)
    for name, value in [("channels", None), ("layers", None), ("heads", None), ("context", 256), ("batch", 8),
                        ("vocabulary", 65), ("threads", 2)]:
        parser.add_argument(f"--{name}", type=int, default=value)
    a = parser.parse_args()
    methods.use(a.program)
    a.router = a.router or next(iter(methods.table()))
    if a.router not in methods.table():
        parser.error(f"--router {a.router}: the program knows {', '.join(methods.table())}")
    if a.worker:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
        return worker(a)
    try:
        import torch
    except ImportError:
        print("bench_torch.py: torch is missing; install it with: pip install torch", file=sys.stderr)
        sys.exit(3)
    signal.signal(signal.SIGTERM, interrupted)
    print(f"PyTorch {torch.__version__}, {'bf16' if a.bf16 else 'fp32'}")
    one = {name: getattr(a, name) for name in SHAPES[0] if getattr(a, name) is not None}
    for shape in [{**SHAPES[0], **one}] if one else SHAPES:
        compare(argparse.Namespace(**{**vars(a), **shape}))


if __name__ == "__main__":
    main()
