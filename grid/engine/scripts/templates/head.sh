#!/usr/bin/env bash
# @what@
# @how@
set -u
