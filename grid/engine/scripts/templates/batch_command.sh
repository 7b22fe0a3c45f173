#: The batch shell alone gets USR2 some time before the time limit; it hands it on, and requeues its own array element by
#: its own name (SLURM_JOB_ID of one element equals the id of the whole array).  A TERM to a job that the controller is
#: ending already is scancel, or a requeue of SLURM's own: both have the last word.  An element that SLURM has started
#: again, for it had given this node up, is another shell's.
cd @root@ || exit 2
@start@
finish
if [ "$code" -eq 75 ]; then
  element="${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}"
  job="$(scontrol show job -o "$element")"
  state="$(sed -n 's/.*JobState=\([A-Z_]*\).*/\1/p' <<<"$job")"
  restarts="$(sed -n 's/.* Restarts=\([0-9]*\).*/\1/p' <<<"$job")"
  held="$(grep -c '^held' @script@_"$SLURM_ARRAY_TASK_ID".ended 2>/dev/null)" # lives that found other processes at work
  case "$signalled $state" in
    *' PENDING' | 'TERM COMPLETING' | 'TERM CANCELLED')
      echo "SLURM ends or requeues this job by itself; if it was cancelled, submit this file again to go on"
      exit "$code"
      ;;
  esac
  if [ "${restarts:-0}" -gt "${SLURM_RESTART_COUNT:-0}" ]; then
    echo "SLURM has started this job again meanwhile"
  elif [ "$((${SLURM_RESTART_COUNT:-0} - ${held:-0}))" -ge @max_requeues@ ]; then
    echo "not requeued after ${SLURM_RESTART_COUNT:-0} restarts; submit this file again to go on"
  elif @requeue@ "$element"; then
    exit 0
  fi
fi
exit "$code"