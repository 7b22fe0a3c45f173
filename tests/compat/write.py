"""``python -m tests.compat.write FOLDER``: writes what ``3902daa2/`` holds, with the code of today, to a new folder.

This file is kept to say how the bytes were made; the folder of a commit is never written again.  Paths are those of
``/tmp/nuq-compat`` and the host is called node1, so that no file tells of the machine it was made on.
"""

from __future__ import annotations

import io
import os
import pickle
import platform
import shutil
import socket
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict_saver import save

import nuq
from grid.engine.states.runs import named, prepare, runs_of
from nuq.coding import entropy, index_coding
from nuq.compressors.compressor import Compressor
from nuq.compressors.feedback import CompressedDifferences, ErrorFeedback, MomentumCorrection, Scaled
from nuq.compressors.message import Message
from nuq.exchange.compressor_map import CompressorMap
from nuq.kernels.spec import Key
from nuq.registry import METHODS, method
from nuq.settings.layers import parsed
from nuq.testing.cases import build
from tests.compat import trainings
from tests.compat.trainings import STEPS, STOPPED, numbers
from tests.grid.bench import bench
from tests.nuq.ranks import Ranks
from tests.train.emitted import in_this_process, told_to_stop_at, words

PLACE, HOST = Path("/tmp/nuq-compat"), "node1"

# --- messages -----------------------------------------------------------------------------------------------------

VARIANTS = (
    *("qsgdinf dither=subtractive", "qsgd rotation=hadamard", "qsgd form=magnitude"),
    *("trn coding=huffman", "trn coding=huffman dither=subtractive", "trn coding=rans"),
    *("alq norm=quantile", "alq_n norm=linf coding=rans", "nuqsgd rotation=hadamard coding=huffman"),
    *("alq rounding=stochastic", "qsgdinf bits=1", "qsgdinf bits=8", "optimal num_levels=5"),
    *("ecdq rotation=hadamard", "ecdq dither=none coding=huffman", "natural rounding=stochastic"),
    *(
        "eden scale=mse",
        "eden rotations=1",
        "eden levels=uniform coding=rans",
        "eden levels=uniform coding=huffman bits=1",
    ),
    *("eden bits=4", "drive scale=mse", "sign scale=rms"),
    *("block8 rounding=stochastic", "block8 table=linear", "fp8 table=e5m2 rounding=stochastic"),
    *("fp8 scale=none", "fp8 scale=none table=e5m2", "fp16 scale=none", "bf16 coding=rans", "fp16 coding=rans"),
    *("bf16 rounding=stochastic", "smaq samples=16", "smaq zeros=coded", "smaq bits_inlier=3 bits_outlier=6"),
    *("s2fp8 rounding=stochastic", "nnw_bdi bits=5", "nnw_bdi rounding=stochastic"),
    *(
        "topk bucket_size=0 ratio=0.3 values=fp16 indices=bitmap",
        "topk bucket_size=0 ratio=0.1 indices=delta",
        "topk bucket_size=0 ratio=0.05 indices=int32",
    ),
    *("topk bucket_size=0 ratio=0.2 values=2bit", "topk ratio=0.25", "topk bucket_size=0 ratio=0.02 selection=sampled"),
    *("randomk bucket_size=0 ratio=0.2", "randomk ratio=0.5 scaled=false values=fp16"),
    *("thresholdv threshold=0.01 values=fp16", "adaptive_threshold bucket_size=0", "dgc ratio=0.05 dense_1d=false"),
    *("casq clusters=3 cells=4 values=fp16 coding=rans", "sketchml rows=0 coding=rans", "sketchml rows=1 groups=3"),
    *("demo k=4 chunk=16 values=fp16", "demo scope=model chunk=7 k=2 indices=int32"),
    *("powersgd dense_1d=false", "powersgd rank=1 values=fp16", "powersgd scope=model rank=3"),
    *("atomo svd_rank=1", "atomo svd_rank=1 bits=4", "atomo svd_rank=2 svd=randomized matrix=pairs"),
    *("atomo atoms=entries ratio=0.1", "atomo svd_rank=1 bits=1"),
)
LONG = ("trn coding=huffman", "qsgdinf dither=subtractive coding=rans", "qsgdinf coding=rans bits=2")


def vectors() -> dict[str, torch.Tensor]:
    """What is encoded: a matrix, and vectors that lead to every form of a body."""
    few, most, clustered = torch.zeros(3000), numbers(1600, 12), torch.zeros(30_000)
    few[::97] = numbers(31, 11)
    most[::400] = 0
    gaps = 1 + (torch.arange(1500) % 7 == 0) * 90 + (torch.arange(1500) > 1000) * 12
    clustered[gaps.cumsum(0)[:1400]] = 0.5
    return {
        "matrix": numbers(320, 9).view(20, 16),
        "vector": numbers(300, 10),
        "few": few,
        "most": most,
        "clustered": clustered,
        "long": numbers(17_000, 13) / 16,
        "constant": torch.full((70,), -2.5),
        "zeros": torch.zeros(70),
        "none": torch.zeros(0),
        "huge": numbers(130, 14) * 2.0**120,
    }


def memories(inner: Compressor) -> dict[str, Compressor]:
    """The wrappers that write a factor before a message."""
    sizes = {"x": 320}
    return {
        "error": ErrorFeedback(inner, sizes, decay=0.75),
        "momentum": MomentumCorrection(inner, sizes, momentum=0.5),
        "ef21": CompressedDifferences(inner, sizes),
        "scaled": Scaled(inner, sizes),
    }


def messages() -> dict[str, np.ndarray]:
    """Messages and what they decode to, by ``METHOD SETTINGS: VECTOR``; payloads and markers beside them."""
    given, found = vectors(), dict[str, np.ndarray]()

    def add(name: str, compressor: Compressor, message: Message) -> None:
        assert f"{name}/message" not in found, name
        found[f"{name}/message"] = message.to_bytes().numpy()
        found[f"{name}/decoded"] = compressor.decode(message).numpy()

    def encode(case: str, vector: str) -> None:
        compressor = build(case)
        x = given[vector] if compressor.shaped else given[vector].view(-1)
        add(f"{case}: {vector}", compressor, compressor.encode(x, Key(7, 2, 1, "x", workers=3)))

    for case in (*METHODS, *VARIANTS):
        encode(case, "matrix")
    for case in METHODS:
        for vector in ("constant", "zeros", "none"):
            encode(case, vector)
    for case in LONG:
        encode(case, "long")
    for case in ("nonzero", "sketchml", "smaq", "bf16 coding=rans", "atomo atoms=entries", "casq"):
        encode(case, "few")
    for case in ("alq", "eden", "natural", "smaq", "s2fp8", "fp16", "qsgdinf rotation=hadamard", "nonzero values=fp16"):
        encode(case, "huge")
    for case in ("nonzero", "nonzero indices=bitmap"):
        encode(case, "most")
    encode("nonzero values=fp16", "clustered")
    encode("nonzero indices=delta", "few")
    encode("eden", "few")
    encode("dgc", "vector")
    for name in ("topk bucket_size=0 ratio=0.1", "qsgdinf bits=2", "sign scale=rms"):
        for kind, around in memories(build(name)).items():
            for step in (0, 1):
                message = around.encode(given["matrix"].view(-1), Key(7, step, 1, "x", workers=3))
            add(f"{name} inside {kind}: matrix", around, message)
    return found | payloads()


LAYERS = ["second.* = topk ratio=0.1 scope=tensor", "third = bf16 scope=model"]
SHAPES = {"first": (24, 20), "second.weight": (16, 24), "second.bias": (16,), "third": (50,), "small": (3,)}


def payloads() -> dict[str, np.ndarray]:
    """Frames of several messages, of fixed lengths and others, and a marker in place of each."""
    found = {}
    for name in ("alq", "qsgdinf"):
        layers = parsed(LAYERS) if name == "alq" else []
        compressors = CompressorMap(name, method(name).settings(bucket_size=64), 8, layers)
        compressors.assign(SHAPES)
        layout = compressors.arrange(SHAPES, lambda parameter, joined: parameter == "small")
        codec = compressors.codec
        vector = numbers(layout.num_coordinates, 21)
        total = torch.zeros(layout.num_coordinates)
        payload = codec.encode(vector, layout, Key(7, 2, 1, workers=3))
        codec.add(payload, layout, total)
        found[f"{name}/frame"], found[f"{name}/total"] = payload.numpy(), total.numpy()
        found[f"{name}/places"] = np.array([[own.start, own.size] for own in layout.segments])
        vector[layout.segments[1].start] = torch.nan
        found[f"{name}/marker"] = codec.encode_or_mark(vector, layout, Key(7, 2, 1, workers=3)).numpy()
    return found


def write_messages(folder: Path) -> None:
    """All messages; every tag and every form of coded codes and indices is among them."""
    forms: dict[str, set[int]] = {"entropy": set(), "index": set()}

    @contextmanager
    def seen(module: Any, name: str) -> Iterator[None]:
        encode = module.encode

        def watched(*given: Any, **how: Any) -> Any:
            coded = encode(*given, **how)
            if len(coded):
                forms[name].add(int(coded[0]))
            return coded

        with patch.object(module, "encode", watched):
            yield

    with seen(entropy, "entropy"), seen(index_coding, "index"):
        found = messages()
    assert forms == {"entropy": set(range(5)), "index": set(range(5))}, forms
    tags = sorted({row[4:8].tobytes().decode() for name, row in found.items() if name.endswith("/message")})
    print(len(found), "arrays of messages;", *tags)
    np.savez_compressed(folder / "messages.npz", **found)  # type: ignore[arg-type]


# --- states -------------------------------------------------------------------------------------------------------


def saved(value: Any) -> bytes:
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


def hook_states(group: dist.ProcessGroup, settings: dict[str, Any], pickled: bool) -> dict[str, bytes]:
    """The state, its pickle and the weights in the middle, and the weights at the end, as a rank has them."""
    rank, model = dist.get_rank(group), trainings.hooked(group, settings, None)
    state = trainings.new_state(model, settings)
    model.register_comm_hook(state, nuq.compress_hook)
    trainings.descend(model, rank, range(STOPPED))
    found = {f"state{rank}.pt": saved(state.state_dict())}
    if pickled:
        found[f"state{rank}.pickle"] = pickle.dumps(state)
    found[f"weights{rank}.pt"] = saved(trainings.weights(model.module))
    trainings.descend(model, rank, range(STOPPED, STEPS))
    found[f"end{rank}.pt"] = saved(trainings.weights(model.module))
    state.close()
    return found


def fsdp_states(group: dist.ProcessGroup, settings: dict[str, Any], folder: str) -> dict[str, bytes]:
    rank, (model, compression) = dist.get_rank(group), trainings.compressed(group, settings, None)
    trainings.descend(model, rank, range(STOPPED))
    found = {f"weights{rank}.pt": saved(trainings.weights(model))}
    save({"compression": compression}, checkpoint_id=folder, process_group=group)
    trainings.descend(model, rank, range(STOPPED, STEPS))
    return found | {f"end{rank}.pt": saved(trainings.weights(model))}


def loop_states(group: dist.ProcessGroup, settings: dict[str, Any]) -> dict[str, bytes]:
    rank, (model, loop) = dist.get_rank(group), trainings.looped(group, settings)
    trainings.local_steps(model, loop, rank, range(STOPPED))
    found = {f"state{rank}.pt": saved(loop.state_dict()), f"weights{rank}.pt": saved(trainings.weights(model))}
    trainings.local_steps(model, loop, rank, range(STOPPED, STEPS))
    found[f"end{rank}.pt"] = saved(trainings.weights(model))
    loop.close()
    return found


def write_states(folder: Path) -> None:
    ranks = Ranks(2)
    written: dict[str, bytes] = {}
    try:
        for name, settings in trainings.HOOKS.items():
            for found in ranks.run(hook_states, settings, name in trainings.PICKLED):
                written |= {f"{name}/{file}": data for file, data in found.items()}
        for name, settings in trainings.LOOPS.items():
            for found in ranks.run(loop_states, settings):
                written |= {f"{name}/{file}": data for file, data in found.items()}
        for name, settings in trainings.FSDP.items():
            with tempfile.TemporaryDirectory(prefix="nuq-compat") as place:
                for found in ranks.run(fsdp_states, settings, place):
                    written |= {f"{name}/{file}": data for file, data in found.items()}
                written |= {f"{name}/dcp/{path.name}": path.read_bytes() for path in Path(place).iterdir()}
    finally:
        ranks.stop()
    for name in [name for name in written if name.endswith("1.pt") and "state" not in name]:
        first = name.replace("1.pt", "0.pt")
        if written[name] == written[first]:  # as ranks have it that exchange every gradient
            written[name.replace("1.pt", ".pt")] = written.pop(first)
            del written[name]
    pack(folder / "states.zip", written)


# --- runs and submissions -----------------------------------------------------------------------------------------

SWEEP = '''from grid.engine.sweep import Sweep, point, product, union

SHARED = {
    **{"data": "digits", "model": "logreg", "workers": 2, "batch_size": 8, "device": "cpu", "log.csv": True},
    **{"steps": 12, "eval_every": 4, "log_every": 1, "checkpoint_every": 3, "exchange.collective": "two_stage"},
}
MEMORY = {"feedback.kind": "error", "feedback.both": True}
LEVELS = {"method.bucket_size": 64, "method.update_at": [2, 9], "method.num_samples": 4}


def digits() -> Sweep:
    """Two methods on digits."""
    methods = union(
        point("ALQ", method="alq", **LEVELS, **MEMORY), point("TopK", method="topk", **{"method.ratio": 0.1})
    )
    resources = {"gpus": 0, "cpus": 1, "mem": "1G", "time": "1:00:00"}
    return Sweep(product(point("", **SHARED), methods), seeds=(1, 2), folder="digits", resources=resources)
'''
STOPPED_RUN, STEPS_RUN = 7, 12  # the checkpoint is of this step, in the middle of gathering statistics


def pack(path: Path, files: dict[str, bytes]) -> None:
    """An archive whose bytes depend on the files alone."""
    with zipfile.ZipFile(path, "x", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, data in sorted(files.items()):
            archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED, 9)


def below(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@contextmanager
def elsewhere() -> Iterator[None]:
    """This process on a host of another name, in PLACE."""
    before = Path.cwd()
    PLACE.mkdir()
    try:
        os.chdir(PLACE)
        with patch.object(socket, "gethostname", lambda: HOST), patch.object(platform, "node", lambda: HOST):
            yield
    finally:
        os.chdir(before)
        shutil.rmtree(PLACE)


def write_runs(folder: Path) -> None:
    """Two runs that were told to stop in the middle, and the same ones that nobody stopped."""
    found: dict[str, bytes] = {}
    for stopped in (True, False):
        with elsewhere():
            (PLACE / "sweep.py").write_text(SWEEP)
            _, experiments = named(str(PLACE / "sweep.py"), "digits", "1")
            runs = runs_of(experiments, PLACE)
            prepare(runs)
            for run in runs:
                path = PLACE / run.run_dir
                with told_to_stop_at(STOPPED_RUN) if stopped else nullcontext():
                    assert in_this_process(words(path)) == (75 if stopped else 0)
                where = "stopped" if stopped else "done"
                files = {f"{where}/{path.name}/{name}": data for name, data in below(path).items()}
                found |= {name: data for name, data in files.items() if stopped or "previous" not in name}
    pack(folder / "runs.zip", {"sweep.py": SWEEP.encode(), **found})


def write_submission(folder: Path) -> None:
    """The records of a sweep that was submitted, whose second run diverged, and of a plan for one seed more.

    Its runs are the stand-in's of ``tests/grid/fake.py``.
    """
    host = socket.gethostname()
    with elsewhere(), bench(PLACE, NoCapture()) as here:
        here.behave({2: 3})
        assert here("plan").code == here("submit").code == 0
        here.wait()
        here.age(60)
        assert here("status").code in (0, 1)
        here.sweep(seeds=(1, 2, 3, 4))
        assert here("plan").code == 0
        named_so, called = f'"host": "{host}"'.encode(), f'"host": "{HOST}"'.encode()
        files = {f"checkout/{name}": data.replace(named_so, called) for name, data in below(here.root).items()}
        pack(folder / "submission.zip", {"mine.py": here.family.read_bytes(), **files})


class NoCapture:
    """In pytest's capsys' place."""

    def readouterr(self) -> SimpleNamespace:
        return SimpleNamespace(out="", err="")


def main(folder: Path) -> None:
    folder.mkdir()  # a new one
    (folder / "arithmetic").write_text(trainings.arithmetic())
    write_messages(folder)
    write_states(folder)
    write_runs(folder)
    write_submission(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
