"""An experiment, and a share of a sweep, as the text of bash scripts: pure functions of values."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from grid.engine.sweeps.experiments import Experiment
from grid.engine.sweeps.overrides import chosen, pinned
from grid.engine.sweeps.resources import Resources

SHUTDOWN_S = 100  # torchrun waits so long for a checkpoint after a signal; jobs are warned 120 s before their end
PORTS = (20000, 32000)  # of rendezvous: below those that systems hand out by themselves

_HEAD = """#!/usr/bin/env bash
# {what}
# {how}
set -u
"""

_HERE = "CDPATH='' cd -- {checkout} || exit 2\n"

# A job that was submitted runs the code as it was then, by hand it is the code of today.
_CODE = """checkout={checkout}
CDPATH='' cd -- "${{NUQ_CODE:-$checkout}}" || exit 2
"""

_PYTHON = """if [ -z "${PYTHON:-}" ]; then
  if [ -x .venv/bin/python ]; then PYTHON=.venv/bin/python; else PYTHON=python; fi
fi
"""

# A signal interrupts `wait`: it is passed on, and the child's own code comes from the wait after it.  Two cases have no
# such code and count as 75: a child that died of the signal, for it had not begun to listen and its last checkpoint
# stands; and -1 or 127, where bash 5.2 loses the code of a child that ends in the moment of the signal.  Of two signals
# in quick succession (SLURM's own and the one handed on) the second can end a `wait` without its trap: so the child is
# looked for.
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
  until [ -n "$code" ] && [ -z "$interrupted" ] && { [ "$code" -lt 128 ] || ! kill -0 "$child" 2>/dev/null; }; do
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

# torchrun swallows the ranks' exit codes: rank 0 leaves its own in a file, for status.json may be written by another job's ranks.
unset OMP_DYNAMIC
export NUQ_EXIT_CODE="$run_dir/.exit_code.$$.tmp"
rm -f "$NUQ_EXIT_CODE"
nodes="${{NUQ_NODES:-1}}"
for most in "${{SLURM_JOB_NUM_NODES:-1}}" "$ranks"; do
  if [ "$nodes" -gt "$most" ]; then nodes="$most"; fi
done
shutdown_s="${{NUQ_SHUTDOWN_S:-{shutdown_s}}}"
if [ "$nodes" -le 1 ]; then
  "$PYTHON" -m torch.distributed.run --standalone --nproc-per-node="$ranks" \\
    --signals-to-handle=SIGTERM,SIGINT,SIGUSR2 --shutdown-timeout="$shutdown_s" main.py "${{overrides[@]}}" &
else
  # This shell runs on the first node of the job, where the ranks meet: its port has to be free here.
  first="$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)"
  if ! getent hosts "$first" >/dev/null; then
    first="$(scontrol show node -o "$first" | sed -n 's/.* NodeAddr=\\([^ ]*\\).*/\\1/p')"
  fi
  port="$("$PYTHON" -c '
import socket, sys
low, high, job = map(int, sys.argv[1:])
for number in range(high - low):
    port = low + (8 * job + number) % (high - low)
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            continue
    print(port)
    break
' {ports} "$SLURM_JOB_ID")"
  if [ -z "$first" ] || [ -z "$port" ]; then
    echo "run.sh: the ranks have no place to meet: first node '$first' of $SLURM_JOB_NODELIST, port '$port'" >&2
    exit 1
  fi
  # Rank 0 is on this node, and its address is told: left to themselves, nodes may call themselves localhost.  One node may
  # leave before the others, at a signal above all: rank 0 is given time to save, then srun ends what is left.  A TERM
  # makes srun kill its tasks at once, so it gets USR2 for it, which it hands on.
  trap 'forward USR2' USR2 TERM INT
  if [ -n "$signalled" ]; then signalled=USR2; fi
  srun --nodes="$nodes" --ntasks="$nodes" --ntasks-per-node=1 --export=ALL --kill-on-bad-exit=0 --wait="$shutdown_s" \\
    --cpus-per-task="$((${{SLURM_CPUS_PER_TASK:-1}} * ${{SLURM_NTASKS_PER_NODE:-1}}))" \\
    bash -c 'exec "$0" -m torch.distributed.run --node-rank="$SLURM_NODEID" "$@"' "$PYTHON" \\
    --nnodes="$nodes" --nproc-per-node="$((ranks / nodes))" \\
    --rdzv-backend=static --rdzv-endpoint="$first:$port" --rdzv-id="$SLURM_JOB_ID.${{SLURM_RESTART_COUNT:-0}}.$$" \\
    --signals-to-handle=SIGTERM,SIGINT,SIGUSR2 --shutdown-timeout="$shutdown_s" main.py "${{overrides[@]}}" &
fi
finish
told="$(cat "$NUQ_EXIT_CODE" 2>/dev/null)"
rm -f "$NUQ_EXIT_CODE"
if [ "$code" -ne 0 ]; then
  if [ -n "$told" ]; then code="$told"; elif [ -n "$signalled" ]; then code=75; fi
fi
exit "$code"
"""


def run_script(experiment: Experiment, run_dir: str, checkout: str) -> str:
    """``run.sh``: one experiment from any folder, with the exit codes of main.py.

    ``checkout`` is the bash expression that names the checkout (see ``from_script``); ``run_dir`` is seen from there,
    and from the snapshot that NUQ_CODE may name in its place.  NPROC ranks are spread over NUQ_NODES nodes of a SLURM
    job.
    """
    label = " ".join(experiment.label.split()) or experiment.name
    head = _HEAD.format(
        what=f"{label}, seed {experiment.seed}: one experiment of the sweep {experiment.folder}; written by "
        f"grid_run.py",
        how="bash run.sh works from any folder. Exit codes: 0 done, 75 checkpointed on a signal, 2 bad settings, 3 "
        "diverged,"
        "\n# 4 another process has its folder, else a crash",
    )
    lines = "\n".join(f"  {shlex.quote(text)}" for text in pinned(experiment, run_dir))
    body = _RUN.format(
        run_dir=shlex.quote(run_dir),
        overrides=lines,
        workers=experiment.config["workers"],
        shutdown_s=SHUTDOWN_S,
        ports="{} {}".format(*PORTS),
    )
    return head + _CODE.format(checkout=checkout) + _PYTHON + WAIT + body


def from_script(steps_up: int) -> str:
    """The bash expression for the folder so many steps above the script's own."""
    return '"$(dirname "${BASH_SOURCE[0]}")' + "/.." * steps_up + '"'


# Exit codes are kept beside the script, with the restart count of the life of the job that saw them (none: its first).
# After a requeue, what ended for good before it is not run again; a script that is started anew runs everything that is
# not done.  A run that another process has (4) has not ended: it is looked for again after a requeue.
_LEDGER = """case "${{BASH_SOURCE[0]}}" in
  /*) ended="${{BASH_SOURCE[0]%.sh}}.ended" ;;
  *) ended="$PWD/${{BASH_SOURCE[0]%.sh}}.ended" ;;
esac
"""

_RUNS = """export NPROC="${{NPROC:-{ranks}}}"
{nodes}runs=(
{runs}
)

declare -A before=()
if [ "${{SLURM_RESTART_COUNT:-0}}" -eq 0 ]; then
  : >"$ended"
elif [ -f "$ended" ]; then
  while read -r code run; do
    case "${{code%@*}}" in '' | *[!0-9]*) ;; *) before["$run"]="${{code%@*}}" ;; esac
  done <"$ended"
fi

# Whether this run is over; its exit code in $code.
is_over() {{
  code=0
  if grep -q '"state"[[:space:]]*:[[:space:]]*"done"' "$1/status.json" 2>/dev/null; then
    echo "done already: $1"
    return 0
  fi
  code="${{before[$1]:-75}}"
  if [ "$code" -eq 75 ]; then return 1; fi
  echo "ended before the requeue with exit code $code: $1"
}}
start() {{
  echo "$(date '+%F %T') start $1{where}"
  bash "$1/run.sh"{output} &
  finish
  echo "$(date '+%F %T') exit code $code: $1"
  if [ "$code" -ne 4 ]; then echo "$code${{SLURM_RESTART_COUNT:+@$SLURM_RESTART_COUNT}} $1" >>"$ended"; fi
}}

failed=()
held=()
"""

_ONE_AFTER_ANOTHER = """for index in "${!runs[@]}"; do
  run="${runs[$index]}"
  if ! is_over "$run"; then
    if [ -n "$signalled" ]; then
      echo "stopped by a signal before $run, $((${#runs[@]} - index)) of ${#runs[@]} left: asking to be requeued"
      exit 75
    fi
    start "$run"
    if [ "$code" -eq 75 ]; then
      echo "checkpointed, $((${#runs[@]} - index)) of ${#runs[@]} left: asking to be requeued"
      exit 75
    fi
  fi
  case "$code" in
    0) ;;
    4) held+=("$run") ;;
    *) failed+=("$code $run") ;;
  esac
done
"""

# The GPUs that SLURM (or you) allotted, else those of this machine, as far as this script may use them.
_FIND_GPUS = """gpus=()
if [ -n "${{CUDA_VISIBLE_DEVICES+set}}" ]; then
  IFS=, read -r -a gpus <<<"$CUDA_VISIBLE_DEVICES"
else
  found=(/proc/driver/nvidia/gpus/*)
  for ((index = 0; index < {num_gpus}; index++)); do
    if [ ! -e "${{found[0]}}" ] || [ "$index" -lt "${{#found[@]}}" ]; then gpus+=("$index"); fi
  done
fi
"""

_OWN_GPUS = """  if [ "${{#gpus[@]}}" -gt 0 ]; then
    CUDA_VISIBLE_DEVICES=
    for ((index = {first}; index < {first} + {per_run} && index < {first} + ${{#gpus[@]}}; index++)); do
      CUDA_VISIBLE_DEVICES+="${{CUDA_VISIBLE_DEVICES:+,}}${{gpus[$((index % ${{#gpus[@]}}))]}}"
    done
    export CUDA_VISIBLE_DEVICES
  fi
"""

# A slot takes the next run that no other has taken (making a folder is atomic) and leaves its exit code there.  This
# shell only hands signals on and waits: first for the signal's sake, then for the slot itself.
_SLOTS = """{find_gpus}taken="$(mktemp -d)" || exit 2
trap 'rm -rf -- "$taken"' EXIT

slot() {{
  trap - EXIT
  trap 'forward USR2' USR2
  trap 'forward TERM' TERM INT
  export NUQ_SLOT="$1"
{own_gpus}  for index in "${{!runs[@]}}"; do
    if [ -n "$signalled" ] || [ -e "$taken/stop" ]; then break; fi
    if ! mkdir "$taken/$index" 2>/dev/null; then continue; fi
    if ! is_over "${{runs[$index]}}"; then start "${{runs[$index]}}"; fi
    echo "$code" >"$taken/$index/code"
    if [ "$code" -eq 75 ]; then : >"$taken/stop"; fi
  done
  exit 0
}}

slots=()
to_slots() {{
  signalled="${{signalled:-$1}}"
  interrupted=1
  if [ "${{#slots[@]}}" -gt 0 ]; then kill -s "$1" "${{slots[@]}}" 2>/dev/null; fi
}}
trap 'to_slots USR2' USR2
trap 'to_slots TERM' TERM INT
for ((number = 0; number < {slots}; number++)); do
  slot "$number" &
  slots+=("$!")
  if [ -n "$signalled" ]; then kill -s "$signalled" "$!" 2>/dev/null; fi
done
for number in "${{slots[@]}}"; do
  interrupted=1
  until [ -z "$interrupted" ] && ! kill -0 "$number" 2>/dev/null; do
    interrupted=
    wait "$number"
  done
done

left=0
for index in "${{!runs[@]}}"; do
  code="$(cat "$taken/$index/code" 2>/dev/null)"
  if [ -z "$code" ] && [ -z "$signalled" ] && [ ! -e "$taken/stop" ]; then code=137; fi # its slot was killed
  case "$code" in
    0) ;;
    4) held+=("${{runs[$index]}}") ;;
    '' | 75) left=$((left + 1)) ;;
    *) failed+=("$code ${{runs[$index]}}") ;;
  esac
done
if [ "$left" -gt 0 ]; then
  echo "stopped by a signal, $left of ${{#runs[@]}} left: asking to be requeued"
  exit 75
fi
"""

_RESULT = """
if [ "${#failed[@]}" -gt 0 ]; then
  echo "${#failed[@]} of ${#runs[@]} failed (exit code, folder; see stdout.log there):"
  printf '  %s\\n' "${failed[@]}"
fi
if [ "${#held[@]}" -gt 0 ]; then
  echo "${#held[@]} of ${#runs[@]} in the hands of other processes: asking to be requeued, to look again"
  echo "held${SLURM_RESTART_COUNT:+@$SLURM_RESTART_COUNT}" >>"$ended" # of such lives there may be any number
  exit 75
fi
if [ "${#failed[@]}" -gt 0 ]; then exit 1; fi
echo "all ${#runs[@]} done"
"""


def job_script(
    title: str,
    run_dirs: Sequence[str],
    checkout: str,
    resources: Resources | int,
    *,
    parallel: int = 1,
    preamble: Sequence[str] = (),
) -> str:
    """A share of a sweep, one run after another or ``parallel`` at a time: 0 all done, 75 please requeue, 1 some
    failed.

    ``resources`` are those of one experiment (a number: so many ranks).  ``preamble`` are lines of bash to begin with.
    ValueError for several runs at a time on several nodes.
    """
    if isinstance(resources, int):
        resources = Resources(ranks=resources)
    if parallel < 1 or (parallel > 1 and resources.nodes > 1):
        raise ValueError(
            f"parallel={parallel}: must be 1 for experiments on several nodes (nodes={resources.nodes}), else at "
            f"least 1"
        )
    place = _HERE.format(checkout=checkout)
    if not run_dirs:
        what = f"An empty share of {title}: there are more scripts than experiments."
        return (
            _HEAD.format(what=what, how="Written by grid_run.py.")
            + place
            + 'echo "nothing to do: more scripts than experiments"\n'
        )
    count = f"{len(run_dirs)} experiment{'s' if len(run_dirs) > 1 else ''}"
    pace = f"{parallel} at a time" if parallel > 1 else "one after another"
    head = _HEAD.format(
        what=f"{count} of {title}, {pace}; what is done is skipped; written by grid_run.py",
        how="Exit codes: 0 all done, 75 checkpointed on a signal or in other hands (please requeue), 1 some failed",
    )
    slots = min(parallel, len(run_dirs))
    runs = _RUNS.format(
        ranks=resources.ranks,
        nodes=f'export NUQ_NODES="${{NUQ_NODES:-{resources.nodes}}}"\n' if resources.nodes > 1 else "",
        runs="\n".join(f"  {shlex.quote(run)}" for run in run_dirs),
        where=" in slot $NUQ_SLOT" if slots > 1 else "",
        output=" >/dev/null" if slots > 1 else "",  # its log is its own also where this shell writes to a terminal
    )
    loose = "\n".join(["set +u", *preamble, "set -u", ""]) if preamble else ""
    return head + _LEDGER.format() + place + WAIT + loose + runs + _work(resources, slots) + _RESULT


def _work(resources: Resources, slots: int) -> str:
    if slots == 1:
        return _ONE_AFTER_ANOTHER
    num_gpus = resources.gpus_for(slots)
    find = own = ""
    if num_gpus:
        shared, per_run = resources.runs_per_gpu, resources.gpus_for(1)
        first = f"$1 / {shared}" if shared > 1 else f"$1 * {per_run}"
        find, own = _FIND_GPUS.format(num_gpus=num_gpus), _OWN_GPUS.format(first=first, per_run=per_run)
    return _SLOTS.format(find_gpus=find, own_gpus=own, slots=slots)


_TASK = """failed=
run() {
  "$PYTHON" main.py "$@"
  code=$?
  if [ "$code" -eq 75 ]; then exit 75; fi # checkpointed on a signal: start this file again to go on
  if [ "$code" -ne 0 ] && [ "$code" -ne 4 ]; then failed=1; fi # 4: another process has its folder
}
"""


def task_script(title: str, doc: str, experiments: Sequence[Experiment], command: str) -> str:
    """A task of ``pjobs/``: one plain command per experiment, to run as a whole or to copy from."""
    head = _HEAD.format(
        what=f"{title}: {doc.splitlines()[0]}",
        how=f"One command per experiment; a finished one returns at once. Written by `{command}`.",
    )
    parts = [head + _HERE.format(checkout=from_script(1)), _PYTHON, _TASK]
    for item in experiments:
        also = f" (also: {', '.join(item.aliases)})" if item.aliases else ""
        words = " ".join(shlex.quote(text) for text in chosen(item, f"runs/{item.folder}/{item.name}"))
        parts.append(f"\n# {item.label}{also}\nrun {words}\n")
    return "".join([*parts, '\nexit "${failed:-0}"\n'])
