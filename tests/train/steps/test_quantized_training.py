"""Quantized training in a run: resumed, evaluated and logged; what does not go together is refused.

Off, nothing moves.
"""

import re
import struct
from pathlib import Path

import pytest
import torch
from tensorboardX.proto import event_pb2

from settings import resolving, run_identity
from settings.command_line import Evaluation
from tests.train.steps.test_resume import attempt
from tests.train.trainings import digests
from train.evaluator import FOLDER, Evaluator
from train.launch import launch
from train.steps.trainer import Trainer

BASE = {
    "data": "digits",
    "model": "cnn",
    "batch_size": 8,
    "steps": 8,
    "workers": 2,
    "eval_every": 4,
    "eval_train": False,
}
BASE |= {"checkpoint_every": 3, "log_every": 2, "method": "smaq", "tensors.all": "smaq", "tensors.min_size": 64}
EVERYTHING = {"optim": "adamw", "tensors.master": True, "tensors.inference": True, "compute.accumulate": 2}


def config(**more) -> dict:
    return resolving.resolve(BASE | more)


def logged(run_dir: Path) -> dict[str, list[tuple[int, float]]]:
    found: dict[str, list[tuple[int, float]]] = {}
    for path in sorted(run_dir.glob("events*")):
        content = path.read_bytes()
        while content:  # length, its checksum, the event, its checksum
            (size,) = struct.unpack_from("<Q", content)
            event = event_pb2.Event.FromString(content[12 : 12 + size])  # type: ignore[attr-defined]
            content = content[16 + size :]
            for value in event.summary.value:
                number = value.histo.num if value.HasField("histo") else value.simple_value
                found.setdefault(value.tag, []).append((event.step, number))
    return found


def test_an_evaluator_sees_what_the_run_sees(tmp_path):
    settings = config(**EVERYTHING, run_dir=str(tmp_path))
    assert launch(settings) == 0
    (tmp_path / FOLDER).mkdir()
    evaluator = Evaluator(Evaluation(run=str(tmp_path), once=True, splits="test"))
    evaluator.newest()
    assert evaluator.results[8]["Vloss"] == pytest.approx(dict(logged(tmp_path)["Vloss"])[8], rel=1e-6)
    assert evaluator.tensors is not None
    evaluator.tensors.remove()
    evaluator.tensors = None
    evaluator.newest()
    assert evaluator.results[8]["Vloss"] != pytest.approx(dict(logged(tmp_path)["Vloss"])[8], rel=1e-6)


def test_ratios_and_histograms_are_logged(tmp_path):
    attempt(config(**{"tensors.histogram_every": 4}), tmp_path)
    found = logged(tmp_path)
    tags = {"optimizer_weight", "optimizer_grad", "optimizer_momentum", "forward_autograd", "backward_autograd"}
    names = {"compression_ratio", *(f"compression_ratio_{tag}" for tag in tags)}
    assert {name for name in found if name.startswith("compression")} == names
    for name in names:
        assert [step for step, _ in found[name]] == [2, 4, 6, 8]
        assert all(3 < value < 12 for _, value in found[name])
    kinds = ("weights", "gradients", "activations", "activation_gradients", "moments")
    for kind in kinds:
        assert [step for step, _ in found[f"tensors/{kind}"]] == [0, 4]
        assert {f"tensors/{kind}_mean", f"tensors/{kind}_std"} <= set(found)
    sizes = [p.numel() for p in Trainer(config(), device=torch.device("cpu")).parameters.values() if p.numel() >= 64]
    assert found["tensors/weights"][0][1] == found["tensors/gradients"][0][1] == sum(sizes)


def test_one_workers_passes_count_however_many_there_are(tmp_path):
    """The ratio that is logged weighs activations against gradients: those of one worker's step, wherever the others
    are.
    """
    counts = []
    for workers in (1, 3):
        trainer = attempt(
            config(workers=workers, steps=2, **{"measure.every": 1, "measure.num_samples": 2}), tmp_path / f"{workers}"
        )
        assert trainer.tensors is not None
        counts.append({kind: before for kind, (before, _) in trainer.tensors.counts.last.items()})
        histograms = logged(tmp_path / f"{workers}")
        counts[-1] |= {
            f"{kind} in histograms": histograms[f"tensors/{kind}"][0][1]
            for kind in ("activations", "activation_gradients")
        }
    assert counts[0] == counts[1] and all(counts[0].values())


def test_momentum_that_is_not_there_is_no_part_of_all(tmp_path):
    trainer = attempt(config(**{"optim.momentum": 0.0, "steps": 1}), tmp_path)
    assert trainer.tensors is not None and set(trainer.tensors.formats) == {
        "weights",
        "activations",
        "activation_gradients",
    }


def test_a_checkpoint_from_before_its_seed_and_formats_were_saved_is_resumed(tmp_path):
    trainer = Trainer(config(), device=torch.device("cpu"))
    state = trainer.state_dict()
    state["tensors"] = {key: value for key, value in state["tensors"].items() if key not in ("seed", "formats")}
    trainer.load_state_dict(state)


def test_histograms_come_with_measurements_and_change_no_bit(tmp_path):
    plain = attempt(config(), tmp_path / "plain")
    measured = attempt(config(**{"measure.every": 4, "measure.num_samples": 2}), tmp_path / "measured")
    assert [step for step, _ in logged(tmp_path / "measured")["tensors/moments"]] == [0, 4]
    assert digests(plain) == digests(measured)
    assert "tensors/moments" not in logged(tmp_path / "plain")
    assert logged(tmp_path / "plain")["compression_ratio"] == logged(tmp_path / "measured")["compression_ratio"]


def test_off_nothing_moves(tmp_path):
    off = {f"tensors.{kind}": "fp32" for kind in ("weights", "activations", "activation_gradients", "moments")}
    plain = {key: value for key, value in BASE.items() if not key.startswith("tensors")}
    runs = [
        attempt(resolving.resolve(plain), tmp_path / "plain"),
        attempt(resolving.resolve(plain | off), tmp_path / "off"),
    ]
    assert digests(runs[0]) == digests(runs[1]) and runs[0].tensors is runs[1].tensors is None
    assert "tensors" not in runs[0].state_dict() and "compression_ratio" not in logged(tmp_path / "plain")
    assert "tensors" not in run_identity.result_settings(resolving.resolve(plain))


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"tensors.weights": "smak"}, "tensors.weights='smak': unknown format 'smak'; did you mean 'smaq'"),
        ({"tensors.all": "alq"}, "tensors.all='alq': alq depends on more than the tensor"),
        (
            {"tensors.weights": "fp32", "tensors.master": True},
            "tensors.master=True: has no effect without a format in tensors.weights",
        ),
        ({"tensors.all": "", "tensors.min_size": 7}, "tensors.min_size=7: has no effect without a format"),
        (
            {"tensors.moments": "bf16", "optim.momentum": 0.0},
            "tensors.moments='bf16': has no effect where optim.momentum=0.0 keeps none",
        ),
        (
            {"tensors.all": "smaq", "optim": "adam", "optim.beta1": 0.95, "optim.beta2": 0.8},
            "tensors.moments='smaq': optim.beta1=0.95 and optim.beta2=0.8 let a mean outlive the moment that it is "
            "divided by",
        ),
        (
            {"tensors.moments": "bf16", "method": "dgc"},
            "tensors.moments='bf16': has no effect where the workers keep the momentum",
        ),
        ({"compute.compile": True}, "tensors.activations='smaq': does not go with compute.compile=True"),
        (
            {"compute.cuda_graphs": True, "tensors.activations": "fp32"},
            "tensors.activation_gradients='smaq': does not go with",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(more, said):
    with pytest.raises(ValueError, match=re.escape(said)) as told:
        resolving.resolve(BASE | more)
    assert "\n" not in str(told.value)


@pytest.mark.slow
def test_a_fine_format_with_loss_scaling_and_bf16_trains(tmp_path):
    for precision in ("bf16", "fp16"):
        trainer = attempt(config(**{"compute.precision": precision, "steps": 4}), tmp_path / precision)
        assert all(bool(torch.isfinite(p).all()) for p in trainer.parameters.values())
