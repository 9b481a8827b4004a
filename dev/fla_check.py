#!/usr/bin/env python3
"""Our depth mixer against an independent one: naive_attnres of flash-linear-attention, values and all gradients.

Needs:  pip install flash-linear-attention einops packaging transformers   (and torch; runs on the CPU)
Run:    python3 dev/fla_check.py        a table of the largest differences; exit 1 above 1e-5, 3 without the package

The other side computes in float32 whatever its input. Differences are relative to the largest value of each tensor.
"""
import sys
import warnings

warnings.filterwarnings("ignore", message="Triton is not supported")  # without a GPU: the naive form needs none
try:
    import torch
    from fla.ops.attnres.naive import naive_attnres
except Exception as error:  # a package that is there can still fail to load
    print(f"fla_check.py: {str(error).splitlines()[0]}; install with: "
          "pip install flash-linear-attention einops packaging transformers")
    sys.exit(3)
from torch_routers import Source, difference, mix


def gradients(function, leaves, upstream):
    """function(q, g, sources) -> (h, p); returns [h, p, dq, dg, ds_1, ..]."""
    leaves = [x.clone().requires_grad_() for x in leaves]
    h, p = function(leaves[0], leaves[1], leaves[2:])
    (h * upstream).sum().backward()
    return [h.detach(), p.detach()] + [x.grad for x in leaves]


def main():
    torch.set_num_threads(1)
    torch.manual_seed(1)
    names = ("h", "p", "dq", "dg", "ds")
    print(f"{'sources':>7} {'C':>5} {'key_eps':>8} " + " ".join(f"{name:>8}" for name in names))
    worst = 0.0
    for n, C, eps, size in [(1, 16, 1e-6, 1), (2, 36, 1e-6, 1), (7, 64, 1e-12, 1), (25, 384, 1e-12, 0.02),
                            (97, 128, 1e-6, 1), (97, 128, 1e-2, 0.1), (401, 32, 1e-12, 1)]:
        leaves = [0.3 * torch.randn(C), 1 + 0.2 * torch.randn(C)]
        leaves += [size * (0.5 + torch.rand(1)) * torch.randn(2, 5, C) for _ in range(n)]
        upstream = torch.randn(2, 5, C)
        theirs = gradients(lambda q, g, s: naive_attnres(q, s, g, rms_eps=eps, return_weights=True), leaves, upstream)
        theirs[1] = theirs[1].movedim(0, -1)
        ours = gradients(lambda q, g, s: mix([Source("", x, eps) for x in s], q, g), [x.double() for x in leaves],
                         upstream.double())
        if n == 1:  # a single source: no gradient reaches q and g, so ours must be exactly zero
            parts = [difference(ours[0], theirs[0]), difference(ours[1], theirs[1]), ours[2].abs().max().item(),
                     ours[3].abs().max().item(), difference(ours[4], theirs[4])]
        else:
            parts = [difference(a.double(), b) for a, b in zip(theirs[:4], ours[:4])]
            parts.append(difference(torch.stack(theirs[4:]).double(), torch.stack(ours[4:])))
        worst = max(worst, *parts)
        print(f"{n:7} {C:5} {eps:8g} " + " ".join(f"{x:8.1e}" for x in parts))
    print(f"largest difference {worst:.1e}, {'within' if worst <= 1e-5 else 'ABOVE'} 1e-5")
    return 0 if worst <= 1e-5 else 1


if __name__ == "__main__":
    sys.exit(main())
