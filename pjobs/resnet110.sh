#!/usr/bin/env bash
# nuq.cifar10_full_resnet110: CIFAR-10, ResNet-110, 3 bits, bucket 16384: the nine methods.
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
run method=sgd data=cifar10 model=resnet110 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model seed=1 run_dir=runs/cifar10_full_resnet110/sgd-resnet110-cifar10-s1-eaf4b704c247b7

# SuperSGD
run method=supersgd data=cifar10 model=resnet110 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model seed=1 run_dir=runs/cifar10_full_resnet110/supersgd-resnet110-cifar10-s1-7231c43ff6969a

# NUQSGD
run method=nuqsgd data=cifar10 model=resnet110 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bits=3 method.bucket_size=16384 method.rounding=stochastic seed=1 run_dir=runs/cifar10_full_resnet110/nuqsgd-3b-resnet110-cifar10-s1-1d622bfc210f32

# QSGDinf
run method=qsgdinf data=cifar10 model=resnet110 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bits=3 method.bucket_size=16384 method.rounding=stochastic seed=1 run_dir=runs/cifar10_full_resnet110/qsgdinf-3b-resnet110-cifar10-s1-df574fa1ac2d5a

# TRN
run method=trn data=cifar10 model=resnet110 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bucket_size=16384 method.rounding=stochastic seed=1 run_dir=runs/cifar10_full_resnet110/trn-resnet110-cifar10-s1-e9a3526cf5f721

# ALQ
run method=alq data=cifar10 model=resnet110 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.symmetric=false method.num_components=150 seed=1 run_dir=runs/cifar10_full_resnet110/alq-3b-resnet110-cifar10-s1-73e3374b2e9923

# ALQ-N
run method=alq_n data=cifar10 model=resnet110 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.solver=paper method.symmetric=false seed=1 run_dir=runs/cifar10_full_resnet110/alq_n-3b-resnet110-cifar10-s1-68be8931bc2ec5

# AMQ
run method=amq data=cifar10 model=resnet110 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.num_components=150 seed=1 run_dir=runs/cifar10_full_resnet110/amq-3b-resnet110-cifar10-s1-27717cbc7e0c2b

# AMQ-N
run method=amq_n data=cifar10 model=resnet110 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.solver=paper seed=1 run_dir=runs/cifar10_full_resnet110/amq_n-3b-resnet110-cifar10-s1-f13d6024a2cb8a

exit "${failed:-0}"
