"""States of earlier code load, and the trainings that they are of end with the bits of those that nobody stopped.

The arithmetic beside the exchange is element by element (``trainings.py``).  A memory's messages have a factor that is
made of scalar products, whose last bits depend on the processor.  So the recorded bits are demanded where this
machine's arithmetic is that of the record, and elsewhere the same numbers within 1e-5.  (A lost residual moves them by
.1.)
"""

from __future__ import annotations

import io
import pickle
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict_loader import load

import nuq
from tests.compat import WRITTEN, trainings
from tests.compat.trainings import STEPS, STOPPED


def kept(name: str, file: str, rank: int, kind: str = "pt") -> bytes:
    """A rank's file, or that of all ranks."""
    with zipfile.ZipFile(WRITTEN / "states.zip") as archive:
        own = f"{name}/{file}{rank}.{kind}"
        return archive.read(own if own in archive.namelist() else f"{name}/{file}.{kind}")


def tensors(name: str, file: str, rank: int) -> dict[str, Any]:
    return torch.load(io.BytesIO(kept(name, file, rank)), weights_only=True)


def apart(model: torch.nn.Module, name: str, rank: int) -> float:
    """The largest difference from the weights at the end that was recorded."""
    expected, found = tensors(name, "end", rank), trainings.weights(model)
    assert expected.keys() == found.keys()
    return max(float((found[key] - weights).abs().max()) for key, weights in expected.items())


def assert_ends(model: torch.nn.Module, name: str, rank: int) -> None:
    assert apart(model, name, rank) <= last_bits()


def last_bits() -> float:
    """How far ends may lie apart: not at all on a processor with the arithmetic of the one that wrote the files."""
    return 0.0 if (WRITTEN / "arithmetic").read_text() == trainings.arithmetic() else 1e-5


def hook_goes_on(group: dist.ProcessGroup, name: str, settings: dict[str, Any], way: str) -> None:
    rank = dist.get_rank(group)
    model = trainings.hooked(group, settings, tensors(name, "weights", rank))
    if way == "pickle":
        state = pickle.loads(kept(name, "state", rank, "pickle"))
        state.attach(model)
    else:
        state = trainings.new_state(model, settings)
        state.load_state_dict(tensors(name, "state", rank))
    assert state.step == STOPPED
    model.register_comm_hook(state, nuq.compress_hook)
    trainings.descend(model, rank, range(STOPPED, STEPS))
    assert_ends(model.module, name, rank)
    state.close()


@pytest.mark.parametrize(
    ("name", "way"),
    [*((name, "state_dict") for name in trainings.HOOKS), *((name, "pickle") for name in trainings.PICKLED)],
)
def test_a_hook_goes_on(name: str, way: str, ranks: Any) -> None:
    ranks.run(hook_goes_on, name, trainings.HOOKS[name], way, world=2)


def fsdp_goes_on(group: dist.ProcessGroup, name: str, settings: dict[str, Any], folder: Path) -> float:
    rank = dist.get_rank(group)
    model, compression = trainings.compressed(group, settings, tensors(name, "weights", rank))
    load({"compression": compression}, checkpoint_id=folder, process_group=group)
    trainings.descend(model, rank, range(STOPPED, STEPS))
    return apart(model, name, rank)


@pytest.mark.parametrize("name", trainings.FSDP)
def test_fsdp2_goes_on(name: str, ranks: Any, tmp_path: Path) -> None:
    """Of memories their mean is saved, with which messages have other bits."""
    with zipfile.ZipFile(WRITTEN / "states.zip") as archive:
        for file in archive.namelist():
            if file.startswith(f"{name}/dcp/"):
                (tmp_path / Path(file).name).write_bytes(archive.read(file))
    first, second = ranks.run(fsdp_goes_on, name, trainings.FSDP[name], tmp_path, world=2)
    assert first == second <= (0.1 if "average" in name else last_bits())


def loop_goes_on(group: dist.ProcessGroup, name: str, settings: dict[str, Any]) -> None:
    rank = dist.get_rank(group)
    model, loop = trainings.looped(group, settings)
    model.load_state_dict(tensors(name, "weights", rank))  # building a loop gave it the first rank's
    loop.load_state_dict(tensors(name, "state", rank))
    trainings.local_steps(model, loop, rank, range(STOPPED, STEPS))
    assert_ends(model, name, rank)
    loop.close()


@pytest.mark.parametrize("name", trainings.LOOPS)
def test_an_outer_loop_goes_on(name: str, ranks: Any) -> None:
    ranks.run(loop_goes_on, name, trainings.LOOPS[name], world=2)


def test_the_states_hold_what_they_are_kept_for() -> None:
    """Both memories, estimates and their means, momenta, factors, clusters, and a mean on its way."""
    states = {name: tensors(name, "state", 0) for name in (*trainings.HOOKS, *trainings.LOOPS)}
    memories = {name: states[name]["coders"].get("memories", []) for name in states}
    assert [len(memories[name]) for name in ("both", "ef21, both", "dgc", "alq")] == [2, 2, 1, 0]
    assert memories["dgc"][0]["kinds"] == ["residuals", "momenta"]
    assert memories["ef21"][0]["kinds"] == ["estimates"] and memories["ef21"][0]["means"]
    assert any(key.startswith("start of ") for key in states["powersgd"]["coders"]["compressor"])
    assert states["casq"]["coders"]["compressor"]["by_worker"]
    assert states["outer, pending"]["pending"] and not states["outer, topk"]["pending"]
    assert states["layers"]["coders"]["layers"]
