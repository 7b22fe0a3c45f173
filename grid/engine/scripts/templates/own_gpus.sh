  if [ "${#gpus[@]}" -gt 0 ]; then
    CUDA_VISIBLE_DEVICES=
    for ((index = @first@; index < @first@ + @per_run@ && index < @first@ + ${#gpus[@]}; index++)); do
      CUDA_VISIBLE_DEVICES+="${CUDA_VISIBLE_DEVICES:+,}${gpus[$((index % ${#gpus[@]}))]}"
    done
    export CUDA_VISIBLE_DEVICES
  fi
