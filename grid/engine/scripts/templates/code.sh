#: A job that was submitted runs the code as it was then, by hand it is the code of today.
checkout=@checkout@
CDPATH='' cd -- "${NUQ_CODE:-$checkout}" || exit 2
if [ -n "${SUBMITIT_EXECUTOR:-}" ] && [ -z "${NUQ_NPROC:-}" ]; then # a job script of before these names calls
  NUQ_NPROC="${NPROC:-}" NUQ_PYTHON="${NUQ_PYTHON:-${PYTHON:-}}"
fi
