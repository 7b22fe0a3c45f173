"""The throw-away SLURM's files of settings: slurm.conf, slurmdbd.conf and what they name."""

from __future__ import annotations

import os
import secrets
import socket
from pathlib import Path

from tests.ports import free_ports

NODES = ("n1", "n2")
# Jobs of `high` displace jobs of `low`: SIGTERM to the steps at once and to the batch shell after GraceTime seconds,
# SIGKILL after KillWait more, then back into the queue.
PARTITIONS = """\
PartitionName=p100 Nodes=ALL Default=YES PriorityTier=5 PreemptMode=OFF
PartitionName=cpu Nodes=ALL PriorityTier=5 PreemptMode=OFF
PartitionName=short Nodes=ALL MaxTime=1 DefaultTime=1 PriorityTier=5 PreemptMode=OFF
PartitionName=low Nodes=ALL PriorityTier=1 PreemptMode=REQUEUE GraceTime=6
PartitionName=spot Nodes=ALL PriorityTier=1 PreemptMode=CANCEL GraceTime=2
PartitionName=high Nodes=ALL PriorityTier=10 PreemptMode=OFF
"""
# A busy machine may take longer to start a job than BatchStartTimeout is by default: then slurmctld takes the job for
# lost and queues it again, and a slurmd that is starting it just then ends it for good, so that it never runs.
# Without cgroups SLURM itself samples the memory of jobs, every 30 s or as --acctg-freq has it, and kills what has too
# much.  cred_expire is also how long a requeued job waits before it may start again: 120 s unless it is named.
SLURM_CONF = """\
ClusterName=throwaway
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ctld_port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire={requeue_delay_s}
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/slurmd-%n.log
PlugStackConfig={folder}/plugstack.conf
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=100
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PriorityType=priority/basic
JobRequeue=1
GresTypes=gpu
ReturnToService=2
SlurmctldTimeout={silence_s}
SlurmdTimeout={silence_s}
KillWait=30
MinJobAge={min_job_age_s}
InactiveLimit=0
MessageTimeout={message_s}
BatchStartTimeout=120
CompleteWait=0
OverTimeLimit=0
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,sched_min_interval=0,batch_sched_delay=0,bf_interval=1,bf_continue,defer_batch
SlurmdParameters=config_overrides
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=30
JobAcctGatherParams=OverMemoryKill
AccountingStoreFlags=job_comment
{accounting}
{nodes}
{partitions}"""
DBD_CONF = """\
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort={dbd_port}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
LogFile={folder}/log/slurmdbd.log
PidFile={folder}/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=root
StorageLoc=slurm
"""


def write_settings(folder: Path, accounting: bool, requeue_delay_s: int, min_job_age_s: int, silence_s: int) -> None:
    """All files of a cluster that begins in this folder."""
    ctld_port, dbd_port, *node_ports = free_ports(2 + len(NODES))
    host = socket.gethostname().partition(".")[0]
    nodes = "\n".join(
        f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=8 RealMemory=64000 Gres=gpu:a100:2 "
        f"State=UNKNOWN"
        for node, port in zip(NODES, node_ports, strict=True)
    )
    storage = (
        "AccountingStorageType=accounting_storage/slurmdbd\n"
        f"AccountingStorageHost=127.0.0.1\nAccountingStoragePort={dbd_port}\n"
        f"AccountingStoragePass=socket={folder}/munge.socket\nAccountingStorageEnforce=limits\n"
    )
    facts = {
        "folder": folder,
        "host": host,
        "ctld_port": ctld_port,
        "dbd_port": dbd_port,
        "requeue_delay_s": requeue_delay_s,
        "min_job_age_s": min_job_age_s,
        "silence_s": silence_s,
        "message_s": silence_s // 2,
        "nodes": nodes,
        "partitions": PARTITIONS,
        "accounting": storage + "AccountingStorageTRES=gres/gpu"
        if accounting
        else "AccountingStorageType=accounting_storage/none",
    }
    (folder / "slurm.conf").write_text(SLURM_CONF.format(**facts))
    (folder / "gres.conf").write_text(
        f"AutoDetect=off\nName=gpu Type=a100 File={folder}/gpu[0-1] Flags=nvidia_gpu_env\n"
    )
    for number in range(2):
        (folder / f"gpu{number}").touch()
    (folder / "cgroup.conf").write_text("")
    (folder / "plugstack.conf").write_text("")
    _write_secret(folder / "slurmdbd.conf", DBD_CONF.format(**facts).encode())
    _write_secret(folder / "munge.key", secrets.token_bytes(128))


def _write_secret(path: Path, content: bytes) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)
