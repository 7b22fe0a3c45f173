#: Exit codes are kept beside the script, with the restart count of the life of the job that saw them (none: its first).
#: After a requeue, what ended for good before it is not run again; a script that is started anew runs everything that is
#: not done.  A run that another process has (4) has not ended: it is looked for again after a requeue.
case "${BASH_SOURCE[0]}" in
  /*) ended="${BASH_SOURCE[0]%.sh}.ended" ;;
  *) ended="$PWD/${BASH_SOURCE[0]%.sh}.ended" ;;
esac
