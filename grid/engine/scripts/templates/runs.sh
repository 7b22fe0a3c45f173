export NUQ_NPROC="${NUQ_NPROC:-@ranks@}"
@nodes@runs=(
@runs@
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
  echo "$(date '+%F %T') start $1@where@"
  bash "$1/run.sh"@output@ &
  finish
  echo "$(date '+%F %T') exit code $code: $1"
  if [ "$code" -ne 4 ]; then echo "$code${SLURM_RESTART_COUNT:+@$SLURM_RESTART_COUNT} $1" >>"$ended"; fi
}

failed=()
held=()
