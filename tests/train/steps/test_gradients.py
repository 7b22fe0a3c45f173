"""The computation of passes: precision, loss scaling, accumulation, memory order, what is refused, and the finite
checks.
"""

import math
import shutil

import pytest
import torch

from nuq.errors import NonFiniteError
from nuq.exchange.finite import first_not_finite, surely_finite
from settings import resolving
from train.data.objective import loss_of
from train.steps.loss_scale import LARGEST, LossScale
from train.steps.order import Order, generator
from train.steps.trainer import Trainer

CPU = torch.device("cpu")
SMALL = {"data": "digits", "model": "cnn", "batch_size": 8, "workers": 2, "method": "supersgd"}


def trainer(**settings) -> Trainer:
    return Trainer(
        resolving.resolve(SMALL | {key.replace("__", "."): value for key, value in settings.items()}), device=CPU
    )


def flat(ours: Trainer, worker: int = 0, step: int = 0) -> torch.Tensor:
    return ours.gradient(worker, step, ours.order, "train")[0]


@pytest.mark.parametrize(("precision", "least", "most"), [("bf16", 1e-4, 0.1), ("fp16", 1e-6, 0.02)])
def test_a_lower_precision_is_near_the_full_one(precision, least, most):
    exact, rounded = flat(trainer()), flat(trainer(compute__precision=precision))
    assert rounded.dtype == torch.float32
    assert least < float((rounded - exact).norm() / exact.norm()) < most


def test_memory_order_changes_little_more_than_bits():
    ours, other = trainer(), trainer(compute__channels_last=False)
    weight, plain = ours.parameters["conv2.weight"], other.parameters["conv2.weight"]
    assert (
        weight.is_contiguous(memory_format=torch.channels_last) and not weight.is_contiguous() and plain.is_contiguous()
    )
    assert torch.allclose(flat(ours), flat(other), atol=1e-6)


def test_accumulated_minibatches_are_one_large_one():
    """The mean of the minibatches' gradients is, without batch norm, that of all samples together; samples do not
    overlap.
    """
    four, one = trainer(batch_size=4, compute__accumulate=4), trainer(batch_size=16)
    assert (
        torch.equal(four.order.indices(3, 1), one.order.indices(3, 1))
        and four.order.steps_per_epoch == one.order.steps_per_epoch
    )
    gradients = []
    for ours in (four, one):
        parts = []
        for indices in four.order.minibatches(3, 1):
            x, y = ours.data.train_batch(indices, generator(1, 3, 1, "train"))
            parts.append(torch.autograd.grad(loss_of(ours.model(x), y), list(ours.parameters.values())))
        gradients.append([torch.stack(each).mean(0) for each in zip(*parts, strict=True)])
    found, loss = four.gradient(1, 3, four.order, "train")
    whole, whole_loss = one.gradient(1, 3, one.order, "train")
    by_hand = torch.cat([part.reshape(-1) for part in gradients[0]])
    assert torch.allclose(found, whole, atol=1e-6) and torch.allclose(found, by_hand, atol=1e-6)
    assert float(loss) == pytest.approx(float(whole_loss), rel=1e-5)


def test_accumulation_draws_each_sample_once_an_epoch():
    order = Order(num_train=103, batch_size=5, workers=2, seed=1, accumulate=2)
    pieces = [piece for step in range(5) for worker in range(2) for piece in order.minibatches(step, worker)]
    assert order.steps_per_epoch == 5 and [len(piece) for piece in pieces] == [5] * 20
    assert len(set(torch.cat(pieces).tolist())) == 100
    with pytest.raises(ValueError, match=r"batch_size=5 and compute.accumulate=11 take 110 samples a step"):
        Order(103, 5, 2, 1, accumulate=11)


def test_minibatches_of_a_step_have_dropout_of_their_own():
    more = {"data": "mnist", "model": "mnist_cnn", "stand_in": True, "batch_size": 2, "compute__accumulate": 2}
    ours = trainer(**more)
    same = [
        ours.gradients._of_minibatch(torch.arange(2), 0, 0, purpose)[0] for purpose in ("train", "train", "train/1")
    ]
    assert torch.equal(same[0], same[1]) and not torch.equal(same[0], same[2])


@pytest.mark.slow
def test_a_loss_scaled_too_far_up_skips_steps_until_it_fits(tmp_path):
    ours = trainer(
        compute__precision="fp16", method="alq", method__bucket_size=1024, method__update_at=[2], method__num_samples=3
    )
    assert ours.loss_scale is not None
    ours.loss_scale.value = 2.0**40
    before = {name: value.clone() for name, value in ours.model.named_parameters()}
    skipped = 0
    while ours.loss_scale.skipped == skipped:
        result = ours.train_step()
        skipped += 1
        if ours.loss_scale.skipped == skipped:
            assert result.bytes_per_worker == 0 and all(map(math.isfinite, result.losses))
            assert all(torch.equal(value, before[name]) for name, value in ours.model.named_parameters())
    assert skipped == ours.step > 3 and ours.loss_scale.value == 2.0 ** (40 - ours.loss_scale.skipped)
    assert any(not torch.equal(value, before[name]) for name, value in ours.model.named_parameters())
    state = ours.state_dict()
    fresh = trainer(
        compute__precision="fp16", method="alq", method__bucket_size=1024, method__update_at=[2], method__num_samples=3
    )
    fresh.load_state_dict(state)
    assert fresh.loss_scale == ours.loss_scale


@pytest.mark.slow
def test_a_first_gradient_that_overflows_leaves_the_first_levels_to_the_next():
    ours = trainer(compute__precision="fp16", method="alq")
    assert ours.loss_scale is not None
    ours.loss_scale.value = 2.0**40
    while not ours.workers.compressor.fitted:
        before = ours.step
        ours.train_step()
    assert before > 0 and ours.loss_scale.skipped >= before
    ours.train_step()


def test_samples_are_never_skipped():
    """A measurement scales the loss down until its gradient is finite."""
    ours = trainer(compute__precision="fp16")
    assert ours.loss_scale is not None
    ours.loss_scale.value = 2.0**40
    gradient, _ = ours.gradient(0, 0, ours.measure_order, "measure")
    assert surely_finite([gradient]) and ours.loss_scale.value == 2.0**40


def test_what_no_scale_helps_ends_the_run():
    ours = trainer(compute__precision="fp16")
    assert ours.loss_scale is not None
    with torch.no_grad():
        ours.parameters["output.bias"][0] = math.nan
    with pytest.raises(NonFiniteError, match="on worker 0"):
        ours.train_step()
    low = LossScale(value=1.0)
    assert not low.may_skip()


def test_the_scale_doubles_now_and_then(monkeypatch):
    monkeypatch.setattr("train.steps.loss_scale.GROW_AFTER", 3)
    scale = LossScale(value=LARGEST / 2)
    values = []
    for _ in range(7):
        scale.taken()
        values.append(scale.value / LARGEST)
    assert values == [0.5, 0.5, 1, 1, 1, 1, 1]
    scale.skip()
    assert scale == LossScale(LARGEST / 2, 0, 1)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"compute.precision": "fp8"}, "compute.precision='fp8': must be one of fp32, bf16, fp16"),
        ({"compute.accumulate": 0}, "compute.accumulate=0: must be at least 1"),
        (
            {"compute.cuda_graphs": True, "device": "cpu"},
            "compute.cuda_graphs=True: records the kernels of a CUDA device",
        ),
        ({"compute.cuda_graphs": True, "compute.compile": True}, "does not go with compute.compile=True"),
    ],
)
def test_settings_that_are_not_legal(settings, said):
    with pytest.raises(ValueError) as error:
        resolving.resolve(settings)
    assert said in str(error.value) and "\n" not in str(error.value)


def test_what_this_device_cannot_do(monkeypatch):
    with pytest.raises(ValueError, match="and this run is on the CPU; legal here: false"):
        trainer(compute__cuda_graphs=True)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(ValueError, match=r"torch.compile needs a C\+\+ compiler .* none is here; legal here: false"):
        trainer(compute__compile=True)


def test_finite_sums_prove_it_and_others_do_not_disprove_it():
    fine, large = [torch.ones(3), torch.zeros(2, 2)], [torch.full((2,), 3e38)]
    assert surely_finite(fine) and surely_finite([]) and not surely_finite(large) and first_not_finite(large) is None
    for bad in (math.nan, math.inf, -math.inf):
        for place in (0, 1):
            spoilt = [part.clone() for part in fine]
            spoilt[place].view(-1)[1] = bad
            assert not surely_finite(spoilt) and first_not_finite(spoilt) == place
    assert not surely_finite([torch.tensor([math.inf, -math.inf])])


def test_gradients_whose_sum_overflows_are_exchanged():
    ours = trainer(workers=1)
    gradient = torch.full((ours.trained.num_coordinates,), 2e38)
    mean = ours.trained.exchange({0: gradient}, {0: 1.0}, 0).mean
    assert bool((mean == 2e38).all())
