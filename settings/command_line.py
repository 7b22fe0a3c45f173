"""The command line of main.py: its modes, what ``python main.py --help`` prints, and Hydra's store.

This module imports no torch.
"""

from __future__ import annotations

import dataclasses
import difflib
import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from args import DEFAULTS, GROUPS, SECTIONS, Config
from nuq.settings import check, declared, plugins, setting, unknown

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override

MODES = ("train", "evaluate")


@dataclass
class Evaluation:
    """Settings of mode=evaluate, which reads nothing else: all other settings are the run's own."""

    run: str = setting("", "folder of the run whose checkpoints are evaluated; required")
    once: bool = setting(
        False, "true: the newest checkpoint and no other; false: each as it appears, until the run has ended"
    )
    splits: str = setting(
        "run",
        "run: the test set, and the training set with the run's eval_train=true; test: the test set alone; both: in "
        "any case",
        choices=("run", "test", "both"),
    )
    eval_batch_size: int = setting(0, "samples per evaluation pass (0: as the run)", low=0)
    threads: int = setting(0, "CPU threads (0: as the run)", low=0)
    device: str = setting("auto", "auto: CUDA where there is one, else CPU", choices=("auto", "cpu", "cuda"))
    data_dir: str = setting("", "folder of the data sets (empty: as the run)")
    poll_s: float = setting(2.0, "seconds between two looks for a new checkpoint", low=0.05)
    patience_s: float = setting(
        3600.0, "seconds without a sign that the run gets on, after which it is no longer waited for", low=0
    )


def with_plugins(words: Sequence[str]) -> list[str]:
    """Import the plug-ins that are installed or named by ``--import``, and return the other words of a command line.

    Here all tables are there that they add to.  ValueError as ``nuq.settings.plugins.start``.
    """
    return plugins.start(words)


def split_mode(overrides: Sequence[str]) -> tuple[str, list[str]]:
    """The mode in ``mode=...`` (train where it is absent), and the other overrides; ValueError for an unknown mode."""
    modes = [text.partition("=")[2] for text in overrides if text.startswith("mode=")]
    for mode in modes:
        if mode not in MODES:
            raise unknown("mode", mode, list(MODES))
    if len(set(modes)) > 1:
        raise ValueError(
            f"several values in {' '.join(f'mode={mode}' for mode in modes)}: main.py does one thing at a time"
        )
    return modes[0] if modes else "train", [text for text in overrides if not text.startswith("mode=")]


def unknown_option(option: str, words: Sequence[str]) -> ValueError:
    """The error for an option of a command line that is none: settings have no dashes (``--method alq``)."""
    name, equals, value = option.lstrip("-").partition("=")
    following = [] if equals else words[list(words).index(option) + 1 :][:1]
    value = next((word for word in following if word[:1] != "-" and "=" not in word), value) or "VALUE"
    name = name.replace("-", "_")
    sections = {part: {schema} for part, schema in SECTIONS.items()} | {g: {*GROUPS[g].values()} for g in GROUPS}
    dotted = {f"{part}.{key}": key for part, schemas in sections.items() for one in schemas for key in declared(one)}
    meant = [full for full, key in dotted.items() if key == name and full.partition(".")[0] in GROUPS]
    near = meant or difflib.get_close_matches(name, [*declared(Config), *GROUPS, *dotted], n=1)
    hint = f"did you mean {near[0]}={value}?" if near else "--help lists them"
    return ValueError(f"unknown option {option!r}: a setting is given without dashes, name=value; {hint}")


def evaluation(values: Mapping[str, Any]) -> Evaluation:
    """The settings of mode=evaluate.

    ValueError for an unknown one (with the legal ones), and for a value that is not legal.
    """
    for name in values:
        if name not in declared(Evaluation):
            raise unknown("setting of mode=evaluate, which takes all else from the run,", name, declared(Evaluation))
    settings = Evaluation(**check(Evaluation, values))
    if not settings.run:
        raise ValueError("run='': mode=evaluate needs the folder of a run, as in run=runs/main/NAME")
    return settings


def help_text() -> str:
    """The text of --help: every setting with its default, its legal range and the reason for it.

    It has the settings of the experiment, of its sections, and of the choices of its groups.
    """
    lines = [
        "Train one experiment.",
        "",
        "  python main.py method=alq method.bits=3 data=cifar10 model=resnet8 workers=4 seed=1",
        "  torchrun --nproc-per-node=4 main.py method=alq workers=4     the same experiment in four real processes",
        "  torchrun --nproc-per-node=4 main.py method=alq exchange.collective=two_stage     with less to send per "
        "process",
        "  python main.py mode=evaluate run=runs/main/NAME               evaluate a run's checkpoints as they appear, "
        "beside it",
        "  python main.py fork=runs/main/NAME at=500 method=qsgd        go on from a run's checkpoint, with other "
        "settings (docs/experiments.md, Forks)",
        "  python main.py --import my_package method=mine               with a package of your own that adds methods, "
        "data sets or models: docs/plugins.md",
        "",
        "Settings (name=default, legal range, reason):",
        *_lines(Config, ""),
    ]
    for section, schema in SECTIONS.items():
        lines += ["", f"{section}: {' '.join((schema.__doc__ or '').split())}", *_lines(schema, f"{section}.")]
    for group, options in GROUPS.items():
        lines += ["", f"{group}={DEFAULTS[group]}  [one of {', '.join(options)}]"]
        by_schema: dict[type, list[str]] = {}
        for name, schema in options.items():
            by_schema.setdefault(schema, []).append(name)
        for schema, names in by_schema.items():
            lines += [f" {group}={'|'.join(names)}", *(_lines(schema, f"{group}.") or ["      no settings"])]
    lines += ["", f"mode=evaluate: {' '.join((Evaluation.__doc__ or '').split())}", *_lines(Evaluation, "")]
    codes = (
        "0 finished; 75 checkpointed on a signal, please requeue; 2 bad settings or data; 3 diverged; 4 another "
        "process has the folder"
    )
    lines += ["", f"Exit codes: {codes}; 130 interrupted; 1 anything else."]
    return "\n".join(lines)


def _lines(schema: type, prefix: str) -> list[str]:
    lines = []
    for name, (_, default, rule) in declared(schema).items():
        shown = json.dumps(default) if not isinstance(default, str) else default or "''"
        legal = [f"one of {'|'.join(map(str, rule['choices']))}"] if rule["choices"] else []
        legal += [f"{sign} {rule[end]}" for sign, end in ((">=", "low"), ("<=", "high")) if rule[end] is not None]
        note = f"  [{', '.join(legal)}]" if legal else ""
        lines.append(f"  {prefix}{name}={shown}{note}\n      {rule['reason']}")
    return lines


def register() -> None:
    """Hand every settings dataclass to Hydra's ConfigStore, under the primary config ``experiment``."""
    from hydra.core.config_store import ConfigStore

    store = ConfigStore.instance()
    for group, options in GROUPS.items():
        for name, schema in options.items():
            named = dataclasses.make_dataclass(f"{group}_{name}", [("name", str, field(default=name))], bases=(schema,))
            store.store(group=group, name=name, node=named)
    chosen = [(group, Any, field(default=None)) for group in GROUPS]
    store.store(name="settings", node=dataclasses.make_dataclass("Settings", chosen, bases=(Config,)))
    order = ["settings", *({group: name} for group, name in DEFAULTS.items()), "_self_"]
    quiet = [{"override hydra/job_logging": "none"}, {"override hydra/hydra_logging": "none"}]
    # -m writes a multirun.yaml: among the runs, for beside the code it would be a file that the orchestrator counts
    sweep = {"dir": "runs", "subdir": "."}
    hydra_settings: dict[str, Any] = {"run": {"dir": "."}, "sweep": sweep, "output_subdir": None}
    hydra_settings |= {"job": {"chdir": False}, "help": {"template": help_text().replace("$", "$$")}}
    store.store(name="experiment", node={"defaults": [*order, *quiet], "hydra": hydra_settings})


# --- Hydra's grammar ----------------------------------------------------------------------------------------------


def parsed(text: str) -> Override:
    """One word ``name=value`` or ``name=a,b``; ValueError for what is not of this form."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import OverrideParseException

    try:
        (override,) = OverridesParser.create().parse_overrides([text])
    except OverrideParseException as error:
        raise ValueError(
            f"{text!r} is not of the form name=value: {_unread(text) or str(error).splitlines()[0]}"
        ) from error
    if override.is_add() or override.is_force_add() or override.is_delete():
        raise ValueError(f"{text!r}: every setting exists already, so + and ~ are not used; write name=value")
    return override


def parse_overrides(overrides: Sequence[str]) -> dict[str, Any]:
    """The dotted settings of words such as ``method.bits=3``, as ``settings.resolving.resolve`` takes them.

    ValueError for what is not of this form, and for several values of one setting.
    """
    settings: dict[str, Any] = {}
    for override in map(parsed, overrides):
        if override.package is not None:
            raise ValueError(
                f"{override.input_line!r}: every setting has its place, so @{override.package} is not used; write "
                "name=value"
            )
        if override.is_sweep_override():
            raise ValueError(
                f"several values in {' '.join(overrides)}: a run has one of each; -m runs them one after another"
            )
        settings[override.key_or_group] = override.value()
    return settings


def jobs(overrides: Sequence[str]) -> Iterator[list[str]]:
    """The words of every run that ``-m`` makes of these, as Hydra writes them.

    Those whose values Hydra alone knows (``glob(*)``, ``interval(0, 1)``) are left out.
    """
    from hydra.core.override_parser.types import Glob

    words = []
    for override in map(parsed, overrides):
        if not override.is_sweep_override():
            values = [override.get_value_element_as_str()]
        elif override.is_discrete_sweep() and not isinstance(override.value(), Glob):
            values = list(override.sweep_string_iterator())
        else:
            continue
        words.append([f"{override.get_key_element()}={value}" for value in values])
    return map(list, itertools.product(*words))


def _unread(text: str) -> str:
    """The reason why a value cannot be read, where it is known: a value that is no mere word needs quotes."""
    name, equals, value = text.partition("=")
    if not equals:
        return "it has no '='"
    if value.startswith("~"):
        return f"the shell turns ~ into a folder at the start of a word alone; write {name}=$HOME{value[1:]}"
    if value and re.search(r"[^\w./+-]", value) and "'" not in value and value[0] not in '[{"':
        return f"a value that is no plain word may need quotes of its own; write \"{name}='{value}'\""
    return ""
