#: The site's lines may change the environment and may end the script, so the element's own script follows in their
#: shell;  a signal before its time ends that shell, which counts as 75.
@exports@
if [ ! -s @job@ ]; then # tells whoever missed the answer of sbatch
  echo "$SLURM_ARRAY_JOB_ID" >@job@.$$ && mv -f @job@.$$ @job@
fi
requeue() { # the controller may be down for a moment
  for pause in 0 5 20 60; do
    sleep "$pause"
    if scontrol requeue "$1"; then return 0; fi
  done
  return 1
}
(
@preamble@exec bash @script@_"$SLURM_ARRAY_TASK_ID".sh
) &