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
  if [ "$code" -ne 0 ] && [ "$code" -ne 4 ]; then failed=1; fi # 4: another process has its folder
}

# SGD once (also: SGD rarely, SGD often)
run method=sgd data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model seed=1 run_dir=runs/interval/sgd-resnet8-cifar10-s1-1eac1d585b2fa6

# SuperSGD once (also: SuperSGD rarely, SuperSGD often)
run method=supersgd data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model seed=1 run_dir=runs/interval/supersgd-resnet8-cifar10-s1-cedf544203f45e

# AMQ-N once
run method=amq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 method.bucket_size=16384 method.norm=l2 method.rounding=stochastic method.solver=paper 'method.update_at=[0]' method.update_every=80000 seed=1 run_dir=runs/interval/amq_n-3b-resnet8-cifar10-s1-04b255b7f05b7f

# AMQ-N rarely
run method=amq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 method.bucket_size=16384 method.norm=l2 method.rounding=stochastic method.solver=paper 'method.update_at=[40000,60000]' method.update_every=80000 seed=1 run_dir=runs/interval/amq_n-3b-resnet8-cifar10-s1-df94e7151e396a

# AMQ-N often
run method=amq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 method.bucket_size=16384 method.norm=l2 method.rounding=stochastic method.solver=paper 'method.update_at=[100,1000,2000,40000,60000]' method.update_every=80000 seed=1 run_dir=runs/interval/amq_n-3b-resnet8-cifar10-s1-9bfdaae79d2c4d

# AMQ once
run method=amq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 method.bucket_size=16384 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.num_components=350 'method.update_at=[0]' method.update_every=80000 seed=1 run_dir=runs/interval/amq-3b-resnet8-cifar10-s1-41ba6628a56b48

# AMQ rarely
run method=amq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 method.bucket_size=16384 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.num_components=350 'method.update_at=[40000,60000]' method.update_every=80000 seed=1 run_dir=runs/interval/amq-3b-resnet8-cifar10-s1-e04729ddfbc119

# AMQ often
run method=amq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 method.bucket_size=16384 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.num_components=350 'method.update_at=[100,1000,2000,40000,60000]' method.update_every=80000 seed=1 run_dir=runs/interval/amq-3b-resnet8-cifar10-s1-0c950b64d8e6cc

# ALQ-N once
run method=alq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 method.bucket_size=16384 method.norm=l2 method.rounding=stochastic method.solver=paper method.symmetric=false 'method.update_at=[0]' method.update_every=80000 seed=1 run_dir=runs/interval/alq_n-3b-resnet8-cifar10-s1-5b222a7db83dfa

# ALQ-N rarely
run method=alq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 method.bucket_size=16384 method.norm=l2 method.rounding=stochastic method.solver=paper method.symmetric=false 'method.update_at=[40000,60000]' method.update_every=80000 seed=1 run_dir=runs/interval/alq_n-3b-resnet8-cifar10-s1-dded27c8e54331

# ALQ-N often
run method=alq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 method.bucket_size=16384 method.norm=l2 method.rounding=stochastic method.solver=paper method.symmetric=false 'method.update_at=[100,1000,2000,40000,60000]' method.update_every=80000 seed=1 run_dir=runs/interval/alq_n-3b-resnet8-cifar10-s1-7d358d8ff99df8

# QSGDinf once (also: QSGDinf rarely, QSGDinf often)
run method=qsgdinf data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bits=3 method.bucket_size=16384 method.rounding=stochastic seed=1 run_dir=runs/interval/qsgdinf-3b-resnet8-cifar10-s1-476c9a8edeac1f

# TRN once (also: TRN rarely, TRN often)
run method=trn data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bucket_size=16384 method.rounding=stochastic seed=1 run_dir=runs/interval/trn-resnet8-cifar10-s1-bd82c4601f14d8

# NUQSGD once (also: NUQSGD rarely, NUQSGD often)
run method=nuqsgd data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bits=3 method.bucket_size=16384 method.rounding=stochastic seed=1 run_dir=runs/interval/nuqsgd-3b-resnet8-cifar10-s1-83aedc86db8a92

# ALQ once
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 method.bucket_size=16384 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.symmetric=false method.num_components=350 'method.update_at=[0]' method.update_every=80000 seed=1 run_dir=runs/interval/alq-3b-resnet8-cifar10-s1-8c3491935b50c5

# ALQ rarely
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 method.bucket_size=16384 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.symmetric=false method.num_components=350 'method.update_at=[40000,60000]' method.update_every=80000 seed=1 run_dir=runs/interval/alq-3b-resnet8-cifar10-s1-1070305df54e90

# ALQ often
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 method.bucket_size=16384 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.symmetric=false method.num_components=350 'method.update_at=[100,1000,2000,40000,60000]' method.update_every=80000 seed=1 run_dir=runs/interval/alq-3b-resnet8-cifar10-s1-6da07d6fb6061a

# ALQ symmetric once
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 method.bucket_size=16384 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.symmetric=true method.num_components=350 'method.update_at=[0]' method.update_every=80000 seed=1 run_dir=runs/interval/alq-3b-resnet8-cifar10-s1-1538e52810d294

# ALQ symmetric rarely
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 method.bucket_size=16384 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.symmetric=true method.num_components=350 'method.update_at=[40000,60000]' method.update_every=80000 seed=1 run_dir=runs/interval/alq-3b-resnet8-cifar10-s1-439162ebb36594

# ALQ symmetric often
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 method.bucket_size=16384 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.symmetric=true method.num_components=350 'method.update_at=[100,1000,2000,40000,60000]' method.update_every=80000 seed=1 run_dir=runs/interval/alq-3b-resnet8-cifar10-s1-17ebfaf9eaf619

# ALQ closed form once
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 method.bucket_size=16384 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=exact method.weights=norm method.symmetric=false method.num_components=350 'method.update_at=[0]' method.update_every=80000 seed=1 run_dir=runs/interval/alq-3b-resnet8-cifar10-s1-6353a5904807fc

# ALQ closed form rarely
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 method.bucket_size=16384 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=exact method.weights=norm method.symmetric=false method.num_components=350 'method.update_at=[40000,60000]' method.update_every=80000 seed=1 run_dir=runs/interval/alq-3b-resnet8-cifar10-s1-92341870d40e68

# ALQ closed form often
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 method.bucket_size=16384 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=exact method.weights=norm method.symmetric=false method.num_components=350 'method.update_at=[100,1000,2000,40000,60000]' method.update_every=80000 seed=1 run_dir=runs/interval/alq-3b-resnet8-cifar10-s1-36de5501f97f88

# ALQ closed form symmetric once
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 method.bucket_size=16384 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=exact method.weights=norm method.symmetric=true method.num_components=350 'method.update_at=[0]' method.update_every=80000 seed=1 run_dir=runs/interval/alq-3b-resnet8-cifar10-s1-66eddbd71d4dbd

# ALQ closed form symmetric rarely
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 method.bucket_size=16384 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=exact method.weights=norm method.symmetric=true method.num_components=350 'method.update_at=[40000,60000]' method.update_every=80000 seed=1 run_dir=runs/interval/alq-3b-resnet8-cifar10-s1-fd401952fce831

# ALQ closed form symmetric often
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 method.bucket_size=16384 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=exact method.weights=norm method.symmetric=true method.num_components=350 'method.update_at=[100,1000,2000,40000,60000]' method.update_every=80000 seed=1 run_dir=runs/interval/alq-3b-resnet8-cifar10-s1-f246758ff324eb

exit "${failed:-0}"
