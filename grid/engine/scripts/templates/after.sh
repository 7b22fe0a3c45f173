
# This run starts when these are done; exit code 5: one of them is not.
#: The files of another node may be seen late, so a job goes on looking for a while; other shells look once.
firsts=(
@firsts@
)
is_unmet() {
  for first in "${firsts[@]}"; do
    if ! grep -q '"state"[[:space:]]*:[[:space:]]*"done"' "$first/status.json" 2>/dev/null; then return 0; fi
  done
  return 1
}
patience_s="${SLURM_JOB_ID:+${NUQ_LAG_S:-120}}"
end=$((SECONDS + 10#0${patience_s%.*}))
while is_unmet; do
  if [ "$SECONDS" -ge "$end" ]; then
    echo "run.sh: not started, for it waits for $first, which is not done"
    exit 5
  fi
  sleep 1 &
  finish
  if [ -n "$signalled" ]; then exit 75; fi
done
