"""Files with a fitting checksum that no run has saved: one sentence, of those who go on from them and of those who
evaluate them.
"""

import math

import torch

from nuq.kernels.statistics import NUM_BINS
from settings import command_line, resolving
from tests.tiers import few
from train import evaluator
from train.launch import launch
from train.process import checkpoint
from train.steps.trainer import Totals

BASE = {
    "data": "digits",
    "model": "cnn",
    "method": "qsgdinf",
    "batch_size": 8,
    "steps": 2,
    "eval_every": 0,
    "eval_train": False,
}

ODD = {  # of the shape that the model has
    "complex64": torch.zeros(16, 1, 3, 3, dtype=torch.complex64),
    "float16": torch.zeros(16, 1, 3, 3, dtype=torch.float16),
    "sparse_coo float32": torch.zeros(16, 1, 3, 3).to_sparse(),
    "meta float32": torch.zeros(16, 1, 3, 3, device="meta"),
}


@few(
    2,
    ("values", "words"),
    [
        ({"step": -4}, "its step is -4; legal: 0 to 2"),
        ({"step": 3}, "its step is 3; legal: 0 to 2"),
        ({"step": 10**30}, f"its step is {10**30}; legal: 0 to 2"),
        ({"totals": {"bytes": "many"}}, "its totals.bytes is 'many', which is no number from 0 on"),
        ({"totals": {"update_s": math.nan}}, "its totals.update_s is nan, which is no number from 0 on"),
        (
            {"totals": {"update_s": 10**400}},
            "its totals.update_s is an integer of 1329 bits, which is no number from 0",
        ),
        (
            {"totals": {"measure_s": 2**63}},
            f"its totals.measure_s is {2**63}, which is no number from 0 on, below 2^63",
        ),
        ({"totals": {"measure_s": math.inf}}, "its totals.measure_s is inf, which is no number from 0"),
        ({"totals": {"bytes": True}}, "its totals.bytes is True, which is no number from 0 on"),
        ({"totals": {"bytes": 1, "update_s": 0}}, "it has no totals.measure_s"),
        ({"totals": {**vars(Totals()), "miles": 1}}, "its totals.miles is unknown to this run"),
        ({"totals": 3}, "its totals is 3, where this run has a dict"),
        ({"model": 3}, "its model is 3, where this run has a dict"),
        ({"model": {}}, "it has no model.conv1.weight"),
        ({"model": {"conv1.weight": 1}}, "its model.conv1.weight is 1, where this run has float32[16, 1, 3, 3]"),
        *(
            ({"model": {"conv1.weight": odd}}, f"its model.conv1.weight is {words}[16, 1, 3, 3], where this run")
            for words, odd in ODD.items()
        ),
        ({"model": {"conv1.weight": torch.zeros(2, 3)}}, "its model.conv1.weight is float32[2, 3], where this run"),
    ],
)
def test_odd_contents_are_told_in_one_sentence(values, words, tmp_path, capsys):
    settings = resolving.resolve(BASE | {"run_dir": str(tmp_path)})
    assert launch(settings) == 0
    (tmp_path / "status.json").unlink()
    state = torch.load(tmp_path / checkpoint.FILE, weights_only=True)
    checkpoint.save(tmp_path, state | values)
    capsys.readouterr()
    begins = (
        lambda: evaluator.run(command_line.evaluation({"run": str(tmp_path), "once": True})),
        lambda: launch(settings),
    )
    for begin in begins:
        assert begin() == 2
        (error,) = capsys.readouterr().err.splitlines()
        assert error.startswith(f"main.py: {tmp_path / checkpoint.FILE} does not fit this run (") and words in error
        assert ("move it away" in error) == (begin is not begins[0])


@few(
    2,
    ("values", "words"),
    [
        ({"step": True}, "its step is True; legal: int"),
        ({"evaluated": torch.zeros(2)}, "its evaluated is float32[2]; legal: bool"),
        ({"evaluated": "no"}, "its evaluated is 'no'; legal: bool"),
        ({"fingerprint": torch.zeros(3)}, "its fingerprint is float32[3]; legal: str"),
        ({"transform_input": torch.zeros(3)}, "its transform_input is float32[3]; legal: bool"),
    ],
)
def test_what_no_run_saves_is_damage_and_the_previous_is_gone_on_from(values, words, tmp_path, capsys):
    settings = resolving.resolve(BASE | {"run_dir": str(tmp_path)})
    assert launch(settings) == 0
    (tmp_path / "status.json").unlink()
    checkpoint.save(tmp_path, torch.load(tmp_path / checkpoint.FILE, weights_only=True) | values)
    elsewhere = command_line.evaluation({"run": str(tmp_path), "once": True})
    assert evaluator.run(elsewhere) == 0
    told = f"main.py: {tmp_path / checkpoint.FILE} is damaged ({words})"
    assert capsys.readouterr().err == f"{told}: evaluating {tmp_path / checkpoint.PREVIOUS}, of step 2\n"
    (tmp_path / checkpoint.PREVIOUS).unlink()
    assert (evaluator.run(elsewhere), launch(settings)) == (2, 2)
    assert capsys.readouterr().err == f"{told}\n{told}: move it away to start this run anew\n"


@few(
    3,
    ("settings", "damage", "words"),
    [
        ({"optim": "sgd"}, lambda saved: saved["optimizer"]["state"].pop(1), "it has no optimizer.state.1"),
        ({"optim": "sgd"}, lambda saved: saved["optimizer"]["state"].clear(), "it has no optimizer.state.0"),
        (
            {"optim": "sgd"},
            lambda saved: saved["optimizer"]["state"][3].pop("momentum_buffer"),
            "it has no optimizer.state.3.momentum_buffer",
        ),
        ({"optim": "adam"}, lambda saved: saved["optimizer"]["state"].pop(2), "it has no optimizer.state.2"),
        (
            {"optim": "signsgd", "optim.momentum": 0.9},
            lambda saved: saved["optimizer"]["state"].pop(0),
            "it has no optimizer.state.0",
        ),
        ({"method": "dgc"}, lambda saved: saved["optimizer"]["state"].pop(0), "it has no optimizer.state.0"),
        (
            {"workers": 2, "exchange.local_steps": 2},
            lambda saved: saved["local"]["workers"][1]["optimizer"].pop(1),
            "it has no local.workers.1.optimizer.1",
        ),
        (
            {"optim": "sgd"},
            lambda saved: saved["optimizer"]["state"][0]["momentum_buffer"].fill_(math.nan),
            "its optimizer.state.0.momentum_buffer has numbers that are not finite",
        ),
        ({}, lambda saved: saved["model"]["conv1.weight"].fill_(math.inf), "its model.conv1.weight has numbers that"),
        (
            {"compute.precision": "fp16"},
            lambda saved: saved["loss_scale"].update(value=0),
            "its loss_scale.value is 0; legal: a power of two, 1 to 1.67772e+07",
        ),
        (
            {"compute.precision": "fp16"},
            lambda saved: saved["loss_scale"].update(skipped=10**400),
            "its loss_scale.skipped is an integer of 1329 bits, which is no number",
        ),
    ],
)
def test_what_a_training_has_after_its_steps_is_there(settings, damage, words, tmp_path, capsys):
    settings = resolving.resolve(BASE | settings | {"run_dir": str(tmp_path)})
    assert launch(settings) == 0
    (tmp_path / "status.json").unlink()
    saved = torch.load(tmp_path / checkpoint.FILE, weights_only=True)
    damage(saved)
    checkpoint.save(tmp_path, saved)
    capsys.readouterr()
    assert launch(settings) == 2
    (error,) = capsys.readouterr().err.splitlines()
    assert error.startswith(f"main.py: {tmp_path / checkpoint.FILE} does not fit this run ({words}")


def test_an_optimizer_without_momentum_remembers_nothing(tmp_path):
    """Nor does one before its first step, whose state is as empty."""
    settings = resolving.resolve(BASE | {"run_dir": str(tmp_path), "optim.momentum": 0.0, "optim.nesterov": False})
    assert launch(settings) == 0
    (tmp_path / "status.json").unlink()
    saved = torch.load(tmp_path / checkpoint.FILE, weights_only=True)
    assert not saved["optimizer"]["state"]
    checkpoint.save(tmp_path, saved | {"step": 1})
    assert launch(settings) == 0


STEPS_TAKEN = "its optimizer has taken a number of steps below 0 or from 2^63 on"
MOMENT, SHAPE = "its optimizer.state.0.", "where this run has float32[16, 1, 3, 3]"


@few(
    2,
    ("name", "state", "words"),
    [
        ("sgd", {0: {"momentum_buffer": 3}}, f"{MOMENT}momentum_buffer is 3, {SHAPE}"),
        ("sgd", {0: {"momentum_buffer": None}}, f"{MOMENT}momentum_buffer is None, {SHAPE}"),
        ("sgd", {0: {"momentum_buffer": torch.zeros(2)}}, f"{MOMENT}momentum_buffer is float32[2], {SHAPE}"),
        ("sgd", {0: [1]}, "its optimizer.state.0 is a list, where this run has a dict"),
        ("sgd", [1], "its optimizer.state is a list, where this run has a dict"),
        (
            "adam",
            {0: {"step": torch.zeros(()), "exp_avg": ODD["complex64"]}},
            f"{MOMENT}exp_avg is complex64[16, 1, 3, 3], {SHAPE}",
        ),
        (
            "adam",
            {0: {"step": torch.zeros(()), "exp_avg": torch.zeros(16, 1, 3, 3)}},
            "it has no optimizer.state.0.exp_avg_sq",
        ),
        ("adam", {0: {"step": 3}}, f"{MOMENT}step is 3, where this run has float32[]"),
        (
            "adam",
            lambda whole: {**whole, 0: {**whole[0], "step": torch.tensor(-1.0)}},
            STEPS_TAKEN,
        ),
    ],
)
def test_an_odd_optimizer_is_told_in_one_sentence(name, state, words, tmp_path, capsys):
    settings = resolving.resolve(BASE | {"run_dir": str(tmp_path), "optim": name})
    assert launch(settings) == 0
    saved = torch.load(tmp_path / checkpoint.FILE, weights_only=True)
    state = state(saved["optimizer"]["state"]) if callable(state) else state
    for content in ({**saved["optimizer"], "state": state}, {**saved["optimizer"], "param_groups": []}):
        (tmp_path / "status.json").unlink()
        checkpoint.save(tmp_path, saved | {"step": 1, "optimizer": content})
        capsys.readouterr()
        assert launch(settings) == 2
        words, found = "its optimizer's groups are of other parameters", words
        assert (
            capsys.readouterr().err
            == f"main.py: {tmp_path / checkpoint.FILE} does not fit this run ({found}): move it away\n"
        )


@few(
    2,
    ("values", "words"),
    [
        ({}, "a state whose workers.memories[0].workers[1] has no residuals, momenta"),
        ({"conv1.weight": None}, "a state with residuals of 'conv1.weight'=None: must be a float32 tensor"),
        (
            {"conv1.weight": torch.full((144,), math.nan)},
            "a state with residuals of 'conv1.weight'='numbers that are infinite or none': must be finite",
        ),
        ("conv1.weight", "a state whose workers.memories[0].workers[1].residuals has none of 'conv1.weight'"),
        (1, "a state whose workers.memories[0].workers has no 1"),
        (
            {"conv1.weight": torch.zeros(2)},
            "residuals of 2 coordinates for 'conv1.weight', which has 144",
        ),
        (
            {"conv1.weight": ODD["complex64"].flatten()},
            "a state with residuals of 'conv1.weight'='complex64[144]': must be a float32 tensor",
        ),
    ],
)
def test_an_odd_memory_is_told_in_one_sentence(values, words, tmp_path, capsys):
    settings = resolving.resolve(BASE | {"run_dir": str(tmp_path), "method": "dgc", "workers": 2})
    assert launch(settings) == 0
    (tmp_path / "status.json").unlink()
    saved = torch.load(tmp_path / checkpoint.FILE, weights_only=True)
    memory = saved["workers"]["memories"][0]["workers"]
    if values == 1:
        del memory[1]
    elif isinstance(values, str):
        del memory[1]["residuals"][values]
    else:
        memory[1]["residuals"].update(values) if values else memory[1].clear()
    checkpoint.save(tmp_path, saved | {"step": 1})
    capsys.readouterr()
    assert launch(settings) == 2
    (error,) = capsys.readouterr().err.splitlines()
    assert error.startswith(f"main.py: {tmp_path / checkpoint.FILE} does not fit this run ({words}") and error.endswith(
        "): move it away"
    )


def test_odd_statistics_are_told_in_one_sentence(tmp_path, capsys):
    settings = resolving.resolve(BASE | {"run_dir": str(tmp_path), "method": "alq", "workers": 2})
    assert launch(settings) == 0
    (tmp_path / "status.json").unlink()
    saved = torch.load(tmp_path / checkpoint.FILE, weights_only=True)
    statistics = saved["workers"]["statistics"][1].view(torch.float64)
    statistics[-3 * NUM_BINS] = -1.0  # the first weight of the histogram
    checkpoint.save(tmp_path, saved | {"step": 1})
    capsys.readouterr()
    assert launch(settings) == 2
    (error,) = capsys.readouterr().err.splitlines()
    assert "does not fit this run (a worker's statistics have a weight below zero)" in error
