"""Overrides that survive two grammars, and say every setting that can change a result."""

from __future__ import annotations

from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import example, given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from grid.engine.sweep import load
from grid.engine.sweeps.overrides import pinned
from settings import command_line, resolving, run_identity
from settings.overrides import to_override
from settings.sections import as_set
from tests.tiers import few

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
AWKWARD = st.text(st.sampled_from("a1 '\"\\${}[],:=#\n\t*?%~+-@|é!`"), max_size=10)
SCALAR = st.one_of(st.booleans(), st.integers(), st.floats(allow_nan=False), TEXT, AWKWARD, st.none())


@given(st.one_of(SCALAR, st.lists(SCALAR, max_size=3)))
@example('it\'s "here"\n$HOME/${x}/\\')
@example("\\'")
@example("\\${a}\\\\")
@example("true")
@example("1e5")
@example("null")
@example("")
@example("a:b,c")
def test_hydra_reads_every_value_back(value: Any) -> None:
    (override,) = OverridesParser.create().parse_overrides([to_override("data_dir", value)])
    assert not override.is_sweep_override()
    read = OmegaConf.to_container(OmegaConf.create({"x": override.value()}), resolve=True)
    assert isinstance(read, dict)
    assert read["x"] == value
    assert type(read["x"]) is type(value)


@few(2, "family", ["nuq", "abl", "demo"])
def test_pinned_overrides_resolve_to_the_same_experiment(family: str) -> None:
    run_name = {"nuq": "cifar10_full_resnet8", "abl": "interval", "demo": "demo"}[family]
    for item in load(family, run_name).experiments():
        settings = command_line.parse_overrides(pinned(item, "runs/x"))
        assert run_identity.identity(resolving.resolve(settings)) == run_identity.identity(item.config)
        missing = set(as_set(run_identity.result_settings(item.config))) - set(settings)
        assert not missing, "a default moved later would change this run"


def test_paths_of_this_machine_are_not_pinned_unless_asked_for() -> None:
    sweep = load("demo", "demo")
    assert not any(text.startswith(("data_dir", "device")) for text in pinned(sweep.experiments()[0], "r"))
    assert "data_dir=/x" in pinned(sweep.override({"data_dir": "/x"}).experiments()[0], "r")
