
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
