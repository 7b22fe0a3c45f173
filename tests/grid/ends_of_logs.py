"""Real-looking ends of logs: of crashes, of lost ranks, and what SLURM's daemons write."""

from __future__ import annotations

BEGUN = "runs/nuq-mnist/alq-3-0f1e2d3c4b5a: alq, cnn on mnist, 4 workers\n"
FRAMES = """\
Traceback (most recent call last):
  File "/home/a user/nuq/main.py", line 60, in <module>
    sys.exit(launch(config))
             ^^^^^^^^^^^^^^
  File "/home/a user/nuq/train/steps/trainer.py", line 130, in train_step
    gradients, losses = self._hosted_gradients(self.step)
  File "/opt/venv/lib/python3.12/site-packages/torch/nn/modules/module.py", line 1773, in _wrapped_call_impl
    return self._call_impl(*args, **kwargs)
"""
CUDA_OOM = (
    FRAMES
    + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 139.80 "
    "GiB of which "
    "1.21 GiB is free. Process 4711 has 138.00 GiB memory in use.\n"
)
CLOSED = (
    FRAMES
    + "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:38612\n"
)
KEY_ERROR = FRAMES + "KeyError: 'conv1.weight'\n"
ELASTIC = """\
Traceback (most recent call last):
  File "/opt/venv/lib/python3.12/site-packages/torch/distributed/run.py", line 995, in main
    run(args)
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
main.py FAILED
"""
WATCHDOG = (
    "[rank1]:[E1121 16:03:11.123456789 ProcessGroupNCCL.cpp:632] [Rank 1] Watchdog caught collective operation "
    "timeout: "
    "WorkNCCL(SeqNum=1523, OpType=ALLGATHER, Timeout(ms)=1800000) ran for 1800094 milliseconds before timing out.\n"
)
STEPD_OOM = (
    "slurmstepd: error: Detected 1 oom_kill event in StepId=123.batch. Some of the step tasks have been OOM Killed.\n"
)
STEPD_LIMIT = "slurmstepd: error: *** JOB 123 ON n1 CANCELLED AT 2026-11-21T16:25:10 DUE TO TIME LIMIT ***\n"
STEPD_NODE = (
    "slurmstepd: error: *** JOB 123 ON n1 CANCELLED AT 2026-11-21T16:25:10 DUE TO NODE FAILURE, SEE "
    "SLURMCTLD LOG FOR DETAILS ***\n"
)
LOADER = FRAMES + "RuntimeError: DataLoader worker (pid 9) is killed by signal: Killed.\n" + STEPD_OOM
NUMPY = FRAMES + "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 9.31 GiB for an array\n"
ALLOCATOR = FRAMES + "RuntimeError: [enforce fail] DefaultCPUAllocator: can't allocate memory\n"
GLOO_TIMEOUT = FRAMES + "RuntimeError: [pair.cc:90] Timed out waiting 1800000ms for recv operation to complete\n"
STORE_TIMEOUT = FRAMES + "torch.distributed.DistNetworkError: The client socket has timed out after 60000ms\n"
LOST = "main.py: rank 2 of 4 is gone (rank 0 saw: Connection closed by peer [127.0.0.1]:38612)\n"
SILENT = "main.py: rank 0 of 4 did not answer in time (rank 3 saw: Operation timed out!)\n"
EARLY = 'Traceback (most recent call last):\n  File "main.py", line 3, in <module>\nImportError: no x\n'
NO_PYTHON = "/home/a/runs/x/y/run.sh: line 36: python: command not found\n"
