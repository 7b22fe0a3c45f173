if [ -z "${@variable@:-}" ]; then
  if [ -x .venv/bin/python ]; then @variable@=.venv/bin/python; else @variable@=python; fi
fi
