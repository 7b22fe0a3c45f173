#!/usr/bin/env bash
# nuq.imagenet_full: ImageNet, ResNet-18, 600,000 steps, 3 bits, bucket 8192: the nine methods.
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
run method=sgd data=imagenet model=resnet18 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[300000,450000]' schedule.factor=0.1 batch_size=64 steps=600000 eval_every=10000 method.scope=model measure.every=1000 seed=1 run_dir=runs/imagenet_full/sgd-resnet18-imagenet-s1-8cf48973b432d8

# SuperSGD
run method=supersgd data=imagenet model=resnet18 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[300000,450000]' schedule.factor=0.1 batch_size=64 steps=600000 eval_every=10000 method.scope=model measure.every=1000 seed=1 run_dir=runs/imagenet_full/supersgd-resnet18-imagenet-s1-1a62303763b7cf

# NUQSGD
run method=nuqsgd data=imagenet model=resnet18 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[300000,450000]' schedule.factor=0.1 batch_size=64 steps=600000 eval_every=10000 method.scope=model measure.every=1000 method.bits=3 method.bucket_size=8192 method.rounding=stochastic seed=1 run_dir=runs/imagenet_full/nuqsgd-3b-resnet18-imagenet-s1-1cf0ee8010f5e3

# QSGDinf
run method=qsgdinf data=imagenet model=resnet18 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[300000,450000]' schedule.factor=0.1 batch_size=64 steps=600000 eval_every=10000 method.scope=model measure.every=1000 method.bits=3 method.bucket_size=8192 method.rounding=stochastic seed=1 run_dir=runs/imagenet_full/qsgdinf-3b-resnet18-imagenet-s1-de2b2011d0be95

# TRN
run method=trn data=imagenet model=resnet18 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[300000,450000]' schedule.factor=0.1 batch_size=64 steps=600000 eval_every=10000 method.scope=model measure.every=1000 method.bucket_size=8192 method.rounding=stochastic seed=1 run_dir=runs/imagenet_full/trn-resnet18-imagenet-s1-edeaa9371c7020

# ALQ
run method=alq data=imagenet model=resnet18 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[300000,450000]' schedule.factor=0.1 batch_size=64 steps=600000 eval_every=10000 method.statistics=fresh method.num_samples=10 method.scope=model measure.every=1000 method.bits=3 method.bucket_size=8192 'method.update_at=[100,2000]' method.update_every=50000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.symmetric=false method.num_components=350 seed=1 run_dir=runs/imagenet_full/alq-3b-resnet18-imagenet-s1-be791b958cefbf

# ALQ-N
run method=alq_n data=imagenet model=resnet18 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[300000,450000]' schedule.factor=0.1 batch_size=64 steps=600000 eval_every=10000 method.statistics=fresh method.num_samples=10 method.scope=model measure.every=1000 method.bits=3 method.bucket_size=8192 'method.update_at=[100,2000]' method.update_every=50000 method.norm=l2 method.rounding=stochastic method.solver=paper method.symmetric=false seed=1 run_dir=runs/imagenet_full/alq_n-3b-resnet18-imagenet-s1-32d610efaef93c

# AMQ
run method=amq data=imagenet model=resnet18 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[300000,450000]' schedule.factor=0.1 batch_size=64 steps=600000 eval_every=10000 method.statistics=fresh method.num_samples=10 method.scope=model measure.every=1000 method.bits=3 method.bucket_size=8192 'method.update_at=[100,2000]' method.update_every=50000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.num_components=350 seed=1 run_dir=runs/imagenet_full/amq-3b-resnet18-imagenet-s1-d63d40267bc5bd

# AMQ-N
run method=amq_n data=imagenet model=resnet18 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[300000,450000]' schedule.factor=0.1 batch_size=64 steps=600000 eval_every=10000 method.statistics=fresh method.num_samples=10 method.scope=model measure.every=1000 method.bits=3 method.bucket_size=8192 'method.update_at=[100,2000]' method.update_every=50000 method.norm=l2 method.rounding=stochastic method.solver=paper seed=1 run_dir=runs/imagenet_full/amq_n-3b-resnet18-imagenet-s1-a9cbef98872132

exit "${failed:-0}"
