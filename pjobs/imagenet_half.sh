#!/usr/bin/env bash
# nuq.imagenet_half: ImageNet, ResNet-18, 300,000 steps, 4 bits, bucket 8192: variance only, every method measured on the same SGD trajectory.
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
run method=sgd data=imagenet model=resnet18 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[150000,225000]' schedule.factor=0.1 batch_size=64 steps=300000 eval_every=10000 method.scope=model measure.every=100 trajectory=sgd seed=1 run_dir=runs/imagenet_half/sgd-resnet18-imagenet-s1-013064f96e8546

# SuperSGD
run method=supersgd data=imagenet model=resnet18 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[150000,225000]' schedule.factor=0.1 batch_size=64 steps=300000 eval_every=10000 method.scope=model measure.every=100 trajectory=sgd seed=1 run_dir=runs/imagenet_half/supersgd-resnet18-imagenet-s1-9cb254d892f5e8

# AMQ-N
run method=amq_n data=imagenet model=resnet18 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[150000,225000]' schedule.factor=0.1 batch_size=64 steps=300000 eval_every=10000 method.statistics=fresh method.num_samples=10 method.scope=model measure.every=100 trajectory=sgd method.bits=4 method.bucket_size=8192 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.solver=paper seed=1 run_dir=runs/imagenet_half/amq_n-4b-resnet18-imagenet-s1-1fc4be0e098604

# AMQ
run method=amq data=imagenet model=resnet18 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[150000,225000]' schedule.factor=0.1 batch_size=64 steps=300000 eval_every=10000 method.statistics=fresh method.num_samples=10 method.scope=model measure.every=100 trajectory=sgd method.bits=4 method.bucket_size=8192 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.num_components=350 seed=1 run_dir=runs/imagenet_half/amq-4b-resnet18-imagenet-s1-dd02aa2639f78a

# ALQ-N
run method=alq_n data=imagenet model=resnet18 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[150000,225000]' schedule.factor=0.1 batch_size=64 steps=300000 eval_every=10000 method.statistics=fresh method.num_samples=10 method.scope=model measure.every=100 trajectory=sgd method.bits=4 method.bucket_size=8192 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.solver=paper method.symmetric=false seed=1 run_dir=runs/imagenet_half/alq_n-4b-resnet18-imagenet-s1-31801da66a8df3

# QSGDinf
run method=qsgdinf data=imagenet model=resnet18 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[150000,225000]' schedule.factor=0.1 batch_size=64 steps=300000 eval_every=10000 method.scope=model measure.every=100 trajectory=sgd method.bits=4 method.bucket_size=8192 method.rounding=stochastic seed=1 run_dir=runs/imagenet_half/qsgdinf-4b-resnet18-imagenet-s1-bdedfaa31dbfd9

# TRN
run method=trn data=imagenet model=resnet18 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[150000,225000]' schedule.factor=0.1 batch_size=64 steps=300000 eval_every=10000 method.scope=model measure.every=100 trajectory=sgd method.bucket_size=8192 method.rounding=stochastic seed=1 run_dir=runs/imagenet_half/trn-resnet18-imagenet-s1-5d049b110c1ab2

# NUQSGD
run method=nuqsgd data=imagenet model=resnet18 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[150000,225000]' schedule.factor=0.1 batch_size=64 steps=300000 eval_every=10000 method.scope=model measure.every=100 trajectory=sgd method.bits=4 method.bucket_size=8192 method.rounding=stochastic seed=1 run_dir=runs/imagenet_half/nuqsgd-4b-resnet18-imagenet-s1-1fb358d9f79278

# ALQ
run method=alq data=imagenet model=resnet18 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[150000,225000]' schedule.factor=0.1 batch_size=64 steps=300000 eval_every=10000 method.statistics=fresh method.num_samples=10 method.scope=model measure.every=100 trajectory=sgd method.bits=4 method.bucket_size=8192 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.symmetric=false method.num_components=350 seed=1 run_dir=runs/imagenet_half/alq-4b-resnet18-imagenet-s1-090571fcd54999

# ALQ symmetric
run method=alq data=imagenet model=resnet18 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[150000,225000]' schedule.factor=0.1 batch_size=64 steps=300000 eval_every=10000 method.statistics=fresh method.num_samples=10 method.scope=model measure.every=100 trajectory=sgd method.bits=4 method.bucket_size=8192 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.symmetric=true method.num_components=350 seed=1 run_dir=runs/imagenet_half/alq-4b-resnet18-imagenet-s1-9b35a631923282

# ALQ closed form
run method=alq data=imagenet model=resnet18 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[150000,225000]' schedule.factor=0.1 batch_size=64 steps=300000 eval_every=10000 method.statistics=fresh method.num_samples=10 method.scope=model measure.every=100 trajectory=sgd method.bits=4 method.bucket_size=8192 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=exact method.weights=norm method.symmetric=false method.num_components=350 seed=1 run_dir=runs/imagenet_half/alq-4b-resnet18-imagenet-s1-83400b85891867

# ALQ closed form symmetric
run method=alq data=imagenet model=resnet18 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[150000,225000]' schedule.factor=0.1 batch_size=64 steps=300000 eval_every=10000 method.statistics=fresh method.num_samples=10 method.scope=model measure.every=100 trajectory=sgd method.bits=4 method.bucket_size=8192 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=exact method.weights=norm method.symmetric=true method.num_components=350 seed=1 run_dir=runs/imagenet_half/alq-4b-resnet18-imagenet-s1-8588a18e75b8ae

exit "${failed:-0}"
