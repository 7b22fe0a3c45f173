#!/usr/bin/env bash
# Installs the browser that tests/analysis/report/test_browser.py opens the report in, from Debian's packages; does nothing where it is there.
set -eu

if command -v chromium > /dev/null && command -v chromedriver > /dev/null; then
  exit 0
fi
if [ "$(id -u)" != 0 ]; then
  echo "Installing Chromium needs root: run this as root, for instance in a container of Debian." >&2
  exit 1
fi
if ! command -v apt-get > /dev/null; then
  echo "Only Debian and its relatives are supported: install chromium and chromedriver, or what they are called here, by hand." >&2
  exit 1
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -qq -y --no-install-recommends chromium chromium-driver > /dev/null
