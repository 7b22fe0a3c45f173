#!/usr/bin/env bash
# 3 experiments of nuq.x, 2 at a time; what is done is skipped; written by grid_run.py
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
set +u
module load a
set -u
export NUQ_NPROC="${NUQ_NPROC:-2}"
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
  echo "$(date '+%F %T') start $1 in slot $NUQ_SLOT"
  bash "$1/run.sh" >/dev/null &
  finish
  echo "$(date '+%F %T') exit code $code: $1"
  if [ "$code" -ne 4 ]; then echo "$code${SLURM_RESTART_COUNT:+@$SLURM_RESTART_COUNT} $1" >>"$ended"; fi
}

failed=()
held=()
gpus=()
if [ -n "${CUDA_VISIBLE_DEVICES+set}" ]; then
  IFS=, read -r -a gpus <<<"$CUDA_VISIBLE_DEVICES"
else
  found=(/proc/driver/nvidia/gpus/*)
  for ((index = 0; index < 4; index++)); do
    if [ ! -e "${found[0]}" ] || [ "$index" -lt "${#found[@]}" ]; then gpus+=("$index"); fi
  done
fi
taken="$(mktemp -d)" || exit 2
trap 'rm -rf -- "$taken"' EXIT

slot() {
  trap - EXIT
  trap 'forward USR2' USR2
  trap 'forward TERM' TERM INT
  export NUQ_SLOT="$1"
  if [ "${#gpus[@]}" -gt 0 ]; then
    CUDA_VISIBLE_DEVICES=
    for ((index = $1 * 2; index < $1 * 2 + 2 && index < $1 * 2 + ${#gpus[@]}; index++)); do
      CUDA_VISIBLE_DEVICES+="${CUDA_VISIBLE_DEVICES:+,}${gpus[$((index % ${#gpus[@]}))]}"
    done
    export CUDA_VISIBLE_DEVICES
  fi
  for index in "${!runs[@]}"; do
    if [ -n "$signalled" ] || [ -e "$taken/stop" ]; then break; fi
    if ! mkdir "$taken/$index" 2>/dev/null; then continue; fi
    if ! is_over "${runs[$index]}"; then start "${runs[$index]}"; fi
    echo "$code" >"$taken/$index/code"
    if [ "$code" -eq 75 ]; then : >"$taken/stop"; fi
  done
  exit 0
}

slots=()
to_slots() {
  signalled="${signalled:-$1}"
  interrupted=1
  if [ "${#slots[@]}" -gt 0 ]; then kill -s "$1" "${slots[@]}" 2>/dev/null; fi
}
trap 'to_slots USR2' USR2
trap 'to_slots TERM' TERM INT
for ((number = 0; number < 2; number++)); do
  slot "$number" &
  slots+=("$!")
  if [ -n "$signalled" ]; then kill -s "$signalled" "$!" 2>/dev/null; fi
done
for number in "${slots[@]}"; do
  interrupted=1
  until [ -z "$interrupted" ] && ! kill -0 "$number" 2>/dev/null; do
    interrupted=
    wait "$number"
  done
done

left=0
for index in "${!runs[@]}"; do
  code="$(cat "$taken/$index/code" 2>/dev/null)"
  if [ -z "$code" ] && [ -z "$signalled" ] && [ ! -e "$taken/stop" ]; then code=137; fi # its slot was killed
  case "$code" in
    0) ;;
    4) held+=("${runs[$index]}") ;;
    '' | 75) left=$((left + 1)) ;;
    *) failed+=("$code ${runs[$index]}") ;;
  esac
done
if [ "$left" -gt 0 ]; then
  echo "stopped by a signal, $left of ${#runs[@]} left: asking to be requeued"
  exit 75
fi

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
