"""Residual routing for the PyTorch reference: every method by its direct definition, a softmax over a list of sources.

Needs torch; dev/torch_reference.py imports it. `python3 dev/torch_reference.py routers` runs the checks below.

    read     h_j = sum_i p_i s_i,  p = softmax_i(z),  z_i = (g*q) . s_i r_i + b_i,  r_i = 1/sqrt(mean(s_i^2) + key_eps)
    attnres            sources e, u_0 .. u_{j-1}
    block, wav, haares sources e, then per block of m sublayers its sum C = sum u_i and its details c D,
                       D = sum coef_i u_i
    delta, delta-block h_j = x_j + the read of attnres, block;  x_{j+1} = x_j + u_j;  out = x_M without a final read
    c = min(rho, rms(C) / (rms(D) + wav_eps)) per token, no gradient through c

Sublayer 0 reads e as it is and has no parameters. The open block counts as soon as it holds an update. Names of
sources: e; u3 an update; C2, phase2, ... sum and details of completed block 2; PC, Pphase, ... those of the open block.
"""
import functools
import math
import sys
from typing import NamedTuple

import methods
import torch

KINDS = ("phase", "split", "random", "duplicate", "learned")


class Meaning(NamedTuple):
    """What a method computes. Implied details and options are the program's (methods.table())."""
    family: str
    sources: str = "none"  # what a read mixes
    delta: bool = False    # the mix is added to the stream
    gain: str = ""         # of the stream: x + gain_j u; "": x + u


MEANING = {
    "prenorm": Meaning("stream"),
    "rezero": Meaning("stream", gain="a"),
    "layerscale": Meaning("stream", gain="l"),
    "attnres": Meaning("mix", "updates"),
    "block": Meaning("mix", "blocks"),
    "delta": Meaning("mix", "updates", delta=True),
    "delta-block": Meaning("mix", "blocks", delta=True),
    "wav": Meaning("mix", "blocks"),
    "haares": Meaning("mix", "blocks"),
}


def method_of(router):
    """(the row of the program's table, the Meaning): both must know the method and agree on what it is."""
    row, meaning = methods.table().get(router), MEANING.get(router)
    if not row:
        sys.exit(f"router {router}: the program knows {', '.join(methods.table())}")
    if not meaning:
        sys.exit(f"router {router}: MEANING in torch_routers.py does not say yet what it computes")
    said = tuple(row[key] for key in ("family", "sources", "delta"))
    if said != meaning[:3]:
        sys.exit(f"router {router}: the program says {said}, MEANING in torch_routers.py {meaning[:3]}")
    return row, meaning


# ---- random numbers: Philox4x32-10 (Salmon et al. 2011), written from the paper -----------------------------------

M32, M64 = (1 << 32) - 1, (1 << 64) - 1


def philox(key, counter, stream=0):
    """key, counter, stream: 64 bits each. Returns four 32-bit words."""
    words = [counter & M32, counter >> 32 & M32, stream & M32, stream >> 32 & M32]
    keys = [key & M32, key >> 32 & M32]
    for _ in range(10):
        even, odd = words[0] * 0xD2511F53, words[2] * 0xCD9E8D57
        words = [(odd >> 32) ^ words[1] ^ keys[0], odd & M32, (even >> 32) ^ words[3] ^ keys[1], even & M32]
        keys = [(keys[0] + 0x9E3779B9) & M32, (keys[1] + 0xBB67AE85) & M32]
    return words


def key_of(seed, name):
    """The key of one purpose: FNV-1a of the name, mixed with the seed."""
    value = 0xCBF29CE484222325
    for byte in name.encode():
        value = (value ^ byte) * 0x100000001B3 & M64
    words = philox(seed & M64, value)
    return words[1] << 32 | words[0]


def uniform(key, i):  # [0, 1), 53 bits
    words = philox(key, i)
    return ((words[0] << 32 | words[1]) >> 11) / 2.0 ** 53


def below(key, i, n):  # 0..n-1
    return min(int(uniform(key, i) * float(n)), n - 1)


@functools.lru_cache(maxsize=None)
def random_signs(seed, b, n):
    """As many + as -, for block b of n sublayers: a Fisher-Yates shuffle of split's signs."""
    signs, key = [1.0] * (n // 2) + [-1.0] * (n - n // 2), key_of(seed, f"random.{b}")
    for i in range(n - 1, 0, -1):
        k = below(key, i, i + 1)
        signs[i], signs[k] = signs[k], signs[i]
    return tuple(signs)


# ---- what a configuration means -----------------------------------------------------------------------------------

class Plan:
    """Blocks, details and parameters of a configuration (keys as in the checkpoints). Refuses what cannot be."""

    def __init__(self, config):
        def need(condition, message):
            if not condition:
                sys.exit(f"router {config['router']}: {message}")

        self.router, self.M = config["router"], 2 * config["layers"]
        self.method, meaning = method_of(self.router)
        self.stream, self.delta, self.gain = meaning.family == "stream", meaning.delta, meaning.gain
        self.blocks = meaning.sources == "blocks"
        self.final = not self.stream and not self.delta
        self.m = int(config.get("block", 8))
        self.rho, self.beta = config.get("rho", 2.0), config.get("beta", -2.0)
        self.wav_eps, self.key_eps = config.get("wav-eps", 1e-6), config.get("key-eps", 1e-12)
        self.fixed_beta = config.get("fixed-beta", False) in (True, 1, "true", "on", "1")
        self.final_details = config.get("final-read", "c") == "all"
        self.seed, self.channels = int(config.get("seed", 1)), config["channels"]
        need(self.m >= 1, f"block {self.m}, need at least 1 sublayer")

        text = config.get("details", "auto")
        self.details = list(self.method["details"]) if text == "auto" else \
            [kind for kind in text.replace(" ", "").split(",") if kind and kind != "none"]
        need(not self.details or self.method["takes_details"], f"details {text}: it takes none")
        need(all(kind in KINDS for kind in self.details), f"details {text}: the kinds are {', '.join(KINDS)}")
        need(len(set(self.details)) == len(self.details), f"details {text}: each kind once")
        odd = sorted({self.length(b) for b in range(self.count()) if self.length(b) % 2})
        need(not odd or set(self.details) <= {"duplicate"},
             f"details {','.join(self.details)} need blocks of even length; {self.M} sublayers in blocks of {self.m} "
             f"give length {odd}")

    def count(self):  # blocks
        return -(-self.M // self.m) if self.blocks else 0

    def length(self, b):  # planned, in sublayers
        return min(self.m, self.M - b * self.m)

    def coefs(self, kind, b):
        """The coefficients of the updates of block b; of `learned` the initial ones."""
        n = self.length(b)
        if kind == "phase":
            return [1.0 if j % 2 == 0 else -1.0 for j in range(b * self.m, b * self.m + n)]
        if kind == "random":
            return list(random_signs(self.seed, b, n))
        return [1.0 if kind == "duplicate" or i < n // 2 else -1.0 for i in range(n)]

    def rows(self):
        """Parameter name -> shape, in the order of the files; they come after `head`."""
        C, table = (self.channels,), {}
        if self.stream:
            shape = {"a": (1,), "l": C}
            return {f"router.{j}.{self.gain}": shape[self.gain] for j in range(self.M) if self.gain}
        for j in list(range(1, self.M)) + (["final"] if self.final else []):
            table.update({f"router.{j}.q": C, f"router.{j}.g": C})
            if self.details and not self.fixed_beta and (j != "final" or self.final_details):
                table[f"router.{j}.beta"] = (len(self.details),)
        if "learned" in self.details:
            table.update({f"router.block.{b}.coef": (self.length(b),) for b in range(self.count())})
        return table

    def initial(self, name):
        """The initial value of a row (rezero, layerscale: of a CaiT of up to 18 layers)."""
        shape, kind = self.rows()[name], name.split(".")[-1]
        if kind == "coef":
            return torch.tensor(self.coefs("learned", int(name.split(".")[2])), dtype=torch.float64)
        value = {"q": 0.0, "g": 1.0, "beta": self.beta, "a": 0.0, "l": 0.1}[kind]
        return torch.full(shape, value, dtype=torch.float64)

    def random(self, name, x):
        """A value for tests from the standard normal x."""
        spread = {"q": 0.3, "g": 0.2, "beta": 0.3, "coef": 0.2, "a": 0.3, "l": 0.3}[name.split(".")[-1]]
        centre = {"beta": -0.5, "a": 0.5, "l": 0.5}.get(name.split(".")[-1])
        return (self.initial(name) if centre is None else centre) + spread * x


def needed(config):
    """The keys that a checkpoint of this router must have, beyond those of every model."""
    plan = Plan(config)
    return list(plan.method["options"]) + (["seed"] if "random" in plan.details else [])


# ---- the depth mixer ----------------------------------------------------------------------------------------------

class Source:
    """name; s (..., C) the value; r (...) = 1/rms of it; detail: its place among the details, None for the others."""

    def __init__(self, name, s, key_eps, detail=None):
        self.name, self.s, self.detail = name, s, detail
        self.r = 1 / torch.sqrt((s * s).mean(-1) + key_eps)


def scores(sources, q, g, beta=()):
    """z_i = (g*q) . k_i + b_i with k_i = s_i r_i; beta: one bias per detail. A list of (...)."""
    return [x.r * (x.s @ (g * q)) + (0.0 if x.detail is None else beta[x.detail]) for x in sources]


def mix(sources, q, g, beta=()):
    """One read: returns h (..., C) and the weights p (..., number of sources)."""
    z = scores(sources, q, g, beta)
    top = torch.stack(z).detach().amax(0)
    E = [torch.exp(x - top) for x in z]
    total = sum(E)
    p = [x / total for x in E]
    return sum(pi[..., None] * x.s for pi, x in zip(p, sources)), torch.stack(p, -1)


def rms(x):
    return torch.sqrt((x * x).mean(-1, keepdim=True))


def write_stream(x, u, j, params, router):
    """The stream after sublayer j: x plus its update u."""
    gain = MEANING[router].gain
    return x + (params[f"router.{j}.{gain}"] * u if gain else u)


class Router:
    """One forward pass: h = read(j), write(j, u) for j = 0, 1, .., M-1, then out = read_final().

    record: a dictionary for h.J, weights.J (and of delta y.J, the mix alone) of every read J, and reads, their sources.
    """

    def __init__(self, params, config, e, record=None):
        self.params, self.plan, self.record, self.x = params, Plan(config), record, e
        self.updates = []
        self.done = [] if self.plan.stream else [Source("e", e, self.plan.key_eps)]  # e and all that is complete

    def raw_sums(self, b):
        """The sum and the details D of block b as far as it goes, before c."""
        plan, updates = self.plan, self.updates[b * self.plan.m:(b + 1) * self.plan.m]
        learned = [self.params[f"router.block.{b}.coef"]] if "learned" in plan.details else []
        rows = [learned[0] if kind == "learned" else plan.coefs(kind, b) for kind in plan.details]
        return sum(updates), [sum(coef * u for coef, u in zip(row, updates)) for row in rows]

    def block_sources(self, b, complete):
        plan = self.plan
        C, details = self.raw_sums(b)
        found = [Source(f"C{b}" if complete else "PC", C, plan.key_eps)]
        for d, (kind, D) in enumerate(zip(plan.details, details)):
            c = (rms(C.detach()) / (rms(D.detach()) + plan.wav_eps)).clamp(max=plan.rho)
            found.append(Source(f"{kind}{b}" if complete else f"P{kind}", c * D, plan.key_eps, d))
        return found

    def sources(self, j):
        b, i = divmod(j, self.plan.m)
        return self.done + (self.block_sources(b, False) if self.plan.blocks and i else [])

    def mixed(self, j, sources):
        plan = self.plan
        beta = [plan.beta] * len(plan.details) if plan.fixed_beta else self.params.get(f"router.{j}.beta", ())
        y, p = mix(sources, self.params[f"router.{j}.q"], self.params[f"router.{j}.g"], beta)
        if self.record is not None:
            self.record[f"weights.{j}"] = p.detach()
            if plan.delta:
                self.record[f"y.{j}"] = y.detach()
        return y

    def note(self, j, h, names):
        if self.record is not None:
            self.record[f"h.{j}"] = h.detach()
            self.record["reads"] = self.record.get("reads", "") + f"{j}: {' '.join(names)}\n"
        return h

    def read(self, j):
        if self.plan.stream:
            return self.note(j, self.x, ["x"])
        if j == 0:
            return self.note(0, self.x, ["e"])
        sources = self.sources(j)
        y = self.mixed(j, sources)
        return self.note(j, self.x + y if self.plan.delta else y, [x.name for x in sources])

    def write(self, j, u):
        plan = self.plan
        if plan.stream:
            self.x = write_stream(self.x, u, j, self.params, plan.router)
            return
        self.updates.append(u)
        if plan.delta:
            self.x = self.x + u
        if not plan.blocks:
            self.done.append(Source(f"u{j}", u, plan.key_eps))
        elif (j + 1) % plan.m == 0 or j + 1 == plan.M:
            self.done += self.block_sources(j // plan.m, True)

    def read_final(self):
        plan = self.plan
        if not plan.final:
            if self.record is not None:
                self.record["h.final"] = self.x.detach()
            return self.x
        sources = [x for x in self.done if x.detail is None or plan.final_details]
        return self.note("final", self.mixed("final", sources), [x.name for x in sources])


# ---- checks: `torch_reference.py routers` -------------------------------------------------------------------------

def difference(a, b):
    """Largest difference relative to the largest value of b."""
    return ((a - b).abs().max() / b.abs().max().clamp(min=1e-300)).item()


class Checks:
    """The invariants of the methods, on a model of the given functions of torch_reference.py."""

    def __init__(self, forward, shapes):
        self.forward, self.shapes, self.failed = forward, shapes, 0

    def that(self, good, text):
        self.failed += not good
        print(f"{'ok    ' if good else 'FAILED'} {text}")

    def config(self, **changes):
        return {"router": "prenorm", "layers": 6, "channels": 16, "heads": 2, "eps": 1e-12, **changes}

    def parameters(self, config, V, random, std=0.3):
        """The backbone is that of the seed, the same for every router; random: the rows of the router too."""
        plan, params = Plan(config), {}
        draw, own = torch.Generator().manual_seed(7), torch.Generator().manual_seed(8)
        for name, shape in self.shapes(config, V).items():
            x = torch.randn(shape, dtype=torch.float64, generator=own if name.startswith("router.") else draw)
            if name.startswith("router."):
                params[name] = plan.random(name, x) if random else plan.initial(name)
            else:
                out = 1 / math.sqrt(plan.M) if name.split(".")[-1] in ("proj", "down") else 1.0
                params[name] = (1.0 if name.endswith("norm") else 0.0) + std * out * x
        return params

    def run(self, config, random=False, std=0.3, params=None, shape=(2, 9), V=13):
        """Returns (logits, gradients, record)."""
        draw, record = torch.Generator().manual_seed(9), {}
        tokens = torch.randint(0, V, shape, generator=draw)
        params = params or self.parameters(config, V, random, std)
        leaves = {name: x.clone().requires_grad_() for name, x in params.items()}
        logits = self.forward(leaves, tokens, config, record)
        (logits * torch.randn(logits.shape, dtype=torch.float64, generator=draw)).sum().backward()
        unreached = [name for name, x in leaves.items() if x.grad is None]
        if unreached:
            self.that(False, f"{config['router']}: no gradient reaches {', '.join(unreached)}")
        return logits.detach(), {name: torch.zeros_like(x) if x.grad is None else x.grad
                                 for name, x in leaves.items()}, record

    def same_start(self):
        print("1. q = 0: as prenorm; largest differences of the normalised output, of the backbone's gradients")
        want, want_grads, record = self.run(self.config())
        normal = record["h.final"] / rms(record["h.final"])
        for router, method in methods.table().items():
            if method["family"] == "stream" or method["details"]:
                continue
            blocks = method["sources"] == "blocks"
            for m in (1, 2, 4, 5, 8, 12, 20) if blocks else (8,):
                logits, grads, record = self.run(self.config(router=router, block=m))
                out = difference(record["h.final"] / rms(record["h.final"]), normal)
                worst = max(difference(grads[name], g) for name, g in want_grads.items())
                text = f"{router} m={m}" if blocks else router
                self.that(max(out, worst, difference(logits, want)) < 1e-9, f"{text}: {out:.1e}, {worst:.1e}")

    def equal(self, text, one, other):
        (logits, grads, record), (want, want_grads, want_record) = one, other
        worst = difference(logits, want)
        for name in want_grads:
            worst = max(worst, difference(grads[name], want_grads[name]))
        for name in want_record:
            if name.startswith("h."):
                worst = max(worst, difference(record[name], want_record[name]))
        self.that(worst == 0, f"{text}: largest difference {worst:.1e}")

    def special_cases(self):
        print("2. random q, g: logits, h of every read, gradients")
        full = self.run(self.config(router="attnres"), True)
        block = self.run(self.config(router="block", block=1), True)
        self.equal("block m=1 equals attnres", block, full)
        self.that(difference(block[2]["weights.final"], full[2]["weights.final"]) == 0, "  and so do its weights")
        self.equal("delta-block m=1 equals delta", self.run(self.config(**{"router": "delta-block", "block": 1}), True),
                   self.run(self.config(router="delta"), True))
        for m in (4, 8):
            block = self.run(self.config(router="block", block=m), True)
            params = self.parameters(self.config(router="block", block=m), 13, True)
            self.equal(f"wav with details none equals block, m={m}",
                       self.run(self.config(router="wav", block=m, details="none"), True), block)
            for router in (name for name, method in methods.table().items() if method["details"]):
                config = self.config(router=router, block=m)
                wav = {**self.parameters(config, 13, True), **params}
                wav.update({name: torch.full_like(x, -1e4) for name, x in wav.items() if name.endswith("beta")})
                self.equal(f"3. {router} with beta = -1e4 equals block, m={m}", self.run(config, params=wav), block)

    def start_of_wav(self):
        print("3. q = 0: share of the details with n blocks = d n e^beta / (1 + n + d n e^beta)")
        config = self.config(router="wav", layers=12, block=2, **{"final-read": "all"})
        record, worst, shown = self.run(config)[2], 0.0, {}
        for line in record["reads"].splitlines()[1:]:
            j, *names = line.split()
            is_detail = torch.tensor([name.strip("P0123456789") in KINDS for name in names])
            share = record[f"weights.{j[:-1]}"][..., is_detail].sum(-1)
            n = sum(name.strip("P0123456789") == "phase" for name in names)
            formula = 2 * n * math.exp(-2) / (1 + n + 2 * n * math.exp(-2))
            worst, shown[n] = max(worst, (share - formula).abs().max().item()), formula
        self.that(worst < 1e-12, f"largest difference {worst:.1e}; n = 1: {shown[1]:.4f}, n = 12: {shown[12]:.4f}")

    def bases(self):
        print("4. detail bases")
        config = self.config(router="wav", block=8, details="phase,split,random,learned,duplicate")
        router = Router({f"router.block.{b}.coef": Plan(config).initial(f"router.block.{b}.coef") for b in range(2)},
                        config, torch.zeros(1))
        for i in range(8):
            router.updates.append(torch.randn(3, 16, dtype=torch.float64))
            total, (phase, split, _, learned, copy_of) = router.raw_sums(0)
            if i == 0:
                self.that((phase == total).all() and (split == total).all(), "after one update PC = Pphase = Psplit")
            if i < 4 and not (split == total).all():
                self.that(False, f"Psplit is not PC after {i + 1} updates")
            if not (learned == split).all() or not (copy_of == total).all():
                self.that(False, "learned is not split at the start, or duplicate not PC")
        self.that(not (split == total).all(), "Psplit = PC through the first half, not after it")
        for m in range(2, 21, 2):
            plan = Plan(self.config(router="wav", layers=m, block=m, details="phase,split,random", seed=3))
            phase, split, random = (plan.coefs(kind, 0) for kind in plan.details)
            good = sum(phase) == sum(split) == sum(random) == 0 and (m > 2 or phase == split)
            good = good and (sum(a * b for a, b in zip(phase, split)) == 0) == (m % 4 == 0)
            if not good or m in (2, 20):
                self.that(good, f"m={m}: zero-sum, phase and split orthogonal only if 4 divides m")

    def scaling(self):
        draw = torch.Generator().manual_seed(5)
        q, g = (torch.randn(16, dtype=torch.float64, generator=draw) for _ in "qg")
        x = [torch.randn(4, 16, dtype=torch.float64, generator=draw) for _ in range(3)]
        z = [scores([Source("", s * f, 1e-12) for s in x], q, g) for f in (1.0, 1e3, 1e-3)]
        worst = [max(difference(a, b) for a, b in zip(z[i], z[0])) for i in (1, 2)]
        self.that(max(worst) < 1e-5, f"6. scores of sources times 1e3: {worst[0]:.1e}, times 1e-3: {worst[1]:.1e}")

    def epsilon(self):
        print("eps at the start of 48 layers, C=64, embeddings of std 0.02: |logits - prenorm's| / |prenorm's|")
        for router in ("attnres", "block"):
            text = []
            for eps in (1e-5, 1e-6, 1e-8, 1e-10, 1e-12):
                want, got = (self.run(self.config(router=name, layers=48, channels=64, eps=eps), std=0.02)[0]
                             for name in ("prenorm", router))
                text.append((eps, ((got - want).norm() / want.norm()).item()))
            self.that(text[0][1] > 0.3 and text[-1][1] < 1e-4,
                      f"{router}: " + ", ".join(f"eps {eps:g}: {100 * share:.2g} %" for eps, share in text))

    def all(self):
        self.same_start()
        self.special_cases()
        self.start_of_wav()
        self.bases()
        self.scaling()
        self.epsilon()
        print(f"{self.failed} failed")
        return 1 if self.failed else 0
