"""The costs of one worker from the logs of a process that hosts all of them, or one, against numbers by hand."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from analysis.logs.load import load
from analysis.run_costs import RunCosts, costs

TIMES = {"time/step_s": 1.0, "time/encode_s": 0.16, "time/decode_s": 0.2, "time/wire_s": 0.04}


def cost(collective: str, hosted: int = 4, workers: int = 4, means: float = 0.0) -> RunCosts:
    return RunCosts(collective, workers, hosted, 1, 1, 0.1, 8.0, 10.0, means, (np.array([10.0]), np.array([4.0])))


def test_of_a_simulated_run_the_workers_share_its_seconds(write_run: Callable[..., Path], tmp_path: Path) -> None:
    rows = [(tag, step, value) for step in (10, 20) for tag, value in TIMES.items()]
    updates = [("time/update_s", 10, 2.0), ("time/update_s", 20, 4.0)]  # .2 s of each step
    updates += [("time/optimizer_s", step, 0.08) for step in (10, 20)]
    rounds = {"exchange.local_steps": 5, "eval_every": 10}
    write_run("s", {"method": "alq", "workers": 4, **rounds}, [*rows, *updates, ("comm/bits_per_coordinate", 10, 3)])
    (own,) = costs(load(tmp_path / "runs", "s")).values()
    assert (own.collective, own.workers, own.hosted, own.every) == ("gather", 4, 4, 5)
    assert own.compute_s == pytest.approx((1 - 0.16 - 0.2 - 0.04 - 0.2 - 0.08) / 4 + 0.08)
    assert (own.encode_s, own.decode_s) == pytest.approx((0.8, 1.0))  # of an exchange: five steps' share
    assert own.update_s(np.array([0.0, 15.0])) == pytest.approx([0, 0.75])
    assert own.codec_s(4) == pytest.approx(0.8 / 4 + 1.0)
    assert own.codec_s(8) == pytest.approx(0.8 / 4 + 2.0)


def test_of_a_run_of_several_processes_the_seconds_are_one_worker_s(
    write_run: Callable[..., Path], tmp_path: Path
) -> None:
    rows = [(tag, 10, value) for tag, value in TIMES.items()]
    write_run("s", {"method": "supersgd", "workers": 4}, [*rows, ("comm/network_bytes", 10, 1e6)])
    (own,) = costs(load(tmp_path / "runs", "s")).values()
    assert (own.collective, own.hosted, own.compute_s) == ("ring", 1, pytest.approx(0.6))
    assert own.codec_s(64) == pytest.approx(0.36)
    assert own.copies(4) == 1.5


def test_on_sgd_s_trajectory_a_step_has_one_worker_s_gradient(write_run: Callable[..., Path], tmp_path: Path) -> None:
    settings = {"method": "alq", "workers": 4}
    write_run("s", settings, [("time/step_s", 10, 4.0)])
    for seed in (1, 2):
        of_sgd = {**settings, "seed": seed, "trajectory": "sgd", "measure.every": 10}
        write_run("s", of_sgd, [("time/step_s", 10, 1.2)])
    logs = load(tmp_path / "runs", "s")
    assert [own.compute_s for own in costs(logs).values()] == [1.0] * 3
    assert not costs(logs.keep([str(run) for run, of in logs.settings["trajectory"].items() if str(of) == "sgd"]))


@pytest.mark.parametrize("hosted", [1, 4])
def test_two_stages_encode_a_share_of_the_mean_and_decode_two_vectors(hosted: int) -> None:
    """With 1 s to encode a vector and 2 to decode one, whatever of it a process does."""
    encode_s, decode_s = hosted * (1 + 1 / 4), 2.0 * (hosted + 1)
    none = (np.array([]), np.array([]))
    own = RunCosts("two_stage", 4, hosted, 1, 1, 0.1, encode_s, decode_s, 0.2, none)
    assert own.codec_s(4) == pytest.approx(1 + 1 / 4 + 4)
    assert own.codec_s(16) == pytest.approx(1 + 1 / 16 + 4)
    # of 10 bytes 8 are the message and 2 the quarter of the means, of which a worker sends 3 / 4 and 3 times 2
    assert 10 * own.copies(4) == pytest.approx(8 * 3 / 4 + 2 * 3)


@pytest.mark.parametrize(
    ("settings", "collective"),
    [
        ({"method": "bf16"}, "ring"),
        ({"method": "bf16", "method.coding": "rans"}, "gather"),
        ({"method": "sgd"}, "alone"),
        ({"method": "powersgd", "exchange.collective": "auto"}, "power"),
        ({"method": "alq", "exchange.collective": "auto"}, "two_stage"),
        ({"method": "alq", "exchange.collective": "server"}, "server"),
    ],
)
def test_a_run_s_settings_and_means_tell_its_collective(
    settings: dict[str, str], collective: str, write_run: Callable[..., Path], tmp_path: Path
) -> None:
    rows = [("time/step_s", 10, 1.0), ("comm/bits_per_coordinate", 10, 4.0)]
    if collective in ("two_stage", "server"):
        rows.append(("comm/means_bits_per_coordinate", 10, 1.0))
    write_run("s", {"workers": 4, **settings}, rows)
    (own,) = costs(load(tmp_path / "runs", "s")).values()
    assert own.collective == collective
    assert own.means == (0.25 if collective in ("two_stage", "server") else 0)


def test_every_collective_has_its_copies_and_rounds() -> None:
    told = {name: (cost(name).copies(8), cost(name).rounds(8)) for name in ("gather", "server", "ring", "alone")}
    assert told == {"gather": (7, 1), "server": (7, 2), "ring": (1.75, 14), "alone": (0, 0)}
    assert cost("server").codec_s(4) == pytest.approx(8 * 2 / 5 + 10)
