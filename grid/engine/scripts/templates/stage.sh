#: A copy is made aside and renamed, so what stands at its place is whole.  The lock only spares a second copy: where its
#: holder is gone (killed, node restarted), the next one clears away what it left.  (HOSTNAME may be the login node's.)
site_stage() {
  local from="$1" to="$2" node lock part holder looks=0
  node="$(uname -n)"
  lock="$to.lock.$node" part="$to.part.$node.$$"
  [ -e "$from" ] || site_fail "stage: there is no $from"
  mkdir -p -- "$(dirname -- "$to")" || site_fail "stage: the folder of $to cannot be made"
  until [ -e "$to" ] || mkdir -- "$lock" 2>/dev/null; do
    if [ -n "${signalled:-}" ]; then exit 75; fi
    holder="$(cat -- "$lock/pid" 2>/dev/null)"
    looks=$((looks + 1))
    if [ -n "$holder" ] && [ ! -d "/proc/$holder" ] && ! kill -0 "$holder" 2>/dev/null; then
      rm -rf -- "$to.part.$node.$holder" "$lock"
    elif [ -z "$holder" ] && [ "$looks" -gt 20 ]; then
      rmdir -- "$lock" 2>/dev/null || site_fail "stage: cannot write beside $to"
      looks=0
    else
      if [ -n "$holder" ]; then looks=0; fi
      sleep 0.5
    fi
  done
  if [ -e "$to" ]; then return 0; fi
  echo "$$" >"$lock/pid"
  if [ -d "$from" ]; then
    mkdir -- "$part" && cp -RL -- "$from/." "$part/"
  else
    cp -L -- "$from" "$part"
  fi || {
    rm -rf -- "$part" "$lock"
    site_fail "stage: copying $from to $to failed; is the disk full?"
  }
  mv -T -- "$part" "$to" 2>/dev/null || [ -e "$to" ] || site_fail "stage: $part cannot be renamed to $to"
  rm -rf -- "$part" "$lock"
}
