"""The lines of bash that a job executes before its first run.

They set up scratch, modules, environment and activation, and copy data to node-local disk.

Everything that goes wrong here ends the script with exit code 2 and one sentence: no run of it could have done better.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence

from grid.engine.scripts.templates import piece

SCRATCH = "NUQ_SCRATCH"
_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
# What a value may hold beside plain text: a literal dollar sign, $NAME or ${NAME}, and ${NAME:-text} for one that may
# be unset.
_TOKEN = re.compile(
    rf"(?P<dollar>\\\$)|\$(?P<plain>{_NAME})|\$\{{(?P<braced>{_NAME})(?P<other>:-(?:[^`\"$\\{{}}]|\${_NAME})*)?\}}"
    rf"|(?P<bad>[$`])|(?P<mark>[\\\"])"
)
_MODULE = re.compile(r"[\w.+@=:-][\w./+@=:-]*")


def quoted(value: str, where: str) -> tuple[str, dict[str, str]]:
    """The value between double quotes, in which bash expands only variables, and the variables that must be set.

    The second is name -> bash text that is empty where neither the variable nor another in its place is set.
    ValueError for what would run a command, or is no plain ``$NAME``, ``${NAME}`` or ``${NAME:-text}``.
    """
    needed: dict[str, str] = {}

    def token(found: re.Match[str]) -> str:
        if found["bad"]:
            raise ValueError(
                f"{where}={value!r}: only $NAME, ${{NAME}} and ${{NAME:-text}} are expanded, and no command is run; "
                f"\\$ is a dollar sign"
            )
        if found["mark"]:
            return "\\" + found["mark"]
        name = found["plain"] or found["braced"]
        if found["other"] is not None:
            for inner in re.findall(rf"\$({_NAME})", found["other"]):
                needed.setdefault(inner, f"${{{name}:-}}${{{inner}:-}}")
        elif name:
            needed[name] = f"${{{name}:-}}"
            return f"${{{name}}}"
        return found[0]

    return f'"{_TOKEN.sub(token, value)}"', needed


def lines(
    name: str,
    *,
    modules: Sequence[str] = (),
    activate: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    scratch: str | None = None,
    stage: Sequence[Mapping[str, str]] = (),
) -> list[str]:
    """The lines of the preamble: scratch, modules, environment, activation, staging; none where nothing is asked for.

    stage: pairs ``from``, ``to`` of a file or folder, which may lie in the checkout, and its copy on the node's disk,
    which may lie in scratch.  ValueError for a value that would run a command, and for staging without a place.
    """
    code = [line.rstrip() for text in activate for line in text.splitlines() if line.strip()]
    parts = [
        *(_scratch(scratch) if scratch else []),
        *(_modules(modules) if modules else []),
        *(line for key, value in (environment or {}).items() for line in _export(key, value, f"environment.{key}")),
        *(_activate(code) if code else []),
        *(_stage(stage, bool(scratch)) if stage else []),
    ]
    if not parts:
        return []
    return [
        "site_fail() {",
        f"""  echo "site profile "{shlex.quote(name)}" on $(uname -n): $1" >&2""",
        "  exit 2",
        "}",
        *parts,
    ]


def _fail(message: str) -> str:
    return f"site_fail {shlex.quote(message)}"


def _export(name: str, value: str, where: str) -> list[str]:
    if not re.fullmatch(_NAME, name):
        raise ValueError(f"environment: {name!r} is no name of an environment variable (letters, digits and '_')")
    text, needed = quoted(value, where)
    checks = [f'if [ -z "{test}" ]; then {_fail(_unset(other, value, where))}; fi' for other, test in needed.items()]
    return [*checks, f"export {name}={text}"]


def _unset(name: str, value: str, where: str) -> str:
    return f"{name} is not set here, and {where} needs it ({value}); ${{{name}:-text}} would give it a text of its own"


def _scratch(scratch: str) -> list[str]:
    return [
        *_export(SCRATCH, scratch, "scratch"),
        f'mkdir -p -- "${SCRATCH}" || site_fail "the scratch folder ${SCRATCH} cannot be made"',
    ]


def _loose(inner: Sequence[str]) -> list[str]:
    """The lines that others wrote, which may read variables that are not set."""
    return ['case "$-" in *u*) site_u=-u ;; *) site_u=+u ;; esac', "set +u", *inner, 'set "$site_u"']


def _modules(names: Sequence[str]) -> list[str]:
    for name in names:
        if not _MODULE.fullmatch(name) or name.startswith("-"):
            raise ValueError(f"modules: {name!r} must be the name of a module, as in cuda/12.4")
    find = [
        "if ! command -v module >/dev/null 2>&1; then",
        '  for site_file in "${MODULESHOME:-/none}/init/bash" /etc/profile.d/{modules,lmod,z00_lmod}.sh; do',
        '    if [ -r "$site_file" ]; then . "$site_file"; break; fi',
        "  done",
        "fi",
        f"command -v module >/dev/null 2>&1 || {_fail('there is no module command, and modules are asked for')}",
    ]
    return _loose(
        [*find, *(f"module load {shlex.quote(name)} || {_fail(f'module load {name} failed')}" for name in names)]
    )


def _activate(code: Sequence[str]) -> list[str]:
    return _loose(["{", *code, f"}} || {_fail(f'activation failed: {code[-1].strip()}')}"])


def _stage(stage: Sequence[Mapping[str, str]], has_scratch: bool) -> list[str]:
    made = [*piece("stage").splitlines()]
    for number, item in enumerate(stage):
        if set(item) != {"from", "to"} or not all(item.values()):
            raise ValueError(f"stage: {dict(item)!r} must have both from and to, and nothing else")
        to = item["to"]
        if not to.startswith(("/", "$")):
            if not has_scratch:
                raise ValueError(
                    f"stage.to={to!r}: must be an absolute path, or give scratch, the folder it then lies in"
                )
            to = f"${SCRATCH}/{to}"
        made += [
            *_export("site_from", item["from"], f"stage[{number}].from"),
            *_export("site_to", to, f"stage[{number}].to"),
            'if [ "${SLURM_NNODES:-1}" -gt 1 ]; then',
            '  srun --nodes="$SLURM_NNODES" --ntasks="$SLURM_NNODES" --ntasks-per-node=1 bash -c \\',
            '    "$(declare -f site_fail site_stage); site_stage \\"\\$site_from\\" \\"\\$site_to\\"" || exit 2',
            "else",
            '  site_stage "$site_from" "$site_to"',
            "fi",
        ]
    return made
