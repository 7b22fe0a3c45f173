CDPATH='' cd -- @checkout@ || exit 2
