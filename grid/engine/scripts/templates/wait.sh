#: A signal interrupts `wait`: it is passed on, and the child's own code comes from the wait after it.  Two cases have no
#: such code and count as 75: a child that died of the signal, for it had not begun to listen and its last checkpoint
#: stands; and -1 or 127, where bash 5.2 loses the code of a child that ends in the moment of the signal.  Of two signals
#: in quick succession (SLURM's own and the one handed on) the second can end a `wait` without its trap: so the child is
#: looked for.  A TERM counts also after a USR2: the time limit's warning may be followed by scancel.
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
