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
  if [ "$code" -ne 0 ]; then failed=1; fi
}

# SGD
run method=sgd data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 seed=1 run_dir=runs/bits/sgd-resnet8-cifar10-s1-1eac1d585b2fa6

# SuperSGD
run method=supersgd data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 seed=1 run_dir=runs/bits/supersgd-resnet8-cifar10-s1-cedf544203f45e

# AMQ-N bits=2
run method=amq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.solver=paper method.bits=2 seed=1 run_dir=runs/bits/amq_n-2b-resnet8-cifar10-s1-127e8db1868205

# AMQ-N bits=3
run method=amq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.solver=paper method.bits=3 seed=1 run_dir=runs/bits/amq_n-3b-resnet8-cifar10-s1-beb72f22571482

# AMQ-N bits=4
run method=amq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.solver=paper method.bits=4 seed=1 run_dir=runs/bits/amq_n-4b-resnet8-cifar10-s1-eb9c693c9f52b2

# AMQ-N bits=5
run method=amq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.solver=paper method.bits=5 seed=1 run_dir=runs/bits/amq_n-5b-resnet8-cifar10-s1-c29941e553c415

# AMQ-N bits=6
run method=amq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.solver=paper method.bits=6 seed=1 run_dir=runs/bits/amq_n-6b-resnet8-cifar10-s1-f3341cacb23850

# AMQ-N bits=7
run method=amq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.solver=paper method.bits=7 seed=1 run_dir=runs/bits/amq_n-7b-resnet8-cifar10-s1-431516714cda49

# AMQ bits=2
run method=amq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=paper method.weights=norm method.num_components=350 method.bits=2 seed=1 run_dir=runs/bits/amq-2b-resnet8-cifar10-s1-9924097a46f0b2

# AMQ bits=3
run method=amq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=paper method.weights=norm method.num_components=350 method.bits=3 seed=1 run_dir=runs/bits/amq-3b-resnet8-cifar10-s1-fed97708102d69

# AMQ bits=4
run method=amq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=paper method.weights=norm method.num_components=350 method.bits=4 seed=1 run_dir=runs/bits/amq-4b-resnet8-cifar10-s1-620908090e46b8

# AMQ bits=5
run method=amq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=paper method.weights=norm method.num_components=350 method.bits=5 seed=1 run_dir=runs/bits/amq-5b-resnet8-cifar10-s1-f8319c93ed36dd

# AMQ bits=6
run method=amq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=paper method.weights=norm method.num_components=350 method.bits=6 seed=1 run_dir=runs/bits/amq-6b-resnet8-cifar10-s1-a7d479300ddefc

# AMQ bits=7
run method=amq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=paper method.weights=norm method.num_components=350 method.bits=7 seed=1 run_dir=runs/bits/amq-7b-resnet8-cifar10-s1-68244a26adc86b

# ALQ-N bits=2
run method=alq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.solver=paper method.symmetric=false method.bits=2 seed=1 run_dir=runs/bits/alq_n-2b-resnet8-cifar10-s1-1d26eae8cd0ed0

# ALQ-N bits=3
run method=alq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.solver=paper method.symmetric=false method.bits=3 seed=1 run_dir=runs/bits/alq_n-3b-resnet8-cifar10-s1-6f558e39641667

# ALQ-N bits=4
run method=alq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.solver=paper method.symmetric=false method.bits=4 seed=1 run_dir=runs/bits/alq_n-4b-resnet8-cifar10-s1-377d9a35120e01

# ALQ-N bits=5
run method=alq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.solver=paper method.symmetric=false method.bits=5 seed=1 run_dir=runs/bits/alq_n-5b-resnet8-cifar10-s1-308a21f33f3349

# ALQ-N bits=6
run method=alq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.solver=paper method.symmetric=false method.bits=6 seed=1 run_dir=runs/bits/alq_n-6b-resnet8-cifar10-s1-63463cf61170bc

# ALQ-N bits=7
run method=alq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.solver=paper method.symmetric=false method.bits=7 seed=1 run_dir=runs/bits/alq_n-7b-resnet8-cifar10-s1-0116b9127207e7

# QSGDinf bits=2
run method=qsgdinf data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bucket_size=16384 method.bits=2 seed=1 run_dir=runs/bits/qsgdinf-2b-resnet8-cifar10-s1-573373169f9dd7

# QSGDinf bits=3
run method=qsgdinf data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bucket_size=16384 method.bits=3 seed=1 run_dir=runs/bits/qsgdinf-3b-resnet8-cifar10-s1-9936209ae65901

# QSGDinf bits=4
run method=qsgdinf data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bucket_size=16384 method.bits=4 seed=1 run_dir=runs/bits/qsgdinf-4b-resnet8-cifar10-s1-0e67bb67302de9

# QSGDinf bits=5
run method=qsgdinf data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bucket_size=16384 method.bits=5 seed=1 run_dir=runs/bits/qsgdinf-5b-resnet8-cifar10-s1-c6307c49cda4e7

# QSGDinf bits=6
run method=qsgdinf data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bucket_size=16384 method.bits=6 seed=1 run_dir=runs/bits/qsgdinf-6b-resnet8-cifar10-s1-116f8e9999f7e1

# QSGDinf bits=7
run method=qsgdinf data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bucket_size=16384 method.bits=7 seed=1 run_dir=runs/bits/qsgdinf-7b-resnet8-cifar10-s1-138c16b409a290

# TRN bits=2 (also: TRN bits=3, TRN bits=4, TRN bits=5, TRN bits=6, TRN bits=7)
run method=trn data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bucket_size=16384 seed=1 run_dir=runs/bits/trn-resnet8-cifar10-s1-9a189384c340dc

# NUQSGD bits=2
run method=nuqsgd data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bucket_size=16384 method.bits=2 seed=1 run_dir=runs/bits/nuqsgd-2b-resnet8-cifar10-s1-3d641321be5a32

# NUQSGD bits=3
run method=nuqsgd data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bucket_size=16384 method.bits=3 seed=1 run_dir=runs/bits/nuqsgd-3b-resnet8-cifar10-s1-9c586ccaa88007

# NUQSGD bits=4
run method=nuqsgd data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bucket_size=16384 method.bits=4 seed=1 run_dir=runs/bits/nuqsgd-4b-resnet8-cifar10-s1-5d7e2bff5dbd8d

# NUQSGD bits=5
run method=nuqsgd data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bucket_size=16384 method.bits=5 seed=1 run_dir=runs/bits/nuqsgd-5b-resnet8-cifar10-s1-f300593fda6938

# NUQSGD bits=6
run method=nuqsgd data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bucket_size=16384 method.bits=6 seed=1 run_dir=runs/bits/nuqsgd-6b-resnet8-cifar10-s1-54905f3656a6c1

# NUQSGD bits=7
run method=nuqsgd data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bucket_size=16384 method.bits=7 seed=1 run_dir=runs/bits/nuqsgd-7b-resnet8-cifar10-s1-31b4f40d1afbb4

# ALQ bits=2
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=paper method.weights=norm method.symmetric=false method.num_components=350 method.bits=2 seed=1 run_dir=runs/bits/alq-2b-resnet8-cifar10-s1-a84046f3ea4daf

# ALQ bits=3
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=paper method.weights=norm method.symmetric=false method.num_components=350 method.bits=3 seed=1 run_dir=runs/bits/alq-3b-resnet8-cifar10-s1-af9c905aa04902

# ALQ bits=4
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=paper method.weights=norm method.symmetric=false method.num_components=350 method.bits=4 seed=1 run_dir=runs/bits/alq-4b-resnet8-cifar10-s1-d78dc72f27d5c4

# ALQ bits=5
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=paper method.weights=norm method.symmetric=false method.num_components=350 method.bits=5 seed=1 run_dir=runs/bits/alq-5b-resnet8-cifar10-s1-bbcef1170c8356

# ALQ bits=6
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=paper method.weights=norm method.symmetric=false method.num_components=350 method.bits=6 seed=1 run_dir=runs/bits/alq-6b-resnet8-cifar10-s1-ba8728986ea4ff

# ALQ bits=7
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=paper method.weights=norm method.symmetric=false method.num_components=350 method.bits=7 seed=1 run_dir=runs/bits/alq-7b-resnet8-cifar10-s1-5d494af56ddd22

# ALQ symmetric bits=2
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=paper method.weights=norm method.symmetric=true method.num_components=350 method.bits=2 seed=1 run_dir=runs/bits/alq-2b-resnet8-cifar10-s1-d3123f5d711180

# ALQ symmetric bits=3
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=paper method.weights=norm method.symmetric=true method.num_components=350 method.bits=3 seed=1 run_dir=runs/bits/alq-3b-resnet8-cifar10-s1-665d93599fbed4

# ALQ symmetric bits=4
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=paper method.weights=norm method.symmetric=true method.num_components=350 method.bits=4 seed=1 run_dir=runs/bits/alq-4b-resnet8-cifar10-s1-d0fe0cc8fe5f65

# ALQ symmetric bits=5
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=paper method.weights=norm method.symmetric=true method.num_components=350 method.bits=5 seed=1 run_dir=runs/bits/alq-5b-resnet8-cifar10-s1-b0ba0546e8bf09

# ALQ symmetric bits=6
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=paper method.weights=norm method.symmetric=true method.num_components=350 method.bits=6 seed=1 run_dir=runs/bits/alq-6b-resnet8-cifar10-s1-6d18ffe1df6e23

# ALQ symmetric bits=7
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=paper method.weights=norm method.symmetric=true method.num_components=350 method.bits=7 seed=1 run_dir=runs/bits/alq-7b-resnet8-cifar10-s1-af06c87b2926f7

# ALQ closed form bits=2
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=exact method.weights=norm method.symmetric=false method.num_components=350 method.bits=2 seed=1 run_dir=runs/bits/alq-2b-resnet8-cifar10-s1-3fe95fd38e0c4a

# ALQ closed form bits=3
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=exact method.weights=norm method.symmetric=false method.num_components=350 method.bits=3 seed=1 run_dir=runs/bits/alq-3b-resnet8-cifar10-s1-6d584367f0d2a8

# ALQ closed form bits=4
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=exact method.weights=norm method.symmetric=false method.num_components=350 method.bits=4 seed=1 run_dir=runs/bits/alq-4b-resnet8-cifar10-s1-52fee2e45abac5

# ALQ closed form bits=5
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=exact method.weights=norm method.symmetric=false method.num_components=350 method.bits=5 seed=1 run_dir=runs/bits/alq-5b-resnet8-cifar10-s1-0d9394dfd94422

# ALQ closed form bits=6
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=exact method.weights=norm method.symmetric=false method.num_components=350 method.bits=6 seed=1 run_dir=runs/bits/alq-6b-resnet8-cifar10-s1-67f9ff0b80a9d6

# ALQ closed form bits=7
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=exact method.weights=norm method.symmetric=false method.num_components=350 method.bits=7 seed=1 run_dir=runs/bits/alq-7b-resnet8-cifar10-s1-a1bf816446b15d

# ALQ closed form symmetric bits=2
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=exact method.weights=norm method.symmetric=true method.num_components=350 method.bits=2 seed=1 run_dir=runs/bits/alq-2b-resnet8-cifar10-s1-6fafade5516209

# ALQ closed form symmetric bits=3
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=exact method.weights=norm method.symmetric=true method.num_components=350 method.bits=3 seed=1 run_dir=runs/bits/alq-3b-resnet8-cifar10-s1-ee0cd50f0572c1

# ALQ closed form symmetric bits=4
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=exact method.weights=norm method.symmetric=true method.num_components=350 method.bits=4 seed=1 run_dir=runs/bits/alq-4b-resnet8-cifar10-s1-dea9583c4f92ec

# ALQ closed form symmetric bits=5
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=exact method.weights=norm method.symmetric=true method.num_components=350 method.bits=5 seed=1 run_dir=runs/bits/alq-5b-resnet8-cifar10-s1-2276eb1ff9389f

# ALQ closed form symmetric bits=6
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=exact method.weights=norm method.symmetric=true method.num_components=350 method.bits=6 seed=1 run_dir=runs/bits/alq-6b-resnet8-cifar10-s1-84b63c05d4c812

# ALQ closed form symmetric bits=7
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bucket_size=16384 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=exact method.weights=norm method.symmetric=true method.num_components=350 method.bits=7 seed=1 run_dir=runs/bits/alq-7b-resnet8-cifar10-s1-12e7bb47b6e171

exit "${failed:-0}"
