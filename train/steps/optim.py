"""The optimizer, what it leaves out and cuts off, and the learning rate as a function of the step."""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from settings import sections
from train.process.checkpoint import AtLeast, Open
from train.steps import muon

NORMS: tuple[type[nn.Module], ...] = (
    nn.modules.batchnorm._NormBase,  # batch and instance norms, the lazy and the synchronised ones too
    nn.LayerNorm,
    nn.GroupNorm,
    nn.RMSNorm,
)

PART = 2**20  # coordinates


def build(config: dict[str, Any], named: Mapping[str, nn.Parameter], model: nn.Module) -> torch.optim.Optimizer:
    """The optimizer of ``config["optim"]`` for ``model``'s parameters ``named``; its rate is set anew at every step.

    Groups of parameters: of one kind each, those whose momentum acts in the workers first, and in turn those that decay
    first.
    """
    values = config["optim"]
    groups = {kind: [named[name] for name in names] for kind, names in _groups(config, named, model).items()}
    if any(in_workers for in_workers, _ in groups):
        # a group's "decays" is absent where it is true, as from checkpoints that are older than it
        listed = [
            {"params": of, "in_workers": here} | ({} if decays else {"decays": False})
            for (here, decays), of in groups.items()
        ]
        return DecaySGD(listed, values["lr"], values["momentum"], values["nesterov"], values["weight_decay"])
    listed = [{"params": of, "weight_decay": values["weight_decay"] * decays} for (_, decays), of in groups.items()]
    if values["name"] == "muon":
        matrices = muon.hidden_matrices(model, {id(p) for p in without_decay(model)})
        if not matrices:
            raise ValueError(
                f"optim=muon: model={config['model']['name']} has no hidden matrix, that is, a parameter of two "
                f"dimensions that is neither an embedding nor the output's; legal here: adam, adamw, sgd, signsgd"
            )
        taken = {id(p) for p in matrices}
        left = [{**group, "params": [p for p in group["params"] if id(p) not in taken]} for group in listed]
        return muon.MuonAndAdamW(values, matrices, [group for group in left if group["params"]])
    if values["name"] == "sgd":
        return torch.optim.SGD(listed, values["lr"], values["momentum"], nesterov=values["nesterov"])
    if values["name"] == "signsgd":
        return SignSGD(listed, values["lr"], values["momentum"])
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[values["name"]]
    return kind(listed, lr=values["lr"], betas=(values["beta1"], values["beta2"]))


def _groups(
    config: Mapping[str, Any], named: Mapping[str, nn.Parameter], model: nn.Module
) -> dict[tuple[bool, bool], list[str]]:
    """The names of the parameters of each group, by whether their momentum acts in the workers and whether they decay.

    They are in the optimizer's order.
    """
    in_workers = sections.momentum_in_workers_of(config, named)
    spared = set() if config["optim"]["decay_norms"] else {id(p) for p in without_decay(model)}
    kinds = {name: (here, id(p) not in spared) for (name, p), here in zip(named.items(), in_workers, strict=True)}
    return {kind: [name for name in named if kinds[name] == kind] for kind in sorted({*kinds.values()}, reverse=True)}


def check_groups(
    config: Mapping[str, Any], parent: Mapping[str, Any], named: Mapping[str, nn.Parameter], model: nn.Module
) -> None:
    """Raise ValueError where a fork groups its parameters otherwise than its parent; both configurations.

    A state holds what is remembered of the parameters in the order of their groups, without their names.
    """
    own, theirs = ([*_groups(each, named, model).values()] for each in (config, parent))
    if own != theirs:
        raise ValueError(
            f"fork.run={config['fork']['run']}: the optimizer's groups of parameters, by where their momentum acts "
            f"(method, layers, feedback.kind) and whether they decay (optim.decay_norms), must be those of that run"
        )


def outline(optimizer: torch.optim.Optimizer, *, stepped: bool) -> dict[str, Any]:
    """The optimizer's state, for ``checkpoint.check_values``.  stepped: it has stepped, and lacks nothing any more."""
    listed = ((group, parameter) for group in optimizer.param_groups for parameter in group["params"])
    state = {
        number: {"step": torch.zeros((), dtype=torch.float32, device="cpu"), "exp_avg": p, "exp_avg_sq": p}
        if "betas" in group
        else AtLeast({"momentum_buffer": p})
        for number, (group, p) in enumerate(listed)
        if _remembers(optimizer, group)
    }
    return {"state": AtLeast(state) if stepped else Open(state), "param_groups": []}


def saved(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """The optimizer's state; a parameter that no worker has used yet has the zeros with which it begins."""
    state = optimizer.state_dict()
    known = outline(optimizer, stepped=True)["state"] if state["state"] else {}
    begins = {number: own for number, own in known.items() if number not in state["state"]}
    zeros = {number: {name: torch.zeros_like(value) for name, value in own.items()} for number, own in begins.items()}
    return {**state, "state": {**state["state"], **zeros}}


def _remembers(optimizer: torch.optim.Optimizer, group: Mapping[str, Any]) -> bool:
    """Whether the optimizer remembers something of each parameter of a group."""
    if isinstance(optimizer, DecaySGD):
        return not group.get("in_workers", True) or (optimizer.decay != 0 and group.get("decays", True))
    return "betas" in group or group["momentum"] != 0


def restore(optimizer: torch.optim.Optimizer, saved: Mapping[str, Any]) -> None:
    """Restore what is remembered of each parameter, but no group's settings; ValueError for other parameters."""
    groups = optimizer.state_dict()["param_groups"]
    if [group["params"] for group in saved["param_groups"]] != [group["params"] for group in groups]:
        raise ValueError("its optimizer's groups are of other parameters")
    # it divides by 1 - beta^(step + 1)
    if any("step" in of and not 0 <= float(of["step"]) < 2**63 for of in saved["state"].values()):
        raise ValueError("its optimizer has taken a number of steps below 0 or from 2^63 on")
    optimizer.load_state_dict({**saved, "param_groups": groups})


def without_decay(model: nn.Module) -> list[nn.Parameter]:
    """The parameters that ``optim.decay_norms=false`` leaves out.

    They are all of a module of ``NORMS``, and all that are called a bias.  The kind of module decides, not the
    dimension: a gain of a hand-made layer decays, as do embeddings and matrices of one row.
    """
    found = [(module, name, p) for module in model.modules() for name, p in module.named_parameters(recurse=False)]
    return [p for module, name, p in found if isinstance(module, NORMS) or "bias" in name]


def clipped(values: Mapping[str, Any], mean: Tensor) -> Tensor:
    """The step's mean gradient, one flat vector, after clipping.

    ``clip_value`` and then ``clip_norm`` of ``config["optim"]`` apply; without them it is the gradient itself.

    g min(1, clip_norm / |g|), g of coordinates between -clip_value and clip_value: Pascanu et al., "On the difficulty
    of training recurrent neural networks" (2013), Section 3.2.  What is cut off is lost: no worker's memory sees it.
    """
    if values["clip_value"]:
        mean = mean.clamp(-values["clip_value"], values["clip_value"])
    if values["clip_norm"]:
        share = values["clip_norm"] / _norm(mean)
        mean = mean * share.clamp(max=1).to(mean.dtype)
    return mean


def _norm(vector: Tensor) -> Tensor:
    """The L2 norm, 0-d, in float64 and in parts: float32's is .4 % short at 5e7 coordinates on a CPU, or infinite."""
    return torch.linalg.vector_norm(
        torch.stack([torch.linalg.vector_norm(part, dtype=torch.float64) for part in vector.split(PART)])
    )


def learning_rate(config: dict[str, Any], step: int, of: str = "lr") -> float:
    """The rate of the step after ``step`` finished steps; a drop listed at 40000 holds from step 40000 on.

    of: the setting that is the rate before the schedule; Muon has two.

    optim.scale_lr: Goyal et al. (2017), Section 2.1, has the linear rule; the root keeps the variance of a step
    instead.  A step averages over all workers, or over the ``num_aggregate`` that a server waits for.
    """
    averaged = config["exchange"]["num_aggregate"] or config["workers"]
    scale = {"none": 1.0, "linear": averaged, "sqrt": math.sqrt(averaged)}[config["optim"]["scale_lr"]]
    return config["optim"][of] * scale * _share(config["schedule"], step, config["steps"])


def _share(schedule: Mapping[str, Any], step: int, steps: int) -> float:
    """The factor that the schedule applies to the rate after ``step`` of ``steps`` steps, exact at every corner.

    warm-up: f + (1 - f) step / warmup_steps below warmup_steps, with f = warmup_factor: Goyal et al., "Accurate, large
    minibatch SGD" (2017), Section 2.2, whose f is 1 / workers.  Steps' drops count in it too; exponential and cosine
    start at its end.  exponential: factor^(t / period), t the steps since the warm-up.  cosine: (1 + cos(pi t)) / 2
    with t from 0 at the end of the warm-up to 1 after the last step: Loshchilov, Hutter, "SGDR" (2017), as DGC uses it.
    The last step's share is therefore just above 0. A run that is no longer than its warm-up ends in it.
    piecewise_linear: straight lines between the corners, and level outside of them. ResNet-9's first step has the rate
    0 of its first corner and its last one a rate just above 0; its author's code reads the line one step later, so
    there it is the other way round.
    """
    if schedule["name"] == "piecewise_linear":
        return _on_lines(schedule["at"], schedule["factors"], step)
    warmup_steps = schedule["warmup_steps"]
    rise = 1.0
    if step < warmup_steps:
        rise = schedule["warmup_factor"] + (1 - schedule["warmup_factor"]) * step / warmup_steps
    if schedule["name"] == "step":
        return rise * schedule["factor"] ** sum(step >= at for at in schedule["at"])
    if step < warmup_steps:
        return rise
    if schedule["name"] == "exponential":
        return schedule["factor"] ** ((step - warmup_steps) / schedule["period"])
    if schedule["name"] == "cosine":
        return (1 + math.cos(math.pi * (step - warmup_steps) / (steps - warmup_steps))) / 2 if step < steps else 0.0
    return 1.0


def _on_lines(at: Sequence[int], factors: Sequence[float], step: int) -> float:
    """The height at ``step`` of straight lines through the points (at, factors), level before and after them."""
    corner = bisect.bisect_right(at, step)  # the first corner beyond
    if corner in (0, len(at)):
        return factors[max(corner - 1, 0)]
    before, height, rise = at[corner - 1], factors[corner - 1], factors[corner] - factors[corner - 1]
    return height + rise * (step - before) / (at[corner] - before)


class DecaySGD(torch.optim.SGD):
    """SGD on gradients that bring their own momentum (DGC, Section 3.1).

    Only the weight decay has a momentum buffer here.

    b = m b + decay * w, then w -= lr (g + b); with Nesterov's w -= lr (g + decay * w + m b).  Without compression that
    is torch's SGD with momentum, of which it takes the decay's share.  Groups of parameters with ``in_workers=False``
    have gradients without momentum, and torch's SGD; those with ``decays=False`` have no decay.
    """

    def __init__(
        self, parameters: Iterable[Any], lr: float, momentum: float, nesterov: bool, weight_decay: float
    ) -> None:
        super().__init__(parameters, lr=lr)
        self.momentum, self.nesterov, self.decay = momentum, nesterov, weight_decay

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        assert closure is None
        for group in self.param_groups:
            decay = self.decay if group.get("decays", True) else 0.0
            for parameter in group["params"]:
                assert parameter.grad is not None
                if not group.get("in_workers", True):
                    update = self._with_momentum(parameter, parameter.grad.add(parameter, alpha=decay))
                elif decay:
                    update = parameter.grad + self._with_momentum(parameter, parameter * decay)
                else:
                    update = parameter.grad
                parameter.add_(update, alpha=-group["lr"])

    def _with_momentum(self, parameter: Tensor, added: Tensor) -> Tensor:
        """The value to subtract for a gradient ``added``, which goes into the parameter's buffer."""
        state = self.state[parameter]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(parameter)
        buffer = state["momentum_buffer"].mul_(self.momentum).add_(added)
        return added.add(buffer, alpha=self.momentum) if self.nesterov else buffer


class SignSGD(torch.optim.Optimizer):
    """signSGD, and with momentum Signum (Bernstein et al., ICML 2018, Algorithms 1 and 2), with decoupled weight decay.

    b = m b + g, then w = (1 - lr decay) w - lr sign(b); without momentum b = g.  sign(0) = 0.
    """

    def __init__(self, parameters: Iterable[Any], lr: float, momentum: float) -> None:
        super().__init__(parameters, {"lr": lr, "momentum": momentum, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        assert closure is None
        for group in self.param_groups:
            for parameter in group["params"]:
                wanted = parameter.grad
                assert wanted is not None
                if group["momentum"]:
                    kept = self.state[parameter].setdefault("momentum_buffer", torch.zeros_like(parameter))
                    wanted = kept.mul_(group["momentum"]).add_(wanted)
                parameter.mul_(1 - group["lr"] * group["weight_decay"])
                parameter.add_(wanted.sign(), alpha=-group["lr"])
