"""TensorBoard itself is asked what it makes of our logs."""

import importlib.util
import json
import re
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nuq.registry import METHODS
from settings import resolving
from train.launch import launch
from train.logs import hparams

SMALL = {"data": "digits", "model": "cnn", "batch_size": 8, "eval_every": 4, "log_every": 2, "eval_train": False}
RUNS: dict[str, dict[str, Any]] = {
    "alq-s1": {
        "method": "alq",
        "method.bucket_size": 1024,
        "measure.every": 2,
        "measure.num_samples": 2,
        "steps": 4,
        "seed": 1,
    },
    "alq-s2": {
        "method": "alq",
        "method.bucket_size": 1024,
        "measure.every": 2,
        "measure.num_samples": 2,
        "steps": 4,
        "seed": 2,
    },
    "sgd-s1": {"method": "sgd", "steps": 4, "seed": 1},
}
WAIT_S = 60.0

Ask = Callable[..., Any]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three runs; the first one's second attempt finds it half done."""
    folder = tmp_path_factory.mktemp("runs")
    for name, settings in RUNS.items():
        assert launch(resolving.resolve(SMALL | settings | {"run_dir": str(folder / name)})) == 0
    status = folder / "alq-s1" / "status.json"
    status.write_text(status.read_text().replace('"done"', '"preempted"'))
    assert launch(resolving.resolve(SMALL | RUNS["alq-s1"] | {"run_dir": str(folder / "alq-s1")})) == 0
    assert len(list((folder / "alq-s1").glob("events*"))) == 2
    return folder


@pytest.fixture(scope="module")
def ask(runs: Path) -> Iterator[Ask]:
    """A question to TensorBoard's server about these runs."""
    if importlib.util.find_spec("tensorboard") is None:
        pytest.skip("tensorboard is not installed")
    command = [
        sys.executable,
        "-m",
        "tensorboard.main",
        "--logdir",
        str(runs),
        "--host",
        "localhost",
        "--port",
        "0",
        "--load_fast",
        "false",
    ]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        address = ""
        for line in server.stderr:
            if found := re.search(r"http://\S+", line):
                address = found[0].rstrip("/")
                break

        def answer(path: str, body: object = None, **query: str) -> Any:
            url = f"{address}/data/{path}?{urllib.parse.urlencode(query)}"
            content = None if body is None else json.dumps(body).encode()
            request = urllib.request.Request(url, content, {"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=WAIT_S) as reply:
                return json.load(reply)

        try:
            assert address, "TensorBoard did not start"
            until = time.monotonic() + WAIT_S
            while len(answer("plugin/scalars/tags")) < len(RUNS):
                assert time.monotonic() < until, "TensorBoard did not read the runs"
                time.sleep(0.1)
            yield answer
        finally:
            server.kill()


@pytest.mark.slow
def test_scalars_and_histograms_are_there(ask: Ask) -> None:
    scalars = ask("plugin/scalars/tags")
    assert set(scalars) == set(RUNS)
    assert {"loss", "Vacc", "est_var", "levels/0"} <= set(scalars["alq-s2"])
    assert {run: set(tags) for run, tags in ask("plugin/histograms/tags").items()} == {
        run: {"stats/coordinates", "stats/fit"} for run in ("alq-s1", "alq-s2")
    }
    drawn = ask("plugin/histograms/histograms", run="alq-s2", tag="stats/fit")
    assert [step for _, step, _ in drawn] == [0, 2]
    for _, _, buckets in drawn:
        assert sum(count for *_, count in buckets) == pytest.approx(1)
        assert all(left <= right for left, right, _ in buckets)


def test_the_experiment_lists_settings_and_metrics(ask: Ask) -> None:
    experiment = ask("plugin/hparams/experiment", {})
    shown = [info["name"] for info in experiment["hparamInfos"]]
    assert set(shown) == set(hparams.names())
    assert set(shown[:5]) == set(hparams.FIRST), "what varies in a sweep comes first"
    assert [info["name"]["tag"] for info in experiment["metricInfos"]] == list(hparams.METRICS)


def test_runs_are_sessions_and_seeds_a_group(ask: Ask) -> None:
    states = ["STATUS_SUCCESS", "STATUS_RUNNING", "STATUS_UNKNOWN", "STATUS_FAILURE"]
    columns = [{"hparam": name} for name in hparams.names()] + [
        {"metric": {"tag": tag, "group": ""}} for tag in hparams.METRICS
    ]
    query = {"startIndex": 0, "sliceSize": 9, "allowedStatuses": states, "colParams": columns}
    groups = {group["name"]: group for group in ask("plugin/hparams/session_groups", query)["sessionGroups"]}
    named = {name.partition("-")[0]: name for name in groups}
    assert set(named) == {"alq", "sgd"} and named["alq"].startswith("alq-3b-cnn-digits-")
    alq, sgd = groups[named["alq"]], groups[named["sgd"]]
    assert {session["name"]: session["status"] for session in alq["sessions"]} == dict.fromkeys(
        ("alq-s1", "alq-s2"), "STATUS_SUCCESS"
    )
    assert [session["name"] for session in sgd["sessions"]] == ["sgd-s1"]
    settings = alq["hparams"]
    assert (settings["method.name"], settings["method.bits"], settings["method.bucket_size"], settings["steps"]) == (
        "alq",
        3,
        1024,
        4,
    )
    assert (
        settings["method.symmetric"] is True and settings["method.update_at"] == "0,100,2000" and "seed" not in settings
    )
    assert not any(name.startswith("method.") for name in sgd["hparams"] if name not in ("method.name", "method.scope"))
    values = {value["name"]["tag"]: value for value in alq["sessions"][-1]["metricValues"]}
    assert set(values) == set(hparams.METRICS)
    assert 0 < values["Vacc"]["value"] <= 100 and values["Vacc"]["trainingStep"] == 4
    assert {value["name"]["tag"] for value in sgd["metricValues"]} == {"Vacc", "Vloss", "comm/bits_per_coordinate"}


def test_a_run_says_where_it_ran(runs: Path) -> None:
    found = json.loads((runs / "sgd-s1" / "status.json").read_text())["machine"]
    assert set(found) == {"python", "torch", "cpu", "cores", "gpu", "commit", "dirty"}
    assert found["python"].startswith("3.")


def test_every_setting_of_a_method_is_shown(subtests: pytest.Subtests) -> None:
    for method in METHODS:
        with subtests.test(method=method):
            config = resolving.resolve({"method": method})
            shown = hparams.values(config)
            assert {f"method.{name}" for name in config["method"]} <= set(shown)
            kinds = hparams.names()
            assert all(
                isinstance(value, kinds[name] if kinds[name] is not list else str)
                for name, value in shown.items()
                if kinds[name] is not int
            )


def test_a_group_is_what_differs_in_the_seed_alone() -> None:
    groups = [
        hparams.group(resolving.resolve({"method": "qsgd", **more}))
        for more in ({"seed": 1}, {"seed": 2}, {"seed": 1, "workers": 2})
    ]
    assert groups[0] == groups[1] != groups[2]
