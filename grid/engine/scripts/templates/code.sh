#: A job that was submitted runs the code as it was then, by hand it is the code of today.
checkout=@checkout@
CDPATH='' cd -- "${NUQ_CODE:-$checkout}" || exit 2
