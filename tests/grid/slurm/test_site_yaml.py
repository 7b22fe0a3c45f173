"""The file of a site profile: YAML of version 1.2, and what its values may be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from grid.engine.slurm.sbatch_script import sbatch_text
from grid.engine.slurm.site_yaml import read_site
from settings.resources import Resources


def test_yaml_is_of_version_1_2() -> None:
    made = read_site("account: on\nqos: 1_000\nexclude: 2026-01-02\nsignal_s: 010\nmax_requeues: 0x1F\nmail: ~", "f")
    assert (made.account, made.qos, made.exclude) == ("on", "1_000", "2026-01-02")
    assert (made.signal_s, made.max_requeues, made.mail) == (10, 31, None)
    with pytest.raises(ValueError, match=r"^f: account=True: must be text; quote it$"):
        read_site("account: TRUE", "f")
    with pytest.raises(ValueError, match=r"^f: unknown key '<<'"):
        read_site("mail: &a {user: me}\n<<: *a", "f")
    for odd in ("!!int x", "!!float x", "!!python/name:os.system x", "!!timestamp x", "&a [*a]", "!!bool [a]"):
        with pytest.raises(ValueError, match=r"^f: .") as caught:
            read_site(f"account: {odd}", "f")
        assert "\n" not in str(caught.value)


def test_what_may_be_left_out() -> None:
    made = read_site("partitions: {gpu: }\nsignal_s:\nactivate: |\n  one  \n\n  two\n", "f", "n")
    assert (made.name, made.signal_s, dict(made.partitions)) == ("n", 120, {"gpu": type(made.partitions["gpu"])()})
    assert [line for line in made.preamble() if line in ("one", "two", "one  ")] == ["one", "two"]


TYPED = """
partition: fast
defaults: {gpus: a100:2}
partitions: {fast: {gpus: a100:4}, old: {gpus: v100:1}, any: {gpus: 8}}
"""


def test_gpus_by_type() -> None:
    site = read_site(TYPED, "site.yaml")

    def asked(**own: Any) -> Resources:
        return Resources().merged(site.resources(own.get("partition"))).merged(own)

    assert [(item.gpu_type, item.gpus) for item in (asked(), asked(gpus=4), asked(gpus="h100:1"))] == [
        ("a100", 2),
        ("a100", 4),
        ("h100", 1),
    ]
    text = sbatch_text("n", Path("/r"), Path("jobs/n"), range(1), asked(gpus=4), site)
    assert "#SBATCH --gpus-per-node=a100:4\n" in text
    assert "gpus-per-node" not in sbatch_text("n", Path("/r"), Path("jobs/n"), range(1), asked(gpus=0), site)
    site.check(asked())
    site.check(asked(partition="any", gpus="h100:8"))
    for own in ({"gpus": "h100:1"}, {"gpus": 5}, {"partition": "old", "gpus": "a100:1"}, {"partition": "old"}):
        with pytest.raises(ValueError, match=r"its nodes have [av]100:[14]"):
            site.check(asked(**own))


@pytest.mark.parametrize(
    ("option", "number"),
    [
        ("--gres=gpu:a100:2", "a100:2"),
        ("--gres=gpu:2,shard:1", "2"),
        ("--gres=gpu:a100:4(S:0)", "a100:4"),
        ("--gres=shard:1,gpu:1", "1"),
        ("--gres=gpu", "a100:2"),
        ("--tres-per-task=gres/gpu:h100=3,cpu=3", "h100:3"),
        ("--tres-per-task=gres/gpu=1", "1"),
    ],
)
def test_gpus_among_further_options_are_refused_with_advice(option: str, number: str) -> None:
    with pytest.raises(ValueError, match=rf"give gpus: {number} under defaults"):
        read_site(f"sbatch: ['{option}']", "site.yaml")
    assert read_site("sbatch: ['--gres=shard:1']", "site.yaml").sbatch
    for other in ("--gpus-per-socket=2", "--ntasks-per-gpu=1", "--cpus-per-gpu=4"):
        with pytest.raises(ValueError, match=f"{other}' is given by the script itself"):
            read_site(f"sbatch: ['{other}']", "site.yaml")
