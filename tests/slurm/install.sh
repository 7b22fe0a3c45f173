#!/usr/bin/env bash
# Installs what tests/slurm needs from Debian's packages and starts none of their services; does nothing where all is there.
set -eu

packages=(slurmctld slurmd slurmdbd slurm-client munge mariadb-server)
PATH="$PATH:/usr/sbin:/sbin"

complete=yes
for program in slurmctld slurmd slurmdbd sbatch munged mariadbd mariadb-install-db; do
  command -v "$program" > /dev/null || complete=
done
if [ -n "$complete" ]; then
  exit 0
fi
if [ "$(id -u)" != 0 ]; then
  echo "Installing SLURM needs root: run 'make slurm-test' as root, for instance in a container of Debian." >&2
  exit 1
fi
if ! command -v apt-get > /dev/null; then
  echo "Only Debian and its relatives are supported: install ${packages[*]}, or what they are called here, by hand." >&2
  exit 1
fi

# While this file says 101, Debian's packages start no service.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
  trap 'rm -f "$policy"' EXIT
  trap 'exit 1' INT TERM
  printf '#!/bin/sh\nexit 101\n' > "$policy"
  chmod 755 "$policy"
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -qq -y --no-install-recommends "${packages[@]}" > /dev/null
