"""DeMo: the paper's algorithm in NumPy, with SciPy's DCT, followed for 200 steps, and its variant of signs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.fft import dctn, idctn
from torch import nn

from nuq.compressors.feedback import ErrorFeedback
from nuq.compressors.message import parse
from nuq.kernels.spec import Key
from nuq.registry import METHODS
from nuq.settings.feedback import Feedback
from nuq.simulation import Memory, Workers
from settings import resolving
from tests.train.steps.test_optim import CPU
from train.steps import optim
from train.steps.update import update

WORKERS, CHUNK, KEPT, DECAY = 4, 8, 5, 0.9
SHAPES: dict[str, tuple[int, ...]] = {"weight": (12, 24), "bias": (16,)}  # chunks of 6 x 8, and of 8
DRAWN = np.random.default_rng(9)
Floats = NDArray[np.float64]
TARGETS: dict[str, Floats] = {name: DRAWN.normal(size=(WORKERS, *shape)) for name, shape in SHAPES.items()}
CURVATURES: dict[str, Floats] = {name: DRAWN.uniform(0.5, 2, size=(WORKERS, *shape)) for name, shape in SHAPES.items()}


def gradient(name: str, worker: int, x: np.ndarray) -> np.ndarray:
    """Of sum c (x - target)^2 / 2."""
    return CURVATURES[name][worker] * (x - TARGETS[name][worker])


def fast_components(momenta: Floats) -> Floats:
    """ExtractFastComponents of Algorithm 1, decoded: the largest coefficients of every chunk, by worker."""
    tall, wide = (6, 8) if momenta.ndim == 3 else (1, 8)
    chunks = momenta.reshape(WORKERS, -1, tall, momenta.shape[-1] // wide, wide)
    coefficients: Floats = np.asarray(dctn(chunks, axes=(2, 4), norm="ortho"))
    by_chunk = np.abs(coefficients).swapaxes(2, 3).reshape(*chunks.shape[:2], chunks.shape[3], -1)
    least = np.sort(by_chunk, axis=-1)[:, :, None, :, -KEPT, None]
    kept = np.where(np.abs(coefficients) >= least, coefficients, 0.0)
    return np.asarray(idctn(kept, axes=(2, 4), norm="ortho")).reshape(momenta.shape)


def demo(rate: float, by_sign: bool, steps: int) -> list[dict[str, np.ndarray]]:
    """The iterates of Algorithm 1; by_sign: of its variant that steps by the sign of the mean."""
    x = {name: np.zeros(shape) for name, shape in SHAPES.items()}
    momenta = {name: np.zeros((WORKERS, *shape)) for name, shape in SHAPES.items()}
    iterates = []
    for _ in range(steps):
        for name in SHAPES:
            own = DECAY * momenta[name] + CURVATURES[name] * (x[name] - TARGETS[name])
            sent = fast_components(own)
            momenta[name] = own - sent
            mean = sent.mean(axis=0)
            x[name] = x[name] - rate * (np.sign(mean) if by_sign else mean)
        iterates.append(dict(x))
    return iterates


LONG = pytest.param(200, marks=pytest.mark.slow)


@pytest.mark.parametrize("steps", [40, LONG])
@pytest.mark.parametrize("name", ["sgd", "signsgd"])
def test_the_papers_algorithm(name: str, steps: int) -> None:
    """To float32's rounding, as long as it goes."""
    rate = 0.05 if name == "sgd" else 0.005
    given: dict[str, Any] = {"optim": name, "optim.lr": rate, "optim.momentum": 0, "optim.weight_decay": 0}
    given |= {
        "schedule": "constant",
        "method": "demo",
        "method.chunk": CHUNK,
        "method.k": KEPT,
        "feedback.decay": DECAY,
    }
    config = resolving.resolve(given)
    settings = METHODS["demo"].settings(chunk=CHUNK, k=KEPT)
    shapes = {key: torch.Size(shape) for key, shape in SHAPES.items()}
    memory = Memory(Feedback(**config["feedback"]))
    workers = Workers("demo", settings, WORKERS, shapes, 1, CPU, memory=memory)
    named = {key: nn.Parameter(torch.zeros(shape)) for key, shape in shapes.items()}
    model = nn.ParameterDict(named)
    optimizer = optim.build(config, named, model)
    for step, theirs in enumerate(demo(rate, name == "signsgd", steps)):
        own = {key: p.detach().double().numpy() for key, p in named.items()}
        sent = {
            worker: torch.from_numpy(np.concatenate([gradient(key, worker, own[key]).ravel() for key in own])).float()
            for worker in range(WORKERS)
        }
        update(config, optimizer, named, workers.exchange(sent, dict.fromkeys(sent, 0.0), step).mean, step)
        for key, p in named.items():
            np.testing.assert_allclose(p.detach().numpy(), theirs[key], rtol=1e-5, atol=1e-5, err_msg=f"{step}, {key}")
    (left,) = (around.memories for around in workers.compressors.memories)
    assert all(left[worker]["residuals"]["weight"].any() for worker in range(WORKERS))


def test_without_decay_it_is_error_feedback() -> None:
    """decay=1 changes no bit, and 0 forgets."""
    made = METHODS["topk"].load()(METHODS["topk"].settings(ratio=0.1))
    x = torch.randn(100, generator=torch.Generator().manual_seed(1))
    sent = {}
    for decay in (1.0, 0.0):
        of = ErrorFeedback(made, {"p": 100}, decay=decay)
        sent[decay] = [of.decode(of.encode(x, Key(1, step, 0).of("p"))) for step in range(3)]
    assert not torch.equal(sent[1.0][0], sent[1.0][1]) and torch.equal(sent[0.0][0], sent[0.0][2])


@pytest.mark.parametrize(
    ("shape", "height", "width"),
    [((128, 192), 64, 64), ((100, 30), 50, 30), ((8, 3, 3, 3), 8, 27), ((130,), 1, 44), ((5, 67), 5, 34)],
)
def test_chunks_of_every_shape(shape: tuple[int, ...], height: int, width: int) -> None:
    """All coefficients give the tensor back, and a message of some leaves out as much as their squares say."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(2))
    made = {k: METHODS["demo"].load()(METHODS["demo"].settings(k=k)) for k in (4096, 3)}
    messages = {k: each.encode(x, Key(1, 0, 0, "p")) for k, each in made.items()}
    assert (int(messages[3].body[0]), int(messages[3].body[1])) == (height, width)
    whole, some = (made[k].decode(parse(messages[k].to_bytes())) for k in (4096, 3))
    torch.testing.assert_close(whole, x.reshape(-1), rtol=1e-5, atol=1e-5)
    assert messages[3].num_bytes < messages[4096].num_bytes / 4
    assert 0 < some.norm() < x.norm() and abs(float(torch.dot(some, x.reshape(-1) - some))) < 0.1 * x.norm() ** 2


def test_the_papers_saving() -> None:
    """A transformer's layer, with the paper's code's settings: 32 coefficients of 4,096, of 4 bytes and 8.7 bits."""
    made = METHODS["demo"].load()(METHODS["demo"].settings())
    x = torch.randn(768, 768, generator=torch.Generator().manual_seed(3))
    assert 98 < 4 * x.numel() / made.encode(x, Key(1, 0, 0, "p")).num_bytes < 102


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_signum(momentum: float) -> None:
    """w = (1 - lr decay) w - lr sign(b), by hand; parameters spared of the decay have none."""
    given = {"optim": "signsgd", "optim.lr": 0.1, "optim.momentum": momentum, "optim.weight_decay": 0.5}
    model = nn.Linear(2, 1)
    for parameter in model.parameters():
        nn.init.ones_(parameter)
    built = optim.build(resolving.resolve(given | {"optim.decay_norms": False}), dict(model.named_parameters()), model)
    want = torch.ones(2)
    for gradient in ([2.0, 0.0], [-1.0, 0.0]):
        model.weight.grad, model.bias.grad = torch.tensor([gradient]), torch.tensor([-3.0])
        built.step()
        sign = 1.0 if gradient[0] > 0 or momentum else -1.0  # .9 * 2 - 1 is above 0
        want = 0.95 * want - 0.1 * torch.tensor([sign, 0.0])
        torch.testing.assert_close(model.weight.detach()[0], want)
    assert model.bias.item() == pytest.approx(1.2)
