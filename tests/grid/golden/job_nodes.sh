#!/usr/bin/env bash
# 3 experiments of nuq.x, one after another; what is done is skipped; written by grid_run.py
# Exit codes: 0 all done, 75 checkpointed on a signal or in other hands (please requeue), 1 some failed
set -u
case "${BASH_SOURCE[0]}" in
  /*) ended="${BASH_SOURCE[0]%.sh}.ended" ;;
  *) ended="$PWD/${BASH_SOURCE[0]%.sh}.ended" ;;
esac
CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")/../../.." || exit 2
child=
signalled=
interrupted=
forward() {
  if [ "$signalled" != TERM ]; then signalled="$1"; fi
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
export NUQ_NPROC="${NUQ_NPROC:-4}"
export NUQ_NODES="${NUQ_NODES:-2}"
runs=(
  runs/x/a
  runs/x/b
  runs/x/c
)

declare -A before=()
if [ "${SLURM_RESTART_COUNT:-0}" -eq 0 ]; then
  : >"$ended"
elif [ -f "$ended" ]; then
  while read -r code run; do
    case "${code%@*}" in '' | *[!0-9]*) ;; *) before["$run"]="${code%@*}" ;; esac
  done <"$ended"
fi

# Whether this run is over; its exit code in $code.
is_over() {
  code=0
  if grep -q '"state"[[:space:]]*:[[:space:]]*"done"' "$1/status.json" 2>/dev/null; then
    echo "done already: $1"
    return 0
  fi
  code="${before[$1]:-75}"
  if [ "$code" -eq 75 ]; then return 1; fi
  echo "ended before the requeue with exit code $code: $1"
}
start() {
  echo "$(date '+%F %T') start $1"
  bash "$1/run.sh" &
  finish
  echo "$(date '+%F %T') exit code $code: $1"
  if [ "$code" -ne 4 ]; then echo "$code${SLURM_RESTART_COUNT:+@$SLURM_RESTART_COUNT} $1" >>"$ended"; fi
}

failed=()
held=()
for index in "${!runs[@]}"; do
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

if [ "${#failed[@]}" -gt 0 ]; then
  echo "${#failed[@]} of ${#runs[@]} failed (exit code, folder; see stdout.log there):"
  printf '  %s\n' "${failed[@]}"
fi
if [ "${#held[@]}" -gt 0 ]; then
  echo "${#held[@]} of ${#runs[@]} in the hands of other processes: asking to be requeued, to look again"
  echo "held${SLURM_RESTART_COUNT:+@$SLURM_RESTART_COUNT}" >>"$ended" # of such lives there may be any number
  exit 75
fi
if [ "${#failed[@]}" -gt 0 ]; then exit 1; fi
echo "all ${#runs[@]} done"
