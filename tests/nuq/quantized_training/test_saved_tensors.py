"""The tensors that autograd saves are held packed: once, whatever views of them are saved, and never mistaken for what
lay there before.
"""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from nuq.quantized_training.saved_tensors import SavedTensors
from tests.nuq.packing_recorder import MIN_SIZE, Recorder


class Net(nn.Module):
    """Batch norm, ReLU in place and not, a residual sum, pooling, dropout, layer norm, GELU."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(8)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(8, 8, 3, padding=1)
        self.layer_norm = nn.LayerNorm(32)
        self.up = nn.Linear(32, 64)
        self.out = nn.Linear(64, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.norm1(self.conv1(x)))
        x = F.max_pool2d(F.relu(self.conv2(x) + x), 4)
        x = F.dropout(F.gelu(self.up(self.layer_norm(x.flatten(1)))), 0.1, self.training)
        return self.out(x)


class Attention(nn.Module):
    """An embedding, one attention whose queries, keys and values are strided views,
    and its plain form with a softmax.
    """

    def __init__(self, *, fused: bool) -> None:
        super().__init__()
        self.tokens, self.inputs, self.out, self.fused = (
            nn.Embedding(11, 16),
            nn.Linear(16, 48),
            nn.Linear(16, 11),
            fused,
        )

    def forward(self, tokens: Tensor) -> Tensor:
        query, key, value = self.inputs(self.tokens(tokens)).view(*tokens.shape, 3, 4, 4).permute(2, 0, 3, 1, 4)
        if self.fused:
            mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        else:
            mixed = (query @ key.transpose(-2, -1) / 2).softmax(-1) @ value
        return self.out(mixed.transpose(1, 2).flatten(2))


def images(batch: int = 6) -> Tensor:
    return torch.randn(batch, 3, 8, 8, generator=torch.Generator().manual_seed(5)).contiguous(
        memory_format=torch.channels_last
    )


def gradients(model: nn.Module, *inputs: Tensor) -> list[Tensor]:
    model.zero_grad()
    torch.manual_seed(3)  # dropout
    model(*inputs).square().mean().backward()
    return [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]


def net() -> Net:
    torch.manual_seed(1)
    return Net().to(memory_format=torch.channels_last)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    "make", [net, lambda: Attention(fused=True), lambda: Attention(fused=False)], ids=["net", "fused", "softmax"]
)
def test_an_exact_format_changes_no_gradient(make):
    torch.manual_seed(1)
    model = make()
    x = images() if isinstance(model, Net) else torch.randint(0, 11, (3, 9), generator=torch.Generator().manual_seed(2))
    plain = gradients(model, x)
    pack = Recorder()
    saved = SavedTensors(model, pack, MIN_SIZE)
    packed = gradients(model, x)
    assert all(torch.equal(a, b) for a, b in zip(plain, packed, strict=True))
    assert len(pack.given) > 4 and pack.alive == 0
    count = len(pack.given)
    saved.remove()
    gradients(model, x)
    assert len(pack.given) == count


def test_each_tensor_is_packed_once_and_parameters_are_not():
    model, pack = net(), Recorder()
    SavedTensors(model, pack, MIN_SIZE)
    model.eval()  # no dropout mask
    out = model(images())
    # the images, conv1's output, what relu left in place (saved by relu and conv2), the second relu's result (by relu
    # and the pooling), the pooled one (by layer norm), its result (by up), gelu's input and its result (by out)
    wanted = [(6, 3, 8, 8), (6, 8, 8, 8), (6, 8, 8, 8), (6, 8, 8, 8), (6, 32), (6, 32), (6, 64), (6, 64)]
    assert pack.given == wanted and pack.alive == len(wanted)
    out.sum().backward()
    assert pack.alive == 0


class Sine(torch.autograd.Function):
    """The sine, which is laid down in memory of the caller's."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, memory: bytearray) -> Tensor:  # type: ignore[override]
        ctx.save_for_backward(x)
        return torch.frombuffer(memory, dtype=torch.float32).copy_(x.sin())

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        return grad * ctx.saved_tensors[0].cos(), None


def test_memory_that_is_freed_and_given_out_again_is_packed_again():
    """Every layer's input is freed as soon as it is packed, and a later one comes to lie at its address, at the same
    version.
    """

    class Chain(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            for number in range(12):
                x = Sine.apply(x, memories[number % 2])
            return x

    x = torch.linspace(-2, 2, 1000, requires_grad=True)
    memories = bytearray(x.nbytes), bytearray(x.nbytes)
    expected, gradient = x.detach().double(), torch.ones(1000, dtype=torch.float64)
    for _ in range(12):
        gradient, expected = gradient * expected.cos(), expected.sin()
    model, pack = Chain(), Recorder()
    SavedTensors(model, pack, MIN_SIZE)
    out = model(x)
    assert len(pack.given) == 12
    got = torch.autograd.grad(out.sum(), x)[0]
    assert torch.allclose(got.double(), gradient, rtol=1e-5)


def test_views_of_other_shapes_share_and_a_change_in_place_does_not():
    class Views(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            y = x * 1.0
            first = y * y  # saves y
            second = y.view(10, 10).exp().view(100) * y.view(10, 10).t().reshape(100)  # the copy is another tensor
            y = y.clone()
            third = y.square()
            return first + second + third

    model, pack = Views(), Recorder()
    SavedTensors(model, pack, MIN_SIZE)
    x = torch.linspace(-1, 1, 100, requires_grad=True)
    out = model(x)
    assert pack.given == [
        (100,),
        (10, 10),
        (100,),
        (100,),
    ]  # y; exp's result (also by the product, as a view); the copy; the clone
    plain = torch.autograd.grad(Views()(x).sum(), x)[0]
    assert torch.equal(torch.autograd.grad(out.sum(), x)[0], plain)


def test_small_whole_and_expanded_tensors_stay():
    class Mixed(nn.Module):
        def forward(self, x: Tensor, small: Tensor) -> Tensor:
            mask = x > 0  # boolean, large
            wide = small[:1].expand(100)  # one number
            return torch.where(mask, x, 0.0) * wide + small.sum() * small.sum()

    model, pack = Mixed(), Recorder()
    SavedTensors(model, pack, MIN_SIZE)
    model(torch.ones(100, requires_grad=True), torch.ones(3, requires_grad=True)).sum().backward()
    assert pack.given == [(100,)]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_forward_pass_that_raises(error):
    class Raises(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bad, self.fc = False, nn.Linear(8, 8)

        def forward(self, x: Tensor) -> Tensor:
            x = self.fc(x).relu()
            if self.bad:
                raise error
            return x

    model, pack = Raises(), Recorder()
    SavedTensors(model, pack, MIN_SIZE)
    x = torch.ones(20, 8)
    plain = gradients(model, x)
    model.bad = True
    with pytest.raises(error):
        model(x)
    model.bad = False
    assert all(torch.equal(a, b) for a, b in zip(gradients(model, x), plain, strict=True))
    count = len(pack.given)
    (torch.ones(100, requires_grad=True).exp() * 2).sum().backward()
    assert len(pack.given) == count


def test_recursion_and_checkpoint_and_no_grad():
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(8, 8)

        def forward(self, x: Tensor, depth: int = 2) -> Tensor:
            x = self.fc(x).relu()
            x = checkpoint(lambda y: self.fc(y).relu().square(), x, use_reentrant=False)  # type: ignore[assignment]
            return self(x, depth - 1) if depth else x

    torch.manual_seed(0)
    model, pack = Twice(), Recorder()
    x = torch.randn(20, 8)
    plain = gradients(model, x)
    SavedTensors(model, pack, MIN_SIZE)
    assert all(torch.equal(a, b) for a, b in zip(gradients(model, x), plain, strict=True))
    assert pack.given
    count = len(pack.given)
    with torch.no_grad():
        model(x)
    assert len(pack.given) == count


@pytest.mark.slow
def test_what_is_held_is_as_small_as_it_says():
    """Bytes that live between the passes: a tenth of the tensors' own, and a dropped graph frees them."""
    model = nn.Sequential(*(nn.Sequential(nn.Linear(64, 64), nn.Tanh()) for _ in range(6)))
    pack = Recorder("qsgdinf bits=2")
    SavedTensors(model, pack, MIN_SIZE)
    out = model(torch.randn(512, 64))
    gc.collect()
    alive = sum(t.untyped_storage().nbytes() for t in gc.get_objects() if type(t) is Tensor and t.numel() == 512 * 64)
    held = sum(packed().nbytes for packed in pack.packed)
    assert len(pack.given) == 7 and held < 7 * 512 * 64 * 4 / 10
    assert alive <= 512 * 64 * 4  # the output alone
    del out
    assert pack.alive == 0
