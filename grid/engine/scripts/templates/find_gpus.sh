#: The GPUs that SLURM (or you) allotted, else those of this machine, as far as this script may use them.
gpus=()
if [ -n "${CUDA_VISIBLE_DEVICES+set}" ]; then
  IFS=, read -r -a gpus <<<"$CUDA_VISIBLE_DEVICES"
else
  found=(/proc/driver/nvidia/gpus/*)
  for ((index = 0; index < @num_gpus@; index++)); do
    if [ ! -e "${found[0]}" ] || [ "$index" -lt "${#found[@]}" ]; then gpus+=("$index"); fi
  done
fi
