#: The site's lines may change the environment and may end the script, so the element's own script follows in their
#: shell;  a signal before its time ends that shell, which counts as 75.
@exports@
if [ ! -s @job@ ]; then # tells whoever missed the answer of sbatch
  echo "$SLURM_ARRAY_JOB_ID" >@job@.$$ && mv -f @job@.$$ @job@
fi
(
@preamble@exec bash @script@_"$SLURM_ARRAY_TASK_ID".sh
) &