#!/usr/bin/env bash
# nuq.cifar10_full_resnet8: CIFAR-10, ResNet-8, 3 bits, bucket 16384: the nine methods, ALQ-G and ALQ-GN.
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
run method=sgd data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model seed=1 run_dir=runs/cifar10_full_resnet8/sgd-resnet8-cifar10-s1-1eac1d585b2fa6

# SuperSGD
run method=supersgd data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model seed=1 run_dir=runs/cifar10_full_resnet8/supersgd-resnet8-cifar10-s1-cedf544203f45e

# NUQSGD
run method=nuqsgd data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bits=3 method.bucket_size=16384 method.rounding=stochastic seed=1 run_dir=runs/cifar10_full_resnet8/nuqsgd-3b-resnet8-cifar10-s1-83aedc86db8a92

# QSGDinf
run method=qsgdinf data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bits=3 method.bucket_size=16384 method.rounding=stochastic seed=1 run_dir=runs/cifar10_full_resnet8/qsgdinf-3b-resnet8-cifar10-s1-476c9a8edeac1f

# TRN
run method=trn data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bucket_size=16384 method.rounding=stochastic seed=1 run_dir=runs/cifar10_full_resnet8/trn-resnet8-cifar10-s1-bd82c4601f14d8

# ALQ
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.symmetric=false method.num_components=80 seed=1 run_dir=runs/cifar10_full_resnet8/alq-3b-resnet8-cifar10-s1-9a5ea7f7e8769b

# ALQ-N
run method=alq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.solver=paper method.symmetric=false seed=1 run_dir=runs/cifar10_full_resnet8/alq_n-3b-resnet8-cifar10-s1-1d29206f5b86b1

# AMQ
run method=amq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.num_components=80 seed=1 run_dir=runs/cifar10_full_resnet8/amq-3b-resnet8-cifar10-s1-5885da48e862ce

# AMQ-N
run method=amq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.solver=paper seed=1 run_dir=runs/cifar10_full_resnet8/amq_n-3b-resnet8-cifar10-s1-969239882c835f

# ALQ-G
run method=alq_g data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.symmetric=false method.num_components=80 seed=1 run_dir=runs/cifar10_full_resnet8/alq_g-3b-resnet8-cifar10-s1-6fa838f09beb2d

# ALQ-GN
run method=alq_gn data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.solver=paper method.symmetric=false seed=1 run_dir=runs/cifar10_full_resnet8/alq_gn-3b-resnet8-cifar10-s1-a7431ca03cc2be

exit "${failed:-0}"
