#!/usr/bin/env bash
# abl.bucket_size: Ten variants x 11 bucket sizes at 3 bits, measured on the SGD trajectory.
# One command per experiment; a finished one returns at once. Written by `python grid_run.py pjobs`.
set -u
CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2
if [ -z "${PYTHON:-}" ]; then
  if [ -x .venv/bin/python ]; then PYTHON=.venv/bin/python; else PYTHON=python; fi
fi
failed=
run() {
  "$PYTHON" main.py "$@"
  code=$?
  if [ "$code" -eq 75 ]; then exit 75; fi # checkpointed on a signal: start this file again to go on
  if [ "$code" -ne 0 ] && [ "$code" -ne 4 ]; then failed=1; fi # 4: another process has its folder
}

# SGD
run method=sgd data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.scope=model seed=1 run_dir=runs/bucket_size/sgd-resnet8-cifar10-s1-e45e697b28b67e

# SuperSGD
run method=supersgd data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.scope=model seed=1 run_dir=runs/bucket_size/supersgd-resnet8-cifar10-s1-8823fd76b857ef

# AMQ-N bucket_size=16
run method=amq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.solver=paper method.bucket_size=16 seed=1 run_dir=runs/bucket_size/amq_n-3b-resnet8-cifar10-s1-20f19004de784e

# AMQ-N bucket_size=64
run method=amq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.solver=paper method.bucket_size=64 seed=1 run_dir=runs/bucket_size/amq_n-3b-resnet8-cifar10-s1-4f23382e34e319

# AMQ-N bucket_size=128
run method=amq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.solver=paper method.bucket_size=128 seed=1 run_dir=runs/bucket_size/amq_n-3b-resnet8-cifar10-s1-3c6acfd0779031

# AMQ-N bucket_size=256
run method=amq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.solver=paper method.bucket_size=256 seed=1 run_dir=runs/bucket_size/amq_n-3b-resnet8-cifar10-s1-4c1e1992a1b736

# AMQ-N bucket_size=512
run method=amq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.solver=paper method.bucket_size=512 seed=1 run_dir=runs/bucket_size/amq_n-3b-resnet8-cifar10-s1-da3e6b43514b67

# AMQ-N bucket_size=1024
run method=amq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.solver=paper method.bucket_size=1024 seed=1 run_dir=runs/bucket_size/amq_n-3b-resnet8-cifar10-s1-07df2525dda5ef

# AMQ-N bucket_size=2048
run method=amq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.solver=paper method.bucket_size=2048 seed=1 run_dir=runs/bucket_size/amq_n-3b-resnet8-cifar10-s1-4200ad5b38b142

# AMQ-N bucket_size=4096
run method=amq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.solver=paper method.bucket_size=4096 seed=1 run_dir=runs/bucket_size/amq_n-3b-resnet8-cifar10-s1-aaded31e5bb0a1

# AMQ-N bucket_size=8192
run method=amq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.solver=paper method.bucket_size=8192 seed=1 run_dir=runs/bucket_size/amq_n-3b-resnet8-cifar10-s1-587c9213475afb

# AMQ-N bucket_size=16384
run method=amq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.solver=paper method.bucket_size=16384 seed=1 run_dir=runs/bucket_size/amq_n-3b-resnet8-cifar10-s1-8fee722c089088

# AMQ-N bucket_size=32768
run method=amq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.solver=paper method.bucket_size=32768 seed=1 run_dir=runs/bucket_size/amq_n-3b-resnet8-cifar10-s1-118072dc8d49f1

# AMQ bucket_size=16
run method=amq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.num_components=350 method.bucket_size=16 seed=1 run_dir=runs/bucket_size/amq-3b-resnet8-cifar10-s1-2275b8fa0486d4

# AMQ bucket_size=64
run method=amq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.num_components=350 method.bucket_size=64 seed=1 run_dir=runs/bucket_size/amq-3b-resnet8-cifar10-s1-1bbce2703f3186

# AMQ bucket_size=128
run method=amq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.num_components=350 method.bucket_size=128 seed=1 run_dir=runs/bucket_size/amq-3b-resnet8-cifar10-s1-7c267c4be79893

# AMQ bucket_size=256
run method=amq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.num_components=350 method.bucket_size=256 seed=1 run_dir=runs/bucket_size/amq-3b-resnet8-cifar10-s1-6c886eb6da729a

# AMQ bucket_size=512
run method=amq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.num_components=350 method.bucket_size=512 seed=1 run_dir=runs/bucket_size/amq-3b-resnet8-cifar10-s1-a199a2438eb604

# AMQ bucket_size=1024
run method=amq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.num_components=350 method.bucket_size=1024 seed=1 run_dir=runs/bucket_size/amq-3b-resnet8-cifar10-s1-9c19ac847bdc8d

# AMQ bucket_size=2048
run method=amq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.num_components=350 method.bucket_size=2048 seed=1 run_dir=runs/bucket_size/amq-3b-resnet8-cifar10-s1-f2d5434399c296

# AMQ bucket_size=4096
run method=amq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.num_components=350 method.bucket_size=4096 seed=1 run_dir=runs/bucket_size/amq-3b-resnet8-cifar10-s1-07cd12e0d34bbc

# AMQ bucket_size=8192
run method=amq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.num_components=350 method.bucket_size=8192 seed=1 run_dir=runs/bucket_size/amq-3b-resnet8-cifar10-s1-1c914cc67b7123

# AMQ bucket_size=16384
run method=amq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.num_components=350 method.bucket_size=16384 seed=1 run_dir=runs/bucket_size/amq-3b-resnet8-cifar10-s1-806dac75a40d3a

# AMQ bucket_size=32768
run method=amq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.num_components=350 method.bucket_size=32768 seed=1 run_dir=runs/bucket_size/amq-3b-resnet8-cifar10-s1-35743b766aa8f0

# ALQ-N bucket_size=16
run method=alq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.solver=paper method.symmetric=false method.bucket_size=16 seed=1 run_dir=runs/bucket_size/alq_n-3b-resnet8-cifar10-s1-6904577c769d2f

# ALQ-N bucket_size=64
run method=alq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.solver=paper method.symmetric=false method.bucket_size=64 seed=1 run_dir=runs/bucket_size/alq_n-3b-resnet8-cifar10-s1-a65ba64b8fe78d

# ALQ-N bucket_size=128
run method=alq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.solver=paper method.symmetric=false method.bucket_size=128 seed=1 run_dir=runs/bucket_size/alq_n-3b-resnet8-cifar10-s1-ae78081f4ddbe1

# ALQ-N bucket_size=256
run method=alq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.solver=paper method.symmetric=false method.bucket_size=256 seed=1 run_dir=runs/bucket_size/alq_n-3b-resnet8-cifar10-s1-4909a4dab43c15

# ALQ-N bucket_size=512
run method=alq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.solver=paper method.symmetric=false method.bucket_size=512 seed=1 run_dir=runs/bucket_size/alq_n-3b-resnet8-cifar10-s1-95bed33edfa81e

# ALQ-N bucket_size=1024
run method=alq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.solver=paper method.symmetric=false method.bucket_size=1024 seed=1 run_dir=runs/bucket_size/alq_n-3b-resnet8-cifar10-s1-9e54bca5233d45

# ALQ-N bucket_size=2048
run method=alq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.solver=paper method.symmetric=false method.bucket_size=2048 seed=1 run_dir=runs/bucket_size/alq_n-3b-resnet8-cifar10-s1-1d6e333d9048a8

# ALQ-N bucket_size=4096
run method=alq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.solver=paper method.symmetric=false method.bucket_size=4096 seed=1 run_dir=runs/bucket_size/alq_n-3b-resnet8-cifar10-s1-1a990a7cbe7c33

# ALQ-N bucket_size=8192
run method=alq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.solver=paper method.symmetric=false method.bucket_size=8192 seed=1 run_dir=runs/bucket_size/alq_n-3b-resnet8-cifar10-s1-8167af4002d512

# ALQ-N bucket_size=16384
run method=alq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.solver=paper method.symmetric=false method.bucket_size=16384 seed=1 run_dir=runs/bucket_size/alq_n-3b-resnet8-cifar10-s1-e1bf36b1fdbc97

# ALQ-N bucket_size=32768
run method=alq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.solver=paper method.symmetric=false method.bucket_size=32768 seed=1 run_dir=runs/bucket_size/alq_n-3b-resnet8-cifar10-s1-288e19e3df7b93

# QSGDinf bucket_size=16
run method=qsgdinf data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.scope=model method.bits=3 method.rounding=stochastic method.bucket_size=16 seed=1 run_dir=runs/bucket_size/qsgdinf-3b-resnet8-cifar10-s1-1855d71583f6ac

# QSGDinf bucket_size=64
run method=qsgdinf data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.scope=model method.bits=3 method.rounding=stochastic method.bucket_size=64 seed=1 run_dir=runs/bucket_size/qsgdinf-3b-resnet8-cifar10-s1-3d636519341f13

# QSGDinf bucket_size=128
run method=qsgdinf data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.scope=model method.bits=3 method.rounding=stochastic method.bucket_size=128 seed=1 run_dir=runs/bucket_size/qsgdinf-3b-resnet8-cifar10-s1-22ac538fb526bf

# QSGDinf bucket_size=256
run method=qsgdinf data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.scope=model method.bits=3 method.rounding=stochastic method.bucket_size=256 seed=1 run_dir=runs/bucket_size/qsgdinf-3b-resnet8-cifar10-s1-0c03dd288cf5e7

# QSGDinf bucket_size=512
run method=qsgdinf data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.scope=model method.bits=3 method.rounding=stochastic method.bucket_size=512 seed=1 run_dir=runs/bucket_size/qsgdinf-3b-resnet8-cifar10-s1-9e68a4221e55c3

# QSGDinf bucket_size=1024
run method=qsgdinf data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.scope=model method.bits=3 method.rounding=stochastic method.bucket_size=1024 seed=1 run_dir=runs/bucket_size/qsgdinf-3b-resnet8-cifar10-s1-29fb848dd55664

# QSGDinf bucket_size=2048
run method=qsgdinf data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.scope=model method.bits=3 method.rounding=stochastic method.bucket_size=2048 seed=1 run_dir=runs/bucket_size/qsgdinf-3b-resnet8-cifar10-s1-01ffa40e58d899

# QSGDinf bucket_size=4096
run method=qsgdinf data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.scope=model method.bits=3 method.rounding=stochastic method.bucket_size=4096 seed=1 run_dir=runs/bucket_size/qsgdinf-3b-resnet8-cifar10-s1-a914cd8d0e8dfe

# QSGDinf bucket_size=8192
run method=qsgdinf data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.scope=model method.bits=3 method.rounding=stochastic method.bucket_size=8192 seed=1 run_dir=runs/bucket_size/qsgdinf-3b-resnet8-cifar10-s1-0aeff07c663d0e

# QSGDinf bucket_size=16384
run method=qsgdinf data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.scope=model method.bits=3 method.rounding=stochastic method.bucket_size=16384 seed=1 run_dir=runs/bucket_size/qsgdinf-3b-resnet8-cifar10-s1-7ae436029c9bc0

# QSGDinf bucket_size=32768
run method=qsgdinf data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.scope=model method.bits=3 method.rounding=stochastic method.bucket_size=32768 seed=1 run_dir=runs/bucket_size/qsgdinf-3b-resnet8-cifar10-s1-2b8bf431c52f0e

# TRN bucket_size=16
run method=trn data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.scope=model method.rounding=stochastic method.bucket_size=16 seed=1 run_dir=runs/bucket_size/trn-resnet8-cifar10-s1-7285cb22453721

# TRN bucket_size=64
run method=trn data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.scope=model method.rounding=stochastic method.bucket_size=64 seed=1 run_dir=runs/bucket_size/trn-resnet8-cifar10-s1-7bdab9dbd8ac33

# TRN bucket_size=128
run method=trn data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.scope=model method.rounding=stochastic method.bucket_size=128 seed=1 run_dir=runs/bucket_size/trn-resnet8-cifar10-s1-361de54a91aed9

# TRN bucket_size=256
run method=trn data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.scope=model method.rounding=stochastic method.bucket_size=256 seed=1 run_dir=runs/bucket_size/trn-resnet8-cifar10-s1-0e8cf15e08fb72

# TRN bucket_size=512
run method=trn data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.scope=model method.rounding=stochastic method.bucket_size=512 seed=1 run_dir=runs/bucket_size/trn-resnet8-cifar10-s1-f6488e62ff5bd0

# TRN bucket_size=1024
run method=trn data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.scope=model method.rounding=stochastic method.bucket_size=1024 seed=1 run_dir=runs/bucket_size/trn-resnet8-cifar10-s1-8cd833b10c8db4

# TRN bucket_size=2048
run method=trn data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.scope=model method.rounding=stochastic method.bucket_size=2048 seed=1 run_dir=runs/bucket_size/trn-resnet8-cifar10-s1-087a1449a91ca2

# TRN bucket_size=4096
run method=trn data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.scope=model method.rounding=stochastic method.bucket_size=4096 seed=1 run_dir=runs/bucket_size/trn-resnet8-cifar10-s1-1cb3f8229c1703

# TRN bucket_size=8192
run method=trn data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.scope=model method.rounding=stochastic method.bucket_size=8192 seed=1 run_dir=runs/bucket_size/trn-resnet8-cifar10-s1-c6fa96de1314ad

# TRN bucket_size=16384
run method=trn data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.scope=model method.rounding=stochastic method.bucket_size=16384 seed=1 run_dir=runs/bucket_size/trn-resnet8-cifar10-s1-a5062c55fc2dfb

# TRN bucket_size=32768
run method=trn data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.scope=model method.rounding=stochastic method.bucket_size=32768 seed=1 run_dir=runs/bucket_size/trn-resnet8-cifar10-s1-6f1060cd21716a

# NUQSGD bucket_size=16
run method=nuqsgd data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.scope=model method.bits=3 method.rounding=stochastic method.bucket_size=16 seed=1 run_dir=runs/bucket_size/nuqsgd-3b-resnet8-cifar10-s1-7fad134b982e36

# NUQSGD bucket_size=64
run method=nuqsgd data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.scope=model method.bits=3 method.rounding=stochastic method.bucket_size=64 seed=1 run_dir=runs/bucket_size/nuqsgd-3b-resnet8-cifar10-s1-dd9aa091cf3c9e

# NUQSGD bucket_size=128
run method=nuqsgd data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.scope=model method.bits=3 method.rounding=stochastic method.bucket_size=128 seed=1 run_dir=runs/bucket_size/nuqsgd-3b-resnet8-cifar10-s1-127c74bbacfa8b

# NUQSGD bucket_size=256
run method=nuqsgd data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.scope=model method.bits=3 method.rounding=stochastic method.bucket_size=256 seed=1 run_dir=runs/bucket_size/nuqsgd-3b-resnet8-cifar10-s1-904cb980b532e4

# NUQSGD bucket_size=512
run method=nuqsgd data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.scope=model method.bits=3 method.rounding=stochastic method.bucket_size=512 seed=1 run_dir=runs/bucket_size/nuqsgd-3b-resnet8-cifar10-s1-cfedcfae55dcb9

# NUQSGD bucket_size=1024
run method=nuqsgd data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.scope=model method.bits=3 method.rounding=stochastic method.bucket_size=1024 seed=1 run_dir=runs/bucket_size/nuqsgd-3b-resnet8-cifar10-s1-b30689bea80040

# NUQSGD bucket_size=2048
run method=nuqsgd data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.scope=model method.bits=3 method.rounding=stochastic method.bucket_size=2048 seed=1 run_dir=runs/bucket_size/nuqsgd-3b-resnet8-cifar10-s1-9728828b6353cb

# NUQSGD bucket_size=4096
run method=nuqsgd data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.scope=model method.bits=3 method.rounding=stochastic method.bucket_size=4096 seed=1 run_dir=runs/bucket_size/nuqsgd-3b-resnet8-cifar10-s1-8c8956df9ed2be

# NUQSGD bucket_size=8192
run method=nuqsgd data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.scope=model method.bits=3 method.rounding=stochastic method.bucket_size=8192 seed=1 run_dir=runs/bucket_size/nuqsgd-3b-resnet8-cifar10-s1-63ceef7b77de35

# NUQSGD bucket_size=16384
run method=nuqsgd data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.scope=model method.bits=3 method.rounding=stochastic method.bucket_size=16384 seed=1 run_dir=runs/bucket_size/nuqsgd-3b-resnet8-cifar10-s1-f97aa009073f8d

# NUQSGD bucket_size=32768
run method=nuqsgd data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.scope=model method.bits=3 method.rounding=stochastic method.bucket_size=32768 seed=1 run_dir=runs/bucket_size/nuqsgd-3b-resnet8-cifar10-s1-47256b48451687

# ALQ bucket_size=16
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=16 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-8472c9d675d0a8

# ALQ bucket_size=64
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=64 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-1ce1e24e271e5a

# ALQ bucket_size=128
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=128 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-610786dc38c00b

# ALQ bucket_size=256
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=256 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-bbd7d76fad0a10

# ALQ bucket_size=512
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=512 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-a0bf0ef5fcda76

# ALQ bucket_size=1024
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=1024 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-7319f7e230ede4

# ALQ bucket_size=2048
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=2048 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-ba793372b76b2c

# ALQ bucket_size=4096
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=4096 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-c9a4b318c251d2

# ALQ bucket_size=8192
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=8192 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-f74f5d542a47e7

# ALQ bucket_size=16384
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=16384 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-029fe8a40c3625

# ALQ bucket_size=32768
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=32768 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-41602438c3d0d9

# ALQ symmetric bucket_size=16
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=16 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-6b275eb7a8f073

# ALQ symmetric bucket_size=64
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=64 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-6ab15857219ec1

# ALQ symmetric bucket_size=128
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=128 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-c330fc4fc0a5f5

# ALQ symmetric bucket_size=256
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=256 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-c402491b071ec0

# ALQ symmetric bucket_size=512
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=512 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-5cb4381e8066c8

# ALQ symmetric bucket_size=1024
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=1024 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-b52d760df7462f

# ALQ symmetric bucket_size=2048
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=2048 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-773b2192107900

# ALQ symmetric bucket_size=4096
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=4096 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-7f8be1153c1338

# ALQ symmetric bucket_size=8192
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=8192 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-0728ebac032204

# ALQ symmetric bucket_size=16384
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=16384 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-1cf8d7c30f1a55

# ALQ symmetric bucket_size=32768
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=32768 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-a9a40d582223ec

# ALQ closed form bucket_size=16
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=exact method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=16 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-9a998d7251533a

# ALQ closed form bucket_size=64
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=exact method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=64 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-f157bb716fa21d

# ALQ closed form bucket_size=128
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=exact method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=128 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-29b98db118ac51

# ALQ closed form bucket_size=256
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=exact method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=256 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-c8654740833b54

# ALQ closed form bucket_size=512
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=exact method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=512 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-1762ac9fc456e7

# ALQ closed form bucket_size=1024
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=exact method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=1024 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-451fa0bf298820

# ALQ closed form bucket_size=2048
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=exact method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=2048 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-af4a136135a3d8

# ALQ closed form bucket_size=4096
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=exact method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=4096 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-464af1e6fffaa1

# ALQ closed form bucket_size=8192
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=exact method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=8192 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-e8308ffad7814e

# ALQ closed form bucket_size=16384
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=exact method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=16384 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-b0206a9114ff43

# ALQ closed form bucket_size=32768
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=exact method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=32768 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-cec8a365bc2502

# ALQ closed form symmetric bucket_size=16
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=exact method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=16 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-64667b9607a013

# ALQ closed form symmetric bucket_size=64
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=exact method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=64 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-f047244cfaa4cd

# ALQ closed form symmetric bucket_size=128
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=exact method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=128 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-55b6bb0e577886

# ALQ closed form symmetric bucket_size=256
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=exact method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=256 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-3322203f009321

# ALQ closed form symmetric bucket_size=512
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=exact method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=512 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-a9df919487386e

# ALQ closed form symmetric bucket_size=1024
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=exact method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=1024 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-6bf744c71db6a1

# ALQ closed form symmetric bucket_size=2048
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=exact method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=2048 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-0108901219f3be

# ALQ closed form symmetric bucket_size=4096
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=exact method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=4096 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-cc410cc2875945

# ALQ closed form symmetric bucket_size=8192
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=exact method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=8192 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-42ddf773616f6c

# ALQ closed form symmetric bucket_size=16384
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=exact method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=16384 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-7bc02a405fa14c

# ALQ closed form symmetric bucket_size=32768
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=exact method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=32768 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-05c22a4ad73ce1

exit "${failed:-0}"
