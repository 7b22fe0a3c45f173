#!/usr/bin/env bash
# ALQ, seed 1: one experiment of the sweep cifar10_full_resnet32; written by grid_run.py
# bash run.sh works from any folder. Exit codes: 0 done, 75 checkpointed on a signal, 2 bad settings, 3 diverged,
# 4 another process has its folder, else a crash
set -u
checkout="$(dirname "${BASH_SOURCE[0]}")/../../.."
CDPATH='' cd -- "${NUQ_CODE:-$checkout}" || exit 2
if [ -n "${SUBMITIT_EXECUTOR:-}" ] && [ -z "${NUQ_NPROC:-}" ]; then # a job script of before these names calls
  NUQ_NPROC="${NPROC:-}" NUQ_PYTHON="${NUQ_PYTHON:-${PYTHON:-}}"
fi
if [ -z "${NUQ_PYTHON:-}" ]; then
  if [ -x .venv/bin/python ]; then NUQ_PYTHON=.venv/bin/python; else NUQ_PYTHON=python; fi
fi
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

run_dir=runs/x/alq
overrides=(
  method=alq
  data=cifar10
  model=resnet32
  optim=sgd
  schedule=step
  workers=4
  optim.lr=0.1
  optim.momentum=0.9
  optim.weight_decay=0.0001
  'schedule.at=[40000,60000]'
  schedule.factor=0.1
  measure.every=100
  batch_size=128
  steps=80000
  eval_every=2000
  method.statistics=fresh
  method.num_samples=10
  method.scope=model
  method.bits=3
  method.bucket_size=8192
  'method.update_at=[100,2000]'
  method.update_every=10000
  method.norm=l2
  method.rounding=stochastic
  method.fit=mixture
  method.solver=paper
  method.weights=norm
  method.symmetric=false
  method.num_components=50
  seed=1
  method.objective=message
  'method.rotation='"'"'none'"'"''
  method.coding=packed
  data.augment=true
  model.batch_norm=true
  optim.nesterov=false
  measure.num_samples=10
  untrain.steps=0
  untrain.lr=0.001
  untrain.std=0.001
  trajectory=method
  eval_train=true
  eval_batch_size=1000
  threads=1
  stand_in=false
  run_dir=runs/x/alq
)

mkdir -p "$run_dir" || exit 2
log="$run_dir/stdout.log"
if [ -t 1 ]; then exec > >(tee -i -a "$log") 2>&1; else exec >>"$log" 2>&1; fi
export PYTHONUNBUFFERED=1

# This run starts when these are done; exit code 5: one of them is not.
firsts=(
  runs/cifar10_full_resnet32/qsgd-s1
  'runs/cifar10_full_resnet32/it'"'"'s'
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

# One rank per allotted device; never more ranks than workers.
ranks="${NUQ_NPROC:-1}"
if [ "$ranks" -gt 4 ]; then ranks=4; fi

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
shutdown_s="${NUQ_SHUTDOWN_S:-100}"
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
' 20000 32000 "$SLURM_JOB_ID")"
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
