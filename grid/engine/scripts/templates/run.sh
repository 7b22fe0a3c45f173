
run_dir=@run_dir@
overrides=(
@overrides@
)

mkdir -p "$run_dir" || exit 2
log="$run_dir/stdout.log"
if [ -t 1 ]; then exec > >(tee -i -a "$log") 2>&1; else exec >>"$log" 2>&1; fi
export PYTHONUNBUFFERED=1
@after@
# One rank per allotted device; never more ranks than workers.
ranks="${NUQ_NPROC:-1}"
if [ "$ranks" -gt @workers@ ]; then ranks=@workers@; fi

if [ "$ranks" -le 1 ]; then
  "$NUQ_PYTHON" main.py "${overrides[@]}" &
  finish
  exit "$code"
fi

# torchrun swallows the ranks' exit codes: rank 0 leaves its own in a file, for status.json may be written by another job's ranks.
unset OMP_DYNAMIC
export NUQ_EXIT_CODE="$run_dir/.exit_code.$$.tmp"
rm -f "$NUQ_EXIT_CODE"
nodes="${NUQ_NODES:-1}"
for most in "${SLURM_JOB_NUM_NODES:-1}" "$ranks"; do
  if [ "$nodes" -gt "$most" ]; then nodes="$most"; fi
done
shutdown_s="${NUQ_SHUTDOWN_S:-@shutdown_s@}"
if [ "$nodes" -le 1 ]; then
  "$NUQ_PYTHON" -m torch.distributed.run --standalone --nproc-per-node="$ranks" \
    --signals-to-handle=SIGTERM,SIGINT,SIGUSR2 --shutdown-timeout="$shutdown_s" main.py "${overrides[@]}" &
else
  # This shell runs on the first node of the job, where the ranks meet: its port has to be free here.
  first="$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)"
  if ! getent hosts "$first" >/dev/null; then
    first="$(scontrol show node -o "$first" | sed -n 's/.* NodeAddr=\([^ ]*\).*/\1/p')"
  fi
  port="$("$NUQ_PYTHON" -c '
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
' @ports@ "$SLURM_JOB_ID")"
  if [ -z "$first" ] || [ -z "$port" ]; then
    echo "run.sh: the ranks have no place to meet: first node '$first' of $SLURM_JOB_NODELIST, port '$port'" >&2
    exit 1
  fi
  # Rank 0 is on this node, and its address is told: left to themselves, nodes may call themselves localhost.  One node may
  # leave before the others, at a signal above all: rank 0 is given time to save, then srun ends what is left.  A TERM
  # makes srun kill its tasks at once, so it gets USR2 for it, which it hands on.
  trap 'forward USR2' USR2 TERM INT
  if [ -n "$signalled" ]; then signalled=USR2; fi
  srun --nodes="$nodes" --ntasks="$nodes" --ntasks-per-node=1 --export=ALL --kill-on-bad-exit=0 --wait="$shutdown_s" \
    --cpus-per-task="$((${SLURM_CPUS_PER_TASK:-1} * ${SLURM_NTASKS_PER_NODE:-1}))" \
    bash -c 'exec "$0" -m torch.distributed.run --node-rank="$SLURM_NODEID" "$@"' "$NUQ_PYTHON" \
    --nnodes="$nodes" --nproc-per-node="$((ranks / nodes))" \
    --rdzv-backend=static --rdzv-endpoint="$first:$port" --rdzv-id="$SLURM_JOB_ID.${SLURM_RESTART_COUNT:-0}.$$" \
    --signals-to-handle=SIGTERM,SIGINT,SIGUSR2 --shutdown-timeout="$shutdown_s" main.py "${overrides[@]}" &
fi
finish
told="$(cat "$NUQ_EXIT_CODE" 2>/dev/null)"
rm -f "$NUQ_EXIT_CODE"
if [ "$code" -ne 0 ]; then
  if [ -n "$told" ]; then code="$told"; elif [ -n "$signalled" ]; then code=75; fi
fi
exit "$code"
