"""Reader of a site profile: YAML 1.2, checked as all settings are, each mistake in one sentence."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from files import plain
from grid.engine.slurm.site import Site
from nuq.settings import named, read, unknown
from settings.resources import Resources

ROOT = Path(__file__).absolute().parents[3]
EXAMPLES = ROOT / "grid" / "sites"
# sbatch options that a script's own text gives: a second one would fight with it; of memory and GPUs, sbatch takes one
# way of saying it.
OWN_OPTIONS = (
    "array cpus-per-task error gpus-per-node job-name mem nodes ntasks open-mode output parsable requeue no-requeue "
    "signal time partition account qos constraint exclude wrap test-only mail-user mail-type dependency "
    "kill-on-invalid-dep comment export ntasks-per-node mem-per-cpu mem-per-gpu gpus gpus-per-task "
    "gpus-per-socket ntasks-per-gpu cpus-per-gpu"
)
# The core schema of YAML 1.2.
SCALARS = {
    "null": r"null|Null|NULL|~|",
    "bool": r"true|True|TRUE|false|False|FALSE",
    "int": r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+",
    "float": r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
}


def read_site(text: str, where: str, name: str = "") -> Site:
    """The profile in YAML ``text``.

    ``where`` names it in errors, ``name`` names the site if it does not do so itself.
    """
    try:
        found = _parse(text)
        # `account:` with nothing behind it is as good as left out
        given = {key: value for key, value in named({} if found is None else found).items() if value is not None}
        site: Site = read(Site, given)
        site = replace(site, name=site.name or name)
        for part in (site.partition or "").split(","):
            if part and site.partitions and part not in site.partitions:
                raise unknown("partition", part, dict(site.partitions))
        _check_options(site.sbatch)
        Resources().merged(site.resources())
        site.preamble()
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error
    return site


def _parse(text: str) -> Any:
    """The plain value of a text in YAML 1.2: 12:00:00 and the word on are texts, and no key comes twice.

    PyYAML is of version 1.1 but for what it is told here.
    """
    import yaml

    class Core(yaml.SafeLoader):
        yaml_implicit_resolvers: dict = {}  # noqa: RUF012

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            keys = [self.construct_object(key, deep=True) for key, _ in node.value]
            if twice := next((key for number, key in enumerate(keys) if key in keys[:number]), None):
                raise yaml.constructor.ConstructorError(None, None, f"{twice!r} is given twice", node.start_mark)
            return super().construct_mapping(node, deep)

        def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
            return int(node.value, 0 if node.value[:2] in ("0o", "0x") else 10)

    Core.add_constructor("tag:yaml.org,2002:int", Core.construct_yaml_int)
    for tag, pattern in SCALARS.items():
        Core.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(rf"(?:{pattern})\Z"), None)
    try:
        plain.check_yaml(text)
        values = yaml.load(text, Loader=Core)
        if isinstance(values, dict) and isinstance(values.get("environment"), dict):
            values["environment"] = yaml.load(text, Loader=yaml.BaseLoader)["environment"]  # as written: 007 stays 007
        return plain.checked(values)
    except (yaml.YAMLError, LookupError, TypeError, AttributeError) as error:
        raise ValueError(plain.yaml_mistake(error)) from error


def _check_options(options: Sequence[str]) -> None:
    """Raise ValueError for what is no long option of sbatch, and for one that the script gives itself."""
    for option in options:
        found = re.fullmatch(r"--([a-z][a-z0-9-]*)(=[^\n]*)?", option)
        if not found:
            raise ValueError(
                f"sbatch: {option!r} must be an option of sbatch in its long form, as in --licenses=matlab"
            )
        if found[1].startswith(("gres", "tres-per-")) and re.search(r"\bgpu\b", found[2] or ""):
            asked = re.search(r"\bgpu((?::[A-Za-z][\w-]*)?)[:=](\d+)", found[2])
            number = f"{asked[1]}:{asked[2]}".strip(":") if asked else "a100:2"
            raise ValueError(
                f"sbatch: {option!r} would fight with the GPUs that the script asks for: give gpus: {number} under "
                "defaults, in a partition or to the experiment"
            )
        if found[1] in OWN_OPTIONS.split():
            raise ValueError(
                f"sbatch: {option!r} is given by the script itself; resources, partition and mail have keys of their "
                "own"
            )


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
    except plain.Unreadable as error:
        raise ValueError(f"{file}: {error}") from error
    return read_site(text, str(file), file.stem)
