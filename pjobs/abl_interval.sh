#!/usr/bin/env bash
# abl.interval: Three schedules of level updates (once, rarely, often) at 3 bits, bucket 16384, trained; fixed levels have no schedule.
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
  if [ "$code" -ne 0 ]; then failed=1; fi
}

# SGD once (also: SGD rarely, SGD often)
run method=sgd data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 seed=1 run_dir=runs/interval/sgd-resnet8-cifar10-s1-1eac1d585b2fa6

# SuperSGD once (also: SuperSGD rarely, SuperSGD often)
run method=supersgd data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 seed=1 run_dir=runs/interval/supersgd-resnet8-cifar10-s1-cedf544203f45e

# AMQ-N once
run method=amq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 method.bucket_size=16384 method.solver=paper 'method.update_at=[0]' method.update_every=80000 seed=1 run_dir=runs/interval/amq_n-3b-resnet8-cifar10-s1-57b0f19826f09a

# AMQ-N rarely
run method=amq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 method.bucket_size=16384 method.solver=paper 'method.update_at=[40000,60000]' method.update_every=80000 seed=1 run_dir=runs/interval/amq_n-3b-resnet8-cifar10-s1-358d24389f687d

# AMQ-N often
run method=amq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 method.bucket_size=16384 method.solver=paper 'method.update_at=[100,1000,2000,40000,60000]' method.update_every=80000 seed=1 run_dir=runs/interval/amq_n-3b-resnet8-cifar10-s1-65c9986d4c3342

# AMQ once
run method=amq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 method.bucket_size=16384 method.fit=mixture method.solver=paper method.weights=norm method.num_components=350 'method.update_at=[0]' method.update_every=80000 seed=1 run_dir=runs/interval/amq-3b-resnet8-cifar10-s1-63d10090a070bf

# AMQ rarely
run method=amq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 method.bucket_size=16384 method.fit=mixture method.solver=paper method.weights=norm method.num_components=350 'method.update_at=[40000,60000]' method.update_every=80000 seed=1 run_dir=runs/interval/amq-3b-resnet8-cifar10-s1-8d2e271e0f43c9

# AMQ often
run method=amq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 method.bucket_size=16384 method.fit=mixture method.solver=paper method.weights=norm method.num_components=350 'method.update_at=[100,1000,2000,40000,60000]' method.update_every=80000 seed=1 run_dir=runs/interval/amq-3b-resnet8-cifar10-s1-77275501082ebc

# ALQ-N once
run method=alq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 method.bucket_size=16384 method.solver=paper method.symmetric=false 'method.update_at=[0]' method.update_every=80000 seed=1 run_dir=runs/interval/alq_n-3b-resnet8-cifar10-s1-2e237391307d94

# ALQ-N rarely
run method=alq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 method.bucket_size=16384 method.solver=paper method.symmetric=false 'method.update_at=[40000,60000]' method.update_every=80000 seed=1 run_dir=runs/interval/alq_n-3b-resnet8-cifar10-s1-150f4debcf643b

# ALQ-N often
run method=alq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 method.bucket_size=16384 method.solver=paper method.symmetric=false 'method.update_at=[100,1000,2000,40000,60000]' method.update_every=80000 seed=1 run_dir=runs/interval/alq_n-3b-resnet8-cifar10-s1-89a0548c42198f

# QSGDinf once (also: QSGDinf rarely, QSGDinf often)
run method=qsgdinf data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bits=3 method.bucket_size=16384 seed=1 run_dir=runs/interval/qsgdinf-3b-resnet8-cifar10-s1-9936209ae65901

# TRN once (also: TRN rarely, TRN often)
run method=trn data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bucket_size=16384 seed=1 run_dir=runs/interval/trn-resnet8-cifar10-s1-9a189384c340dc

# NUQSGD once (also: NUQSGD rarely, NUQSGD often)
run method=nuqsgd data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bits=3 method.bucket_size=16384 seed=1 run_dir=runs/interval/nuqsgd-3b-resnet8-cifar10-s1-9c586ccaa88007

# ALQ once
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 method.bucket_size=16384 method.fit=mixture method.solver=paper method.weights=norm method.symmetric=false method.num_components=350 'method.update_at=[0]' method.update_every=80000 seed=1 run_dir=runs/interval/alq-3b-resnet8-cifar10-s1-5200be5cbc748f

# ALQ rarely
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 method.bucket_size=16384 method.fit=mixture method.solver=paper method.weights=norm method.symmetric=false method.num_components=350 'method.update_at=[40000,60000]' method.update_every=80000 seed=1 run_dir=runs/interval/alq-3b-resnet8-cifar10-s1-d7d7b390a3e02a

# ALQ often
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 method.bucket_size=16384 method.fit=mixture method.solver=paper method.weights=norm method.symmetric=false method.num_components=350 'method.update_at=[100,1000,2000,40000,60000]' method.update_every=80000 seed=1 run_dir=runs/interval/alq-3b-resnet8-cifar10-s1-4117b96676df73

# ALQ symmetric once
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 method.bucket_size=16384 method.fit=mixture method.solver=paper method.weights=norm method.symmetric=true method.num_components=350 'method.update_at=[0]' method.update_every=80000 seed=1 run_dir=runs/interval/alq-3b-resnet8-cifar10-s1-5e740db2ff5d35

# ALQ symmetric rarely
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 method.bucket_size=16384 method.fit=mixture method.solver=paper method.weights=norm method.symmetric=true method.num_components=350 'method.update_at=[40000,60000]' method.update_every=80000 seed=1 run_dir=runs/interval/alq-3b-resnet8-cifar10-s1-855b7a2ccd6d53

# ALQ symmetric often
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 method.bucket_size=16384 method.fit=mixture method.solver=paper method.weights=norm method.symmetric=true method.num_components=350 'method.update_at=[100,1000,2000,40000,60000]' method.update_every=80000 seed=1 run_dir=runs/interval/alq-3b-resnet8-cifar10-s1-0ec66b5bc11000

# ALQ closed form once
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 method.bucket_size=16384 method.fit=mixture method.solver=exact method.weights=norm method.symmetric=false method.num_components=350 'method.update_at=[0]' method.update_every=80000 seed=1 run_dir=runs/interval/alq-3b-resnet8-cifar10-s1-9b7a88c3ec7e63

# ALQ closed form rarely
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 method.bucket_size=16384 method.fit=mixture method.solver=exact method.weights=norm method.symmetric=false method.num_components=350 'method.update_at=[40000,60000]' method.update_every=80000 seed=1 run_dir=runs/interval/alq-3b-resnet8-cifar10-s1-8b155baa710206

# ALQ closed form often
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 method.bucket_size=16384 method.fit=mixture method.solver=exact method.weights=norm method.symmetric=false method.num_components=350 'method.update_at=[100,1000,2000,40000,60000]' method.update_every=80000 seed=1 run_dir=runs/interval/alq-3b-resnet8-cifar10-s1-761803d830d949

# ALQ closed form symmetric once
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 method.bucket_size=16384 method.fit=mixture method.solver=exact method.weights=norm method.symmetric=true method.num_components=350 'method.update_at=[0]' method.update_every=80000 seed=1 run_dir=runs/interval/alq-3b-resnet8-cifar10-s1-dd650fc5383459

# ALQ closed form symmetric rarely
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 method.bucket_size=16384 method.fit=mixture method.solver=exact method.weights=norm method.symmetric=true method.num_components=350 'method.update_at=[40000,60000]' method.update_every=80000 seed=1 run_dir=runs/interval/alq-3b-resnet8-cifar10-s1-471b5e13a42019

# ALQ closed form symmetric often
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 method.bucket_size=16384 method.fit=mixture method.solver=exact method.weights=norm method.symmetric=true method.num_components=350 'method.update_at=[100,1000,2000,40000,60000]' method.update_every=80000 seed=1 run_dir=runs/interval/alq-3b-resnet8-cifar10-s1-6b73da450905f0

exit "${failed:-0}"
