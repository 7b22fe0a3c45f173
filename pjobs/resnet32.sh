#!/usr/bin/env bash
# nuq.cifar10_full_resnet32: CIFAR-10, ResNet-32, 3 bits, bucket 8192: the nine methods.
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
run method=sgd data=cifar10 model=resnet32 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model seed=1 run_dir=runs/cifar10_full_resnet32/sgd-resnet32-cifar10-s1-82d52cae0a9786

# SuperSGD
run method=supersgd data=cifar10 model=resnet32 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model seed=1 run_dir=runs/cifar10_full_resnet32/supersgd-resnet32-cifar10-s1-6048b13abb37da

# NUQSGD
run method=nuqsgd data=cifar10 model=resnet32 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bits=3 method.bucket_size=8192 method.rounding=stochastic seed=1 run_dir=runs/cifar10_full_resnet32/nuqsgd-3b-resnet32-cifar10-s1-fea2a16f298d3f

# QSGDinf
run method=qsgdinf data=cifar10 model=resnet32 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bits=3 method.bucket_size=8192 method.rounding=stochastic seed=1 run_dir=runs/cifar10_full_resnet32/qsgdinf-3b-resnet32-cifar10-s1-3681087e4b892a

# TRN
run method=trn data=cifar10 model=resnet32 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bucket_size=8192 method.rounding=stochastic seed=1 run_dir=runs/cifar10_full_resnet32/trn-resnet32-cifar10-s1-4283db14d1e2eb

# ALQ
run method=alq data=cifar10 model=resnet32 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 method.bucket_size=8192 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.symmetric=false method.num_components=50 seed=1 run_dir=runs/cifar10_full_resnet32/alq-3b-resnet32-cifar10-s1-99fa5fee110e89

# ALQ-N
run method=alq_n data=cifar10 model=resnet32 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 method.bucket_size=8192 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.solver=paper method.symmetric=false seed=1 run_dir=runs/cifar10_full_resnet32/alq_n-3b-resnet32-cifar10-s1-ff38ad9926f3f1

# AMQ
run method=amq data=cifar10 model=resnet32 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 method.bucket_size=8192 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.num_components=50 seed=1 run_dir=runs/cifar10_full_resnet32/amq-3b-resnet32-cifar10-s1-aab9154a352b03

# AMQ-N
run method=amq_n data=cifar10 model=resnet32 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 method.bucket_size=8192 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.solver=paper seed=1 run_dir=runs/cifar10_full_resnet32/amq_n-3b-resnet32-cifar10-s1-4332ebd2c38f92

exit "${failed:-0}"
