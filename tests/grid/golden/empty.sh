#!/usr/bin/env bash
# An empty share of nuq.x: there are more scripts than experiments.
# Written by grid_run.py.
set -u
CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2
echo "nothing to do: more scripts than experiments"
