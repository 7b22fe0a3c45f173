#: A slot takes the next run that no other has taken (making a folder is atomic) and leaves its exit code there.  This
#: shell only hands signals on and waits: first for the signal's sake, then for the slot itself.
@find_gpus@taken="$(mktemp -d)" || exit 2
trap 'rm -rf -- "$taken"' EXIT

slot() {
  trap - EXIT
  trap 'forward USR2' USR2
  trap 'forward TERM' TERM INT
  export NUQ_SLOT="$1"
@own_gpus@  for index in "${!runs[@]}"; do
    if [ -n "$signalled" ] || [ -e "$taken/stop" ]; then break; fi
    if ! mkdir "$taken/$index" 2>/dev/null; then continue; fi
    if ! is_over "${runs[$index]}"; then start "${runs[$index]}"; fi
    echo "$code" >"$taken/$index/code"
    if [ "$code" -eq 75 ]; then : >"$taken/stop"; fi
  done
  exit 0
}

slots=()
to_slots() {
  signalled="${signalled:-$1}"
  interrupted=1
  if [ "${#slots[@]}" -gt 0 ]; then kill -s "$1" "${slots[@]}" 2>/dev/null; fi
}
trap 'to_slots USR2' USR2
trap 'to_slots TERM' TERM INT
for ((number = 0; number < @slots@; number++)); do
  slot "$number" &
  slots+=("$!")
  if [ -n "$signalled" ]; then kill -s "$signalled" "$!" 2>/dev/null; fi
done
for number in "${slots[@]}"; do
  interrupted=1
  until [ -z "$interrupted" ] && ! kill -0 "$number" 2>/dev/null; do
    interrupted=
    wait "$number"
  done
done

left=0
for index in "${!runs[@]}"; do
  code="$(cat "$taken/$index/code" 2>/dev/null)"
  if [ -z "$code" ] && [ -z "$signalled" ] && [ ! -e "$taken/stop" ]; then code=137; fi # its slot was killed
  case "$code" in
    0) ;;
    4) held+=("${runs[$index]}") ;;
    '' | 75) left=$((left + 1)) ;;
    *) failed+=("$code ${runs[$index]}") ;;
  esac
done
if [ "$left" -gt 0 ]; then
  echo "stopped by a signal, $left of ${#runs[@]} left: asking to be requeued"
  exit 75
fi
