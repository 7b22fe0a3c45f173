"""An experiment, and a share of a sweep, as the text of bash scripts: pure functions of values."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import args
from grid.engine.sweep import Experiment

SHUTDOWN_S = 100  # torchrun waits so long for a checkpoint after a signal; jobs are warned 120 s before their end

# --- overrides ----------------------------------------------------------------------------------------------------

_PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_./-]*\Z")
_RESERVED = {"true", "false", "null", "none", "inf", "nan", "yes", "no", "on", "off"}


def to_override(name: str, value: Any) -> str:
    """``name=value`` in Hydra's grammar, so that parsing gives the value back, whatever characters it holds."""
    return f"{name}={_value(value)}"


def _value(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case int():
            return str(value)
        case float():
            return repr(value) if math.isfinite(value) else str(value)
        case list() | tuple():
            return f"[{','.join(_value(item) for item in value)}]"
        case str():
            return value if _PLAIN.match(value) and value.lower() not in _RESERVED else _quoted(value)
        case _:
            raise ValueError(f"{value!r}: a setting must be a number, a text, a truth value, None or a list of these")


def _quoted(text: str) -> str:
    """Single quotes; backslashes count only before a quote (doubled there) and before ``${`` (OmegaConf's escape)."""
    text = re.sub(r"(\\*)\$\{", lambda found: found[1] * 2 + "\\${", text)
    text = re.sub(r"(\\*)'", lambda found: found[1] * 2 + "\\'", text)
    trailing = len(text) - len(text.rstrip("\\"))
    return "'" + text + "\\" * trailing + "'"


def pinned(experiment: Experiment, run_dir: str) -> list[str]:
    """Overrides that state every setting that can change a result, so that a default moved later changes nothing.

    Settings that cannot change a result appear only where the sweep sets them: ``NUQ_DATA`` and the like stay in force.
    """
    return _overrides({**_flat(experiment), "run_dir": run_dir})


def chosen(experiment: Experiment, run_dir: str) -> list[str]:
    """Only what the sweep sets: shorter, and true as long as the defaults stay."""
    return _overrides({**experiment.settings, "run_dir": run_dir})


def _overrides(settings: Mapping[str, Any]) -> list[str]:
    """Groups first, run_dir last."""
    groups = [name for name in args.GROUPS if name in settings]
    others = [name for name in settings if name not in args.GROUPS and name != "run_dir"]
    return [to_override(name, settings[name]) for name in [*groups, *others, "run_dir"]]


def _flat(experiment: Experiment) -> dict[str, Any]:
    """Dotted names of the settings that change results, and of those that the sweep sets."""
    result = args.result_settings(experiment.config)
    flat: dict[str, Any] = {group: result[group]["name"] for group in args.GROUPS}
    for key, value in result.items():
        if isinstance(value, Mapping):
            flat.update({f"{key}.{name}": part for name, part in value.items() if name != "name"})
        else:
            flat[key] = value
    return {**experiment.settings, **flat}


# --- scripts ------------------------------------------------------------------------------------------------------

_HEAD = """#!/usr/bin/env bash
# {what}
# {how}
set -u
CDPATH='' cd -- {checkout} || exit 2
"""

_PYTHON = """if [ -z "${PYTHON:-}" ]; then
  if [ -x .venv/bin/python ]; then PYTHON=.venv/bin/python; else PYTHON=python; fi
fi
"""

# A signal interrupts `wait`: it is passed on, and the child's own code comes from the wait after it.  Two cases have no
# such code and count as 75: a child that died of the signal, for it had not begun to listen and its last checkpoint
# stands; and -1 or 127, where bash 5.2 loses the code of a child that ends in the moment of the signal.
WAIT = """child=
signalled=
interrupted=
forward() {
  signalled="${signalled:-$1}"
  interrupted=1
  if [ -n "$child" ]; then kill -s "$1" "$child" 2>/dev/null; fi
}
trap 'forward USR2' USR2
trap 'forward TERM' TERM INT
finish() {
  child=$!
  if [ -n "$signalled" ]; then kill -s "$signalled" "$child" 2>/dev/null; fi
  code=
  until [ -n "$code" ] && [ -z "$interrupted" ]; do
    interrupted=
    wait "$child"
    code=$?
  done
  child=
  if [ -n "$signalled" ] && { [ "$code" -lt 0 ] || [ "$code" -gt 126 ]; }; then code=75; fi
}
"""

_RUN = """
run_dir={run_dir}
overrides=(
{overrides}
)

mkdir -p "$run_dir" || exit 2
log="$run_dir/stdout.log"
if [ -t 1 ]; then exec > >(tee -i -a "$log") 2>&1; else exec >>"$log" 2>&1; fi
export PYTHONUNBUFFERED=1

# One rank per allotted device; never more ranks than workers.
ranks="${{NPROC:-1}}"
if [ "$ranks" -gt {workers} ]; then ranks={workers}; fi

if [ "$ranks" -le 1 ]; then
  "$PYTHON" main.py "${{overrides[@]}}" &
  finish
  exit "$code"
fi

# torchrun swallows the ranks' exit codes: rank 0 leaves the true one in status.json.
unset OMP_DYNAMIC
before="$(cat "$run_dir/status.json" 2>/dev/null)"
"$PYTHON" -m torch.distributed.run --standalone --nproc-per-node="$ranks" \\
  --signals-to-handle=SIGTERM,SIGINT,SIGUSR2 --shutdown-timeout={shutdown_s} main.py "${{overrides[@]}}" &
finish
told=
if [ "$(cat "$run_dir/status.json" 2>/dev/null)" != "$before" ]; then
  told="$(sed -n 's/.*"exit_code": *\\([0-9][0-9]*\\).*/\\1/p' "$run_dir/status.json" | head -n 1)"
fi
if [ "$code" -ne 0 ]; then
  if [ -n "$told" ]; then code="$told"; elif [ -n "$signalled" ]; then code=75; fi
fi
exit "$code"
"""


def run_script(experiment: Experiment, run_dir: str, checkout: str) -> str:
    """``run.sh``: one experiment from any folder, with the exit codes of main.py.

    ``checkout`` is the bash expression that names the checkout (see ``from_script``); ``run_dir`` is seen from there.
    """
    label = " ".join(experiment.label.split()) or experiment.name
    head = _HEAD.format(
        what=f"{label}, seed {experiment.seed}: one experiment of the sweep {experiment.folder}; written by grid_run.py",
        how="bash run.sh works from any folder. Exit codes: 0 done, 75 checkpointed on a signal, 2 bad settings, 3 diverged, else a crash",
        checkout=checkout,
    )
    lines = "\n".join(f"  {shlex.quote(text)}" for text in pinned(experiment, run_dir))
    body = _RUN.format(run_dir=shlex.quote(run_dir), overrides=lines, workers=experiment.config["workers"], shutdown_s=SHUTDOWN_S)
    return head + _PYTHON + WAIT + body


def from_script(steps_up: int) -> str:
    """The bash expression for the folder so many steps above the script's own."""
    return '"$(dirname "${BASH_SOURCE[0]}")' + "/.." * steps_up + '"'


_JOB = """export NPROC="${{NPROC:-{ranks}}}"
runs=(
{runs}
)

failed=()
for index in "${{!runs[@]}}"; do
  run="${{runs[$index]}}"
  if grep -q '"state"[[:space:]]*:[[:space:]]*"done"' "$run/status.json" 2>/dev/null; then
    echo "done already: $run"
    continue
  fi
  if [ -n "$signalled" ]; then
    echo "stopped by a signal before $run, $((${{#runs[@]}} - index)) of ${{#runs[@]}} left: asking to be requeued"
    exit 75
  fi
  echo "$(date '+%F %T') start $run"
  bash "$run/run.sh" &
  finish
  echo "$(date '+%F %T') exit code $code: $run"
  if [ "$code" -eq 75 ]; then
    echo "checkpointed, $((${{#runs[@]}} - index)) of ${{#runs[@]}} left: asking to be requeued"
    exit 75
  fi
  if [ "$code" -ne 0 ]; then failed+=("$code $run"); fi
done

if [ "${{#failed[@]}}" -gt 0 ]; then
  echo "${{#failed[@]}} of ${{#runs[@]}} failed (exit code, folder; see stdout.log there):"
  printf '  %s\\n' "${{failed[@]}}"
  exit 1
fi
echo "all ${{#runs[@]}} done"
"""


def job_script(title: str, run_dirs: Sequence[str], checkout: str, ranks: int) -> str:
    """A share of a sweep, one run after another: 0 all done, 75 please requeue, 1 some failed."""
    if not run_dirs:
        what = f"An empty share of {title}: there are more scripts than experiments."
        return (
            _HEAD.format(what=what, how="Written by grid_run.py.", checkout=checkout)
            + 'echo "nothing to do: more scripts than experiments"\n'
        )
    count = f"{len(run_dirs)} experiment{'s' if len(run_dirs) > 1 else ''}"
    head = _HEAD.format(
        what=f"{count} of {title}, one after another; what is done is skipped; written by grid_run.py",
        how="Exit codes: 0 all done, 75 checkpointed on a signal (please requeue), 1 some failed",
        checkout=checkout,
    )
    return head + WAIT + _JOB.format(ranks=ranks, runs="\n".join(f"  {shlex.quote(run)}" for run in run_dirs))


_TASK = """failed=
run() {
  "$PYTHON" main.py "$@"
  code=$?
  if [ "$code" -eq 75 ]; then exit 75; fi # checkpointed on a signal: start this file again to go on
  if [ "$code" -ne 0 ]; then failed=1; fi
}
"""


def task_script(title: str, doc: str, experiments: Sequence[Experiment], command: str) -> str:
    """A task of ``pjobs/``: one plain command per experiment, to run as a whole or to copy from."""
    head = _HEAD.format(
        what=f"{title}: {doc.splitlines()[0]}",
        how=f"One command per experiment; a finished one returns at once. Written by `{command}`.",
        checkout=from_script(1),
    )
    parts = [head, _PYTHON, _TASK]
    for item in experiments:
        also = f" (also: {', '.join(item.aliases)})" if item.aliases else ""
        words = " ".join(shlex.quote(text) for text in chosen(item, f"runs/{item.folder}/{item.name}"))
        parts.append(f"\n# {item.label}{also}\nrun {words}\n")
    return "".join([*parts, '\nexit "${failed:-0}"\n'])
