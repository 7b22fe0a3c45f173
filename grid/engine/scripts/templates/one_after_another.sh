for index in "${!runs[@]}"; do
  run="${runs[$index]}"
  if ! is_over "$run"; then
    if [ -n "$signalled" ]; then
      echo "stopped by a signal before $run, $((${#runs[@]} - index)) of ${#runs[@]} left: asking to be requeued"
      exit 75
    fi
    start "$run"
    if [ "$code" -eq 75 ]; then
      echo "checkpointed, $((${#runs[@]} - index)) of ${#runs[@]} left: asking to be requeued"
      exit 75
    fi
  fi
  case "$code" in
    0) ;;
    4) held+=("$run") ;;
    *) failed+=("$code $run") ;;
  esac
done
