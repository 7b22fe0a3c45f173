"""Forward passes that raise or are interrupted: nothing else is packed, and the hooks close."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
import weakref

import pytest
import torch
from torch import Tensor, nn

from nuq.quantized_training.saved_tensors import SavedTensors
from tests.nuq.packing_recorder import MIN_SIZE, Recorder


class Interrupted(nn.Module):
    """Ctrl-C at the innermost of ``depth`` passes inside each other."""

    def forward(self, x: Tensor, depth: int) -> Tensor:
        if not depth:
            raise KeyboardInterrupt
        return self(x.exp(), depth - 1)


def interrupt(model: Interrupted, depth: int = 3) -> None:
    with pytest.raises(KeyboardInterrupt):
        model(torch.ones(100, requires_grad=True), depth)


def foreign() -> None:
    """A computation that is none of a model's; without hooks autograd lets a saved tensor go with its node, and keeps
    the tensor itself.
    """
    x = torch.ones(100, requires_grad=True)
    for _ in range(6):
        x = x.exp()


def open_hooks() -> bool:
    try:
        with torch.autograd.graph.disable_saved_tensors_hooks("open"):
            return False
    except RuntimeError:
        return True


def test_after_an_interrupted_pass_nothing_else_is_packed_and_the_hooks_close() -> None:
    model, pack = Interrupted(), Recorder()
    SavedTensors(model, pack, MIN_SIZE)
    for _ in range(2):
        interrupt(model)
    count = len(pack.given)
    foreign()
    foreign()
    assert len(pack.given) == count and not open_hooks()


@pytest.mark.parametrize("grad", [True, False])
def test_remove_closes_what_an_interrupted_pass_has_left(grad: bool) -> None:
    model, pack = Interrupted(), Recorder()
    saved = SavedTensors(model, pack, MIN_SIZE)
    interrupt(model)
    assert open_hooks()
    with torch.set_grad_enabled(grad):
        saved.remove()
    assert not open_hooks()


def test_a_pass_that_catches_an_interrupted_one_inside_goes_on() -> None:
    class Catches(Interrupted):
        def forward(self, x: Tensor, depth: int) -> Tensor:
            if depth < 5:
                return super().forward(x, depth)
            interrupt(self, 1)  # packs one tensor, leaves two passes
            return x.exp().sin().cos().tan()

    model, pack = Catches(), Recorder()
    SavedTensors(model, pack, MIN_SIZE)
    for _ in range(2):
        pack.given.clear()
        model(torch.ones(100, requires_grad=True), 5)
        assert len(pack.given) == 1 + 2  # the first two tensors that follow close the passes and stay as they are
        assert not open_hooks()


def test_an_interrupted_pass_lets_go_of_its_input() -> None:
    model = Interrupted()
    SavedTensors(model, Recorder(), MIN_SIZE)
    x = torch.ones(100)
    with pytest.raises(KeyboardInterrupt):
        model(x, 0)
    seen = weakref.ref(x)
    del x
    foreign()
    gc.collect()
    assert seen() is None


def test_interrupts_caught_inside_a_pass_leave_nothing() -> None:
    class Catches(Interrupted):
        def forward(self, x: Tensor, depth: int) -> Tensor:
            if depth < 5:
                return super().forward(x, depth)
            interrupt(self, 0)
            return x  # saves nothing, so nothing has called their hooks

    model = Catches()
    saved = SavedTensors(model, Recorder(), MIN_SIZE)
    for _ in range(3):
        model(torch.ones(100), 5)
        assert not open_hooks() and not saved._passes.open


def test_a_pass_whose_pre_hook_raises_closes_nobody_elses_hooks() -> None:
    def bad(module: nn.Module, args: object) -> None:
        raise ValueError

    model = Interrupted()
    SavedTensors(model, Recorder(), MIN_SIZE)
    interrupt(model)
    foreign()
    model.register_forward_pre_hook(bad, prepend=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x), pytest.raises(ValueError):
        model(torch.ones(100), 0)
    assert not open_hooks()


def test_a_copy_is_open_in_no_pass() -> None:
    model = nn.Linear(2, 2)
    saved = SavedTensors(model, Recorder(), MIN_SIZE)
    model(torch.ones(50, 2))
    assert saved._passes.__dict__ == {"open": []}
    for copied in (copy.deepcopy(saved), pickle.loads(pickle.dumps(saved))):
        assert not copied._passes.__dict__


def test_threads_close_their_own() -> None:
    model, pack = Interrupted(), Recorder()
    SavedTensors(model, pack, MIN_SIZE)
    interrupt(model)
    count: list[int] = []

    def other() -> None:
        interrupt(model, 1)
        count.append(len(pack.given))
        foreign()
        count.append(len(pack.given))

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert count[0] == count[1] > 0 and open_hooks()
    foreign()
    assert not open_hooks()
