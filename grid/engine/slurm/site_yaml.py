"""Reader of a site profile: YAML without surprises, every key and value checked, each mistake in one sentence."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

from files import plain
from files.plain import Unreadable, checked
from grid.engine.scripts.preamble import Stage
from grid.engine.slurm.site import Mail, Partition, Site
from grid.engine.sweeps.resources import WORD, Resources, megabytes, seconds
from nuq.settings import unknown

MAIL_EVENTS = (
    "BEGIN",
    "END",
    "FAIL",
    "REQUEUE",
    "TIME_LIMIT",
    "TIME_LIMIT_90",
    "TIME_LIMIT_80",
    "TIME_LIMIT_50",
    "ARRAY_TASKS",
    "ALL",
)
DEFAULTS = ("cpus", "mem", "time", "gpus")
# sbatch options that a script's own text gives: a second one would fight with it.
OWN_OPTIONS = {
    *(
        "array",
        "cpus-per-task",
        "error",
        "gpus-per-node",
        "job-name",
        "mem",
        "nodes",
        "ntasks",
        "open-mode",
        "output",
        "parsable",
    ),
    *(
        "requeue",
        "no-requeue",
        "signal",
        "time",
        "partition",
        "account",
        "qos",
        "constraint",
        "exclude",
        "wrap",
        "test-only",
    ),
    *("mail-user", "mail-type", "dependency", "kill-on-invalid-dep", "comment", "export", "ntasks-per-node"),
    *("mem-per-cpu", "mem-per-gpu", "gpus", "gpus-per-task"),  # sbatch takes one way of saying it
}


def read_site(text: str, where: str, name: str = "") -> Site:
    """The profile in YAML ``text``.

    ``where`` names it in errors, ``name`` names the site if it does not do so itself.
    """
    values = _mapping(_parse(text, where), where)
    known = [item.name for item in fields(Site)]
    made: dict[str, Any] = {"name": name}
    for key, value in values.items():
        if key not in known:
            raise _at(where, unknown("key", key, known))
        if value is not None:  # `account:` with nothing behind it is as good as left out
            made[key] = READ[key](value, f"{where}: {key}")
    site = Site(**made)
    for part in (site.partition or "").split(","):
        if part and site.partitions and part not in site.partitions:
            raise _at(where, unknown("partition", part, dict(site.partitions)))
    try:
        Resources().merged(site.resources())
        site.preamble()
    except ValueError as error:
        raise _at(where, error) from error
    return site


def _at(where: str, error: ValueError) -> ValueError:
    return ValueError(f"{where}: {error}")


def _parse(text: str, where: str) -> Any:
    """YAML without its surprises.

    12:00:00 and the word on are texts, only true and false are truth values, and no key comes twice.
    """
    import yaml

    class Plain(yaml.SafeLoader):
        yaml_implicit_resolvers: dict = {}  # noqa: RUF012

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            keys = [self.construct_object(key, deep=True) for key, _ in node.value]
            if twice := next((key for number, key in enumerate(keys) if key in keys[:number]), None):
                raise yaml.constructor.ConstructorError(None, None, f"{twice!r} is given twice", node.start_mark)
            return super().construct_mapping(node, deep)

    for tag, pattern, first in (
        ("bool", r"true|false", "tf"),
        ("int", r"[-+]?\d+", "-+0123456789"),
        ("float", r"[-+]?(\d+\.\d*|\.\d+|\d+(?=[eE]))([eE][-+]?\d+)?", "-+.0123456789"),
        ("null", r"null|~|", ["n", "~", ""]),
    ):
        Plain.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(rf"(?:{pattern})\Z", re.ASCII), list(first))
    try:
        values = yaml.load(text, Loader=Plain)
        if isinstance(values, dict) and isinstance(values.get("environment"), dict):
            values["environment"] = yaml.load(text, Loader=yaml.BaseLoader)["environment"]  # as written: 007 stays 007
        return checked(values)
    except Unreadable as error:
        raise ValueError(f"{where}: {error}") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f", line {mark.line + 1}" if mark else ""
        raise ValueError(f"{where}{line}: {error.problem or error.context}") from error
    except yaml.YAMLError as error:
        raise ValueError(f"{where}: {' '.join(str(error).split())}") from error


def _mapping(value: Any, where: str, legal: tuple[str, ...] | None = None) -> dict[str, Any]:
    """A mapping with text keys, which are among the ``legal`` ones where these are given."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError(
            f"{where}: must be a mapping (key: value)"
            + (f" of {', '.join(legal)}" if legal else "")
            + f", not {value!r}"
        )
    for key in value:
        if not isinstance(key, str):
            raise ValueError(f"{where}: key {key!r} must be text; quote it")
        if legal is not None and key not in legal:
            raise _at(where, unknown("key", key, list(legal)))
    return value


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{where}={value!r}: must be text" + ("; quote it" if value != "" else ", and not empty"))
    return value


def _word(value: Any, where: str) -> str:
    if not WORD.fullmatch(_text(value, where)):
        raise ValueError(f"{where}={value!r}: must be one word, with a letter or digit and without blanks or quotes")
    return value


def _count(low: int) -> Callable[[Any, str], int]:
    def read(value: Any, where: str) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or value < low:
            raise ValueError(f"{where}={value!r}: must be a whole number of at least {low}")
        return value

    return read


def _texts(value: Any, where: str) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError(f"{where}={value!r}: must be a list, as in [{value if isinstance(value, str) else 'a'}, ...]")
    return tuple(_text(item, where) for item in value)


def _lines(value: Any, where: str) -> tuple[str, ...]:
    parts = _texts(value, where) if isinstance(value, list) else (_text(value, where),)
    return tuple(line.rstrip() for part in parts for line in part.splitlines() if line.strip())


def _amount(parse: Callable[[str], int]) -> Callable[[Any, str], str]:
    """A time or an amount of memory, checked; a bare number is SLURM's minutes or megabytes."""

    def read(value: Any, where: str) -> str:
        text: Any = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
        try:
            parse(text)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from error
        return text

    return read


def _defaults(value: Any, where: str) -> dict[str, Any]:
    read = {"time": _amount(seconds), "mem": _amount(megabytes)}
    values = _mapping(value, where, DEFAULTS)
    made = {key: read[key](item, where) if key in read else item for key, item in values.items() if item is not None}
    try:
        Resources().merged(made)
    except ValueError as error:
        raise _at(where, error) from error
    return made


def _partitions(value: Any, where: str) -> dict[str, Partition]:
    read: dict[str, Callable[[Any, str], Any]] = {
        "max_time": _amount(seconds),
        "gpus": _count(0),
        "cpus": _count(1),
        "mem": _amount(megabytes),
        "nodes": _count(1),
        "constraint": _word,
    }
    made = {}
    for name, limits in _mapping(value, where).items():
        here = f"{where}.{_word(name, where)}"
        items = _mapping(limits, here, tuple(read))
        made[name] = Partition(
            **{key: read[key](item, f"{here}.{key}") for key, item in items.items() if item is not None}
        )
    return made


def _environment(value: Any, where: str) -> dict[str, str]:
    made = {}
    for name, item in _mapping(value, where).items():
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise ValueError(f"{where}: {name!r} is no name of an environment variable (letters, digits and '_')")
        if not isinstance(item, str):
            raise ValueError(f"{where}.{name}={item!r}: must be text or a number; quote it")
        made[name] = item
    return made


def _stage(value: Any, where: str) -> tuple[Stage, ...]:
    if not isinstance(value, list):
        raise ValueError(f"{where}={value!r}: must be a list of {{from: FOLDER, to: FOLDER}}")
    made = []
    for item in value:
        pair = _mapping(item, where, ("from", "to"))
        if len(pair) < 2:
            raise ValueError(f"{where}: {item!r} must have both from and to")
        made.append(Stage(_text(pair["from"], f"{where}.from"), _text(pair["to"], f"{where}.to")))
    return tuple(made)


def _mail(value: Any, where: str) -> Mail:
    values = _mapping(value, where, ("user", "on"))
    events = _texts(values.get("on", ["FAIL"]), f"{where}.on")
    for event in events:
        if event not in MAIL_EVENTS:
            raise _at(f"{where}.on", unknown("event", event, list(MAIL_EVENTS)))
    return Mail(_word(values.get("user", ""), f"{where}.user"), events)


def _options(value: Any, where: str) -> tuple[str, ...]:
    options = _texts(value, where)
    for option in options:
        found = re.fullmatch(r"--([a-z][a-z0-9-]*)(=[^\n]*)?", option)
        if not found:
            raise ValueError(
                f"{where}: {option!r} must be an option of sbatch in its long form, as in --licenses=matlab"
            )
        if found[1] in OWN_OPTIONS:
            raise ValueError(
                f"{where}: {option!r} is given by the script itself; resources, partition and mail have keys of their "
                f"own"
            )
    return options


READ: dict[str, Callable[[Any, str], Any]] = {
    "name": _text,
    "account": _word,
    "qos": _word,
    "partition": _word,
    "constraint": _word,
    "exclude": _word,
    "defaults": _defaults,
    "partitions": _partitions,
    "modules": _texts,
    "activate": _lines,
    "environment": _environment,
    "scratch": _text,
    "stage": _stage,
    "mail": _mail,
    "signal_s": _count(1),
    "max_requeues": _count(0),
    "max_array_size": _count(1),
    "max_submit": _count(1),
    "sbatch": _options,
}
ROOT = Path(__file__).absolute().parents[3]
EXAMPLES = ROOT / "grid" / "sites"


def load_site(path: str | Path | None = None) -> Site:
    """The profile in the file ``path``, or the example of that name.

    Where ``path`` is None, it is the profile of NUQ_SITE, else site.yaml, else the empty one.
    """
    if path is None:
        path = os.environ.get("NUQ_SITE") or (ROOT / "site.yaml" if (ROOT / "site.yaml").is_file() else None)
        if path is None:
            return Site()
    file = Path(path).expanduser()
    if not file.exists():
        examples = {example.stem: example for example in EXAMPLES.glob("*.yaml")}
        if str(path) not in examples:
            names = ", ".join(sorted(examples))
            raise FileNotFoundError(
                f"site profile {str(path)!r}: no such file; give a YAML file, or one of the examples in grid/sites: "
                f"{names}"
            )
        file = examples[str(path)]
    try:
        text = plain.read_text(file)
        plain.check_yaml(text)
    except plain.Unreadable as error:
        raise ValueError(f"{file}: {error}") from error

    return read_site(text, str(file), file.stem)
