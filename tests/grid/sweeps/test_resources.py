"""Resources: times and memory as SLURM writes them, shares of a GPU, K experiments at a time, and refusals in one
sentence.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grid.engine.slurm.site_yaml import read_site
from grid.engine.sweep import needs
from settings.resources import Resources, megabytes, seconds, time_text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("90", 5400),
        ("5:30", 330),
        ("12:00:00", 43200),
        ("100:00:00", 360000),
        ("2-0", 172800),
        ("1-12:30", 131400),
        ("1-00:00:01", 86401),
    ],
)
def test_seconds(text: str, value: int) -> None:
    assert seconds(text) == value


@pytest.mark.parametrize(
    "text", ["12h", "", "0", "00:00:00", "1:60", "1:00:60", "1-24", "1-00:60", "-5", "1.5", "1-", "1:2:3:4", "２0", 90]
)
def test_seconds_refuses(text: Any) -> None:
    with pytest.raises(ValueError, match=r"^time=.*: must be a time above 0 .* HH:MM:SS \(12:00:00\)") as caught:
        seconds(text)
    assert "\n" not in str(caught.value)


@given(st.integers(1, 400 * 86400))
def test_a_time_survives_its_text(value: int) -> None:
    assert seconds(time_text(value)) == value


def test_time_text() -> None:
    assert [time_text(value) for value in (61, 43200, 90061)] == ["00:01:01", "12:00:00", "1-01:01:01"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("18GB", 18432),
        ("18G", 18432),
        ("18g", 18432),
        ("500M", 500),
        ("512000", 512000),
        ("1T", 1 << 20),
        ("1K", 1),
        ("0", 0),
    ],
)
def test_megabytes(text: str, value: int) -> None:
    assert megabytes(text) == value


@pytest.mark.parametrize("text", ["1.5G", "G", "", "18 GB", "18GiB", "-1G", 18000])
def test_megabytes_refuses(text: Any) -> None:
    with pytest.raises(ValueError, match=r"^mem=.*: must be text, .*18GB, 18G, 500M"):
        megabytes(text)


def test_gpus_of_k_at_a_time() -> None:
    for asked, gpus in (
        (Resources(), 1),
        (Resources(ranks=4), 4),
        (Resources(ranks=4, gpus=0), 0),
        (Resources(ranks=8, nodes=2), 4),
    ):
        assert asked.gpus_for(1) == gpus
    half, third = Resources(gpus=0.5), Resources(gpus=1 / 3)
    assert [half.gpus_for(parallel) for parallel in (1, 2, 3, 4)] == [1, 1, 2, 2]
    assert [third.gpus_for(parallel) for parallel in (1, 3, 4)] == [1, 1, 2]
    assert Resources(gpus=0.3).gpus_for(10) == 4, "three runs fit on one GPU, not three and a third"
    assert Resources(gpus=2).gpus_for(3) == 6


@given(st.integers(1, 200), st.integers(1, 500))
def test_a_share_of_one_nth_lets_n_runs_share(count: int, parallel: int) -> None:
    resources = Resources(gpus=1 / count)
    assert resources.runs_per_gpu == count
    assert resources.gpus_for(parallel) == -(-parallel // count)


def test_cores_and_memory_of_k_at_a_time() -> None:
    one = Resources(ranks=4, nodes=2, cpus=3)
    assert (one.cpus_for(1), one.cpus_for(3)) == (6, 18)
    assert (one.mem_for(1), one.mem_for(2), Resources(mem="0").mem_for(2)) == ("18GB", "36864M", "0")


def test_what_clusters_call_their_things_is_legal() -> None:
    words = {
        "partition": "gpu,gpu-long",
        "account": "def-jane_gpu",
        "constraint": "[a100|v100*2]&ib",
        "exclude": "n[01-03,7],m2",
    }
    made = Resources().merged({**words, "qos": "high.prio", "gpus": None, "time": None})
    assert {name: getattr(made, name) for name in words} == words
    assert Resources().merged({}) == Resources()


def test_gpus_of_a_type_are_a_number_and_a_type() -> None:
    made = Resources(ranks=2).merged({"gpus": "a100:2"})
    assert (made.gpus, made.gpu_type, made.gpus_for(3), made.runs_per_gpu) == (2, "a100", 6, 1)
    shared = Resources().merged({"gpus": "nvidia_a100_3g.20gb:0.5"})
    assert (shared.gpu_type, shared.gpus_for(2), shared.runs_per_gpu) == ("nvidia_a100_3g.20gb", 1, 2)
    assert made.merged({"gpus": 4}).gpu_type == "a100", "an experiment that names no type takes the site's"
    assert made.merged({"gpus": "v100:1"}).gpu_type == "v100"
    assert Resources(**dataclasses.asdict(made)) == made
    for wrong in ("a100", "a100:", "a100:x", "2:a100", "a100:1.5", "a b:1"):
        with pytest.raises(ValueError, match="gpus="):
            Resources().merged({"gpus": wrong})


@pytest.mark.parametrize("mem", ["16", "128", 64])
def test_a_small_amount_without_a_unit_is_asked_about(mem: str | int) -> None:
    for asked in (
        lambda: Resources().merged({"mem": str(mem)}),
        lambda: needs(mem=str(mem)),
        lambda: read_site(f"defaults: {{mem: {mem}}}", "f"),
        lambda: read_site(f"partitions: {{main: {{mem: {mem}}}}}", "f"),
    ):
        with pytest.raises(ValueError, match=rf"{mem} MB.*GB.*{mem}G.*{mem}M"):
            asked()
    assert {Resources().merged({"mem": text}).mem for text in ("0", "500", f"{mem}M")} == {"0", "500", f"{mem}M"}
