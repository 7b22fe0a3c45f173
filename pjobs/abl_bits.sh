#!/usr/bin/env bash
# abl.bits: Ten variants x 2..7 bits at bucket 16384, trained; TRN has no bits, so its six points are one run.
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
run method=sgd data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model seed=1 run_dir=runs/bits/sgd-resnet8-cifar10-s1-1eac1d585b2fa6

# SuperSGD
run method=supersgd data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model seed=1 run_dir=runs/bits/supersgd-resnet8-cifar10-s1-cedf544203f45e

# AMQ-N bits=2
run method=amq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.solver=paper method.bits=2 seed=1 run_dir=runs/bits/amq_n-2b-resnet8-cifar10-s1-2b2b448d4c1c86

# AMQ-N bits=3
run method=amq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.solver=paper method.bits=3 seed=1 run_dir=runs/bits/amq_n-3b-resnet8-cifar10-s1-969239882c835f

# AMQ-N bits=4
run method=amq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.solver=paper method.bits=4 seed=1 run_dir=runs/bits/amq_n-4b-resnet8-cifar10-s1-41e6c71dd172c2

# AMQ-N bits=5
run method=amq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.solver=paper method.bits=5 seed=1 run_dir=runs/bits/amq_n-5b-resnet8-cifar10-s1-d7c319c0bbb7de

# AMQ-N bits=6
run method=amq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.solver=paper method.bits=6 seed=1 run_dir=runs/bits/amq_n-6b-resnet8-cifar10-s1-2b9a1fccec29f2

# AMQ-N bits=7
run method=amq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.solver=paper method.bits=7 seed=1 run_dir=runs/bits/amq_n-7b-resnet8-cifar10-s1-d6123d5d67c083

# AMQ bits=2
run method=amq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.num_components=350 method.bits=2 seed=1 run_dir=runs/bits/amq-2b-resnet8-cifar10-s1-66eef6c916677e

# AMQ bits=3
run method=amq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.num_components=350 method.bits=3 seed=1 run_dir=runs/bits/amq-3b-resnet8-cifar10-s1-db8a61d80c4392

# AMQ bits=4
run method=amq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.num_components=350 method.bits=4 seed=1 run_dir=runs/bits/amq-4b-resnet8-cifar10-s1-ee17bb7b160701

# AMQ bits=5
run method=amq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.num_components=350 method.bits=5 seed=1 run_dir=runs/bits/amq-5b-resnet8-cifar10-s1-12f71fe15b23ff

# AMQ bits=6
run method=amq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.num_components=350 method.bits=6 seed=1 run_dir=runs/bits/amq-6b-resnet8-cifar10-s1-3ef3a7d8ba8634

# AMQ bits=7
run method=amq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.num_components=350 method.bits=7 seed=1 run_dir=runs/bits/amq-7b-resnet8-cifar10-s1-32c816bc0c5cfd

# ALQ-N bits=2
run method=alq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.solver=paper method.symmetric=false method.bits=2 seed=1 run_dir=runs/bits/alq_n-2b-resnet8-cifar10-s1-524e5baafdf64b

# ALQ-N bits=3
run method=alq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.solver=paper method.symmetric=false method.bits=3 seed=1 run_dir=runs/bits/alq_n-3b-resnet8-cifar10-s1-1d29206f5b86b1

# ALQ-N bits=4
run method=alq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.solver=paper method.symmetric=false method.bits=4 seed=1 run_dir=runs/bits/alq_n-4b-resnet8-cifar10-s1-f2b69e95446755

# ALQ-N bits=5
run method=alq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.solver=paper method.symmetric=false method.bits=5 seed=1 run_dir=runs/bits/alq_n-5b-resnet8-cifar10-s1-d5b7dbcf35ee81

# ALQ-N bits=6
run method=alq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.solver=paper method.symmetric=false method.bits=6 seed=1 run_dir=runs/bits/alq_n-6b-resnet8-cifar10-s1-a93d6111c83ab9

# ALQ-N bits=7
run method=alq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.solver=paper method.symmetric=false method.bits=7 seed=1 run_dir=runs/bits/alq_n-7b-resnet8-cifar10-s1-ef3a599bbb7fd0

# QSGDinf bits=2
run method=qsgdinf data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bucket_size=16384 method.rounding=stochastic method.bits=2 seed=1 run_dir=runs/bits/qsgdinf-2b-resnet8-cifar10-s1-00958b7a9a3ed1

# QSGDinf bits=3
run method=qsgdinf data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bucket_size=16384 method.rounding=stochastic method.bits=3 seed=1 run_dir=runs/bits/qsgdinf-3b-resnet8-cifar10-s1-476c9a8edeac1f

# QSGDinf bits=4
run method=qsgdinf data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bucket_size=16384 method.rounding=stochastic method.bits=4 seed=1 run_dir=runs/bits/qsgdinf-4b-resnet8-cifar10-s1-496d7baa13729a

# QSGDinf bits=5
run method=qsgdinf data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bucket_size=16384 method.rounding=stochastic method.bits=5 seed=1 run_dir=runs/bits/qsgdinf-5b-resnet8-cifar10-s1-d5c7d6df7ea442

# QSGDinf bits=6
run method=qsgdinf data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bucket_size=16384 method.rounding=stochastic method.bits=6 seed=1 run_dir=runs/bits/qsgdinf-6b-resnet8-cifar10-s1-f594e6ad051b23

# QSGDinf bits=7
run method=qsgdinf data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bucket_size=16384 method.rounding=stochastic method.bits=7 seed=1 run_dir=runs/bits/qsgdinf-7b-resnet8-cifar10-s1-397ef78edf6c6f

# TRN bits=2 (also: TRN bits=3, TRN bits=4, TRN bits=5, TRN bits=6, TRN bits=7)
run method=trn data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bucket_size=16384 method.rounding=stochastic seed=1 run_dir=runs/bits/trn-resnet8-cifar10-s1-bd82c4601f14d8

# NUQSGD bits=2
run method=nuqsgd data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bucket_size=16384 method.rounding=stochastic method.bits=2 seed=1 run_dir=runs/bits/nuqsgd-2b-resnet8-cifar10-s1-3f6c246ea91d10

# NUQSGD bits=3
run method=nuqsgd data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bucket_size=16384 method.rounding=stochastic method.bits=3 seed=1 run_dir=runs/bits/nuqsgd-3b-resnet8-cifar10-s1-83aedc86db8a92

# NUQSGD bits=4
run method=nuqsgd data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bucket_size=16384 method.rounding=stochastic method.bits=4 seed=1 run_dir=runs/bits/nuqsgd-4b-resnet8-cifar10-s1-678f91a2852d2a

# NUQSGD bits=5
run method=nuqsgd data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bucket_size=16384 method.rounding=stochastic method.bits=5 seed=1 run_dir=runs/bits/nuqsgd-5b-resnet8-cifar10-s1-4e0a1001ba6951

# NUQSGD bits=6
run method=nuqsgd data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bucket_size=16384 method.rounding=stochastic method.bits=6 seed=1 run_dir=runs/bits/nuqsgd-6b-resnet8-cifar10-s1-0240d589b48929

# NUQSGD bits=7
run method=nuqsgd data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bucket_size=16384 method.rounding=stochastic method.bits=7 seed=1 run_dir=runs/bits/nuqsgd-7b-resnet8-cifar10-s1-42d561723df6b0

# ALQ bits=2
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.symmetric=false method.num_components=350 method.bits=2 seed=1 run_dir=runs/bits/alq-2b-resnet8-cifar10-s1-1f1abc35e7e007

# ALQ bits=3
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.symmetric=false method.num_components=350 method.bits=3 seed=1 run_dir=runs/bits/alq-3b-resnet8-cifar10-s1-335093df9e8ee1

# ALQ bits=4
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.symmetric=false method.num_components=350 method.bits=4 seed=1 run_dir=runs/bits/alq-4b-resnet8-cifar10-s1-c15d25155616d9

# ALQ bits=5
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.symmetric=false method.num_components=350 method.bits=5 seed=1 run_dir=runs/bits/alq-5b-resnet8-cifar10-s1-7aeedbdd70e1f8

# ALQ bits=6
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.symmetric=false method.num_components=350 method.bits=6 seed=1 run_dir=runs/bits/alq-6b-resnet8-cifar10-s1-e18306afd1c7bc

# ALQ bits=7
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.symmetric=false method.num_components=350 method.bits=7 seed=1 run_dir=runs/bits/alq-7b-resnet8-cifar10-s1-176ed08525ebb1

# ALQ symmetric bits=2
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.symmetric=true method.num_components=350 method.bits=2 seed=1 run_dir=runs/bits/alq-2b-resnet8-cifar10-s1-3c510b83bb5eec

# ALQ symmetric bits=3
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.symmetric=true method.num_components=350 method.bits=3 seed=1 run_dir=runs/bits/alq-3b-resnet8-cifar10-s1-2d8bcb091a9908

# ALQ symmetric bits=4
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.symmetric=true method.num_components=350 method.bits=4 seed=1 run_dir=runs/bits/alq-4b-resnet8-cifar10-s1-69127e7856d3b4

# ALQ symmetric bits=5
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.symmetric=true method.num_components=350 method.bits=5 seed=1 run_dir=runs/bits/alq-5b-resnet8-cifar10-s1-1c86a59c34bf5a

# ALQ symmetric bits=6
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.symmetric=true method.num_components=350 method.bits=6 seed=1 run_dir=runs/bits/alq-6b-resnet8-cifar10-s1-cf07c165e7901b

# ALQ symmetric bits=7
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.symmetric=true method.num_components=350 method.bits=7 seed=1 run_dir=runs/bits/alq-7b-resnet8-cifar10-s1-767b77cac8b65e

# ALQ closed form bits=2
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=exact method.weights=norm method.symmetric=false method.num_components=350 method.bits=2 seed=1 run_dir=runs/bits/alq-2b-resnet8-cifar10-s1-06e627df9193f6

# ALQ closed form bits=3
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=exact method.weights=norm method.symmetric=false method.num_components=350 method.bits=3 seed=1 run_dir=runs/bits/alq-3b-resnet8-cifar10-s1-46ab6374f9ec6d

# ALQ closed form bits=4
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=exact method.weights=norm method.symmetric=false method.num_components=350 method.bits=4 seed=1 run_dir=runs/bits/alq-4b-resnet8-cifar10-s1-2c10a0dafe0b3d

# ALQ closed form bits=5
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=exact method.weights=norm method.symmetric=false method.num_components=350 method.bits=5 seed=1 run_dir=runs/bits/alq-5b-resnet8-cifar10-s1-2e02cdd5d9fea4

# ALQ closed form bits=6
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=exact method.weights=norm method.symmetric=false method.num_components=350 method.bits=6 seed=1 run_dir=runs/bits/alq-6b-resnet8-cifar10-s1-10c2543dcd3e82

# ALQ closed form bits=7
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=exact method.weights=norm method.symmetric=false method.num_components=350 method.bits=7 seed=1 run_dir=runs/bits/alq-7b-resnet8-cifar10-s1-8c14f154443cf1

# ALQ closed form symmetric bits=2
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=exact method.weights=norm method.symmetric=true method.num_components=350 method.bits=2 seed=1 run_dir=runs/bits/alq-2b-resnet8-cifar10-s1-4a06be60d5ff1f

# ALQ closed form symmetric bits=3
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=exact method.weights=norm method.symmetric=true method.num_components=350 method.bits=3 seed=1 run_dir=runs/bits/alq-3b-resnet8-cifar10-s1-c9b434b3f44169

# ALQ closed form symmetric bits=4
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=exact method.weights=norm method.symmetric=true method.num_components=350 method.bits=4 seed=1 run_dir=runs/bits/alq-4b-resnet8-cifar10-s1-686857c4222505

# ALQ closed form symmetric bits=5
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=exact method.weights=norm method.symmetric=true method.num_components=350 method.bits=5 seed=1 run_dir=runs/bits/alq-5b-resnet8-cifar10-s1-b195fdc100eb0e

# ALQ closed form symmetric bits=6
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=exact method.weights=norm method.symmetric=true method.num_components=350 method.bits=6 seed=1 run_dir=runs/bits/alq-6b-resnet8-cifar10-s1-31ac6eb98ce8af

# ALQ closed form symmetric bits=7
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=exact method.weights=norm method.symmetric=true method.num_components=350 method.bits=7 seed=1 run_dir=runs/bits/alq-7b-resnet8-cifar10-s1-ae72fa6366e3c6

exit "${failed:-0}"
