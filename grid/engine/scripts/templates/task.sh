failed=
run() {
  "$PYTHON" main.py "$@"
  code=$?
  if [ "$code" -eq 75 ]; then exit 75; fi # checkpointed on a signal: start this file again to go on
  if [ "$code" -ne 0 ] && [ "$code" -ne 4 ]; then failed=1; fi # 4: another process has its folder
}
