#: The batch shell alone gets USR2 some time before the time limit; it hands it on, and requeues its own array element by
#: its own name (SLURM_JOB_ID of one element equals the id of the whole array).  SLURM grants a requeue to a cancelled
#: job, too: so after a TERM, which is scancel, a requeue of SLURM's own or somebody's kill, nothing is requeued unless
#: SLURM says that it was the time limit.  An empty answer says nothing: the controller may be down for a moment.  An
#: element that SLURM has started again, for it had given this node up, is another shell's.
cd @root@ || exit 2
# what binds is of the step in which sbatch was called
unset @binding@
@start@
finish
if [ "$code" -eq 75 ]; then
  element="${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}"
  held="$(grep -c '^held' @script@_"$SLURM_ARRAY_TASK_ID".ended 2>/dev/null)" # lives that found other processes at work
  for pause in 0 5 20 60; do
    sleep "$pause"
    before="$signalled"
    job="$(scontrol show job -o "$element")"
    if [ -z "$job" ] || [ "$signalled" != "$before" ]; then continue; fi
    read -r state reason <<<"$(sed -n 's/.* JobState=\([A-Z_]*\) Reason=\([^ ]*\) .*/\1 \2/p' <<<"$job")"
    restarts="$(sed -n 's/.* Restarts=\([0-9]*\).*/\1/p' <<<"$job")"
    case "$signalled $state" in
      TERM* | *' COMPLETING' | *' CANCELLED') is_ended=1 ;;
      *) is_ended= ;;
    esac
    if [ "${restarts:-0}" -gt "${SLURM_RESTART_COUNT:-0}" ]; then
      echo "SLURM has started this job again meanwhile"
    elif [ "$state" = PENDING ]; then
      echo "SLURM has queued this job again by itself"
    elif [ -n "$is_ended" ] && [ "$reason" != TimeLimit ]; then
      echo "not requeued after a SIGTERM (SLURM says $state, reason $reason): SLURM may queue this job again by itself;"
      echo "  else retry goes on, or submit this file again"
    elif [ "$((${SLURM_RESTART_COUNT:-0} - ${held:-0}))" -ge @max_requeues@ ]; then
      echo "not requeued after ${SLURM_RESTART_COUNT:-0} restarts; submit this file again to go on"
    elif scontrol requeue "$element"; then
      exit 0
    else
      continue
    fi
    break
  done
fi
exit "$code"