"""Rounds of local steps at matched bytes: as many steps for all, and the outer optimizer that each has."""

from grid.engine.sweeps.families import load
from settings import run_identity


def test_rounds_of_every_length_at_as_many_steps() -> None:
    found = {item.label: item.config for item in load("outer", "gpt_cpu").experiments() if item.seed == 1}
    methods = ("SuperSGD", "ALQ", "QSGDinf", "PowerSGD rank 4", "PowerSGD rank 1", "TopK")
    labels = {f"{method} H={every}" for method in methods for every in (1, 4, 16, 64, 128)}
    assert set(found) == labels | {f"SuperSGD DiLoCo H={every}" for every in (4, 16, 64, 128)}
    for label, config in found.items():
        every = int(label.rpartition("=")[2])
        assert config["exchange"]["local_steps"] == every
        assert (config["steps"], config["eval_every"], config["workers"]) == (512, 128, 4)
        mean = {} if "DiLoCo" in label else {"outer_lr": 1.0, "outer_momentum": 0.0, "nesterov": False}
        own = {"local_steps": every, **mean} if every > 1 else None  # a round of one step has the name that it had
        assert run_identity.result_settings(config).get("exchange") == own
