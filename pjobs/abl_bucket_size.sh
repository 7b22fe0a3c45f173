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
  if [ "$code" -ne 0 ]; then failed=1; fi
}

# SGD
run method=sgd data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd seed=1 run_dir=runs/bucket_size/sgd-resnet8-cifar10-s1-e45e697b28b67e

# SuperSGD
run method=supersgd data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd seed=1 run_dir=runs/bucket_size/supersgd-resnet8-cifar10-s1-8823fd76b857ef

# AMQ-N bucket_size=16
run method=amq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.solver=paper method.bucket_size=16 seed=1 run_dir=runs/bucket_size/amq_n-3b-resnet8-cifar10-s1-ee2c85d75a3361

# AMQ-N bucket_size=64
run method=amq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.solver=paper method.bucket_size=64 seed=1 run_dir=runs/bucket_size/amq_n-3b-resnet8-cifar10-s1-fbb7db15835a21

# AMQ-N bucket_size=128
run method=amq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.solver=paper method.bucket_size=128 seed=1 run_dir=runs/bucket_size/amq_n-3b-resnet8-cifar10-s1-f83507ac492289

# AMQ-N bucket_size=256
run method=amq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.solver=paper method.bucket_size=256 seed=1 run_dir=runs/bucket_size/amq_n-3b-resnet8-cifar10-s1-e35fa9576ac749

# AMQ-N bucket_size=512
run method=amq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.solver=paper method.bucket_size=512 seed=1 run_dir=runs/bucket_size/amq_n-3b-resnet8-cifar10-s1-2232724082928f

# AMQ-N bucket_size=1024
run method=amq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.solver=paper method.bucket_size=1024 seed=1 run_dir=runs/bucket_size/amq_n-3b-resnet8-cifar10-s1-ab2ef05b14ef64

# AMQ-N bucket_size=2048
run method=amq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.solver=paper method.bucket_size=2048 seed=1 run_dir=runs/bucket_size/amq_n-3b-resnet8-cifar10-s1-e84aaf2cf2d753

# AMQ-N bucket_size=4096
run method=amq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.solver=paper method.bucket_size=4096 seed=1 run_dir=runs/bucket_size/amq_n-3b-resnet8-cifar10-s1-ab57d740dbf818

# AMQ-N bucket_size=8192
run method=amq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.solver=paper method.bucket_size=8192 seed=1 run_dir=runs/bucket_size/amq_n-3b-resnet8-cifar10-s1-622f018dcf959e

# AMQ-N bucket_size=16384
run method=amq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.solver=paper method.bucket_size=16384 seed=1 run_dir=runs/bucket_size/amq_n-3b-resnet8-cifar10-s1-2a722f5121ff9f

# AMQ-N bucket_size=32768
run method=amq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.solver=paper method.bucket_size=32768 seed=1 run_dir=runs/bucket_size/amq_n-3b-resnet8-cifar10-s1-b83a44a1a538e3

# AMQ bucket_size=16
run method=amq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=paper method.weights=norm method.num_components=350 method.bucket_size=16 seed=1 run_dir=runs/bucket_size/amq-3b-resnet8-cifar10-s1-0d696a55af4b94

# AMQ bucket_size=64
run method=amq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=paper method.weights=norm method.num_components=350 method.bucket_size=64 seed=1 run_dir=runs/bucket_size/amq-3b-resnet8-cifar10-s1-803b470f1cc0ae

# AMQ bucket_size=128
run method=amq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=paper method.weights=norm method.num_components=350 method.bucket_size=128 seed=1 run_dir=runs/bucket_size/amq-3b-resnet8-cifar10-s1-a6f84c81bf5e25

# AMQ bucket_size=256
run method=amq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=paper method.weights=norm method.num_components=350 method.bucket_size=256 seed=1 run_dir=runs/bucket_size/amq-3b-resnet8-cifar10-s1-b42067faa1aae5

# AMQ bucket_size=512
run method=amq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=paper method.weights=norm method.num_components=350 method.bucket_size=512 seed=1 run_dir=runs/bucket_size/amq-3b-resnet8-cifar10-s1-c5554616e6d3ef

# AMQ bucket_size=1024
run method=amq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=paper method.weights=norm method.num_components=350 method.bucket_size=1024 seed=1 run_dir=runs/bucket_size/amq-3b-resnet8-cifar10-s1-13dd431158a619

# AMQ bucket_size=2048
run method=amq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=paper method.weights=norm method.num_components=350 method.bucket_size=2048 seed=1 run_dir=runs/bucket_size/amq-3b-resnet8-cifar10-s1-0076150ec1fe09

# AMQ bucket_size=4096
run method=amq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=paper method.weights=norm method.num_components=350 method.bucket_size=4096 seed=1 run_dir=runs/bucket_size/amq-3b-resnet8-cifar10-s1-6ee4df5c3f38c5

# AMQ bucket_size=8192
run method=amq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=paper method.weights=norm method.num_components=350 method.bucket_size=8192 seed=1 run_dir=runs/bucket_size/amq-3b-resnet8-cifar10-s1-a05144ee282d13

# AMQ bucket_size=16384
run method=amq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=paper method.weights=norm method.num_components=350 method.bucket_size=16384 seed=1 run_dir=runs/bucket_size/amq-3b-resnet8-cifar10-s1-8dc7a18ec3b9dc

# AMQ bucket_size=32768
run method=amq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=paper method.weights=norm method.num_components=350 method.bucket_size=32768 seed=1 run_dir=runs/bucket_size/amq-3b-resnet8-cifar10-s1-eae6d1ea4a263d

# ALQ-N bucket_size=16
run method=alq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.solver=paper method.symmetric=false method.bucket_size=16 seed=1 run_dir=runs/bucket_size/alq_n-3b-resnet8-cifar10-s1-00bf1fcf6954fd

# ALQ-N bucket_size=64
run method=alq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.solver=paper method.symmetric=false method.bucket_size=64 seed=1 run_dir=runs/bucket_size/alq_n-3b-resnet8-cifar10-s1-2e3f0c785ccc9a

# ALQ-N bucket_size=128
run method=alq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.solver=paper method.symmetric=false method.bucket_size=128 seed=1 run_dir=runs/bucket_size/alq_n-3b-resnet8-cifar10-s1-61eeea77a958de

# ALQ-N bucket_size=256
run method=alq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.solver=paper method.symmetric=false method.bucket_size=256 seed=1 run_dir=runs/bucket_size/alq_n-3b-resnet8-cifar10-s1-36947ef0c1b2c1

# ALQ-N bucket_size=512
run method=alq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.solver=paper method.symmetric=false method.bucket_size=512 seed=1 run_dir=runs/bucket_size/alq_n-3b-resnet8-cifar10-s1-b7cdd509852336

# ALQ-N bucket_size=1024
run method=alq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.solver=paper method.symmetric=false method.bucket_size=1024 seed=1 run_dir=runs/bucket_size/alq_n-3b-resnet8-cifar10-s1-410e9aba0d7b67

# ALQ-N bucket_size=2048
run method=alq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.solver=paper method.symmetric=false method.bucket_size=2048 seed=1 run_dir=runs/bucket_size/alq_n-3b-resnet8-cifar10-s1-db14ec29f6a822

# ALQ-N bucket_size=4096
run method=alq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.solver=paper method.symmetric=false method.bucket_size=4096 seed=1 run_dir=runs/bucket_size/alq_n-3b-resnet8-cifar10-s1-5ace4acb299c0b

# ALQ-N bucket_size=8192
run method=alq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.solver=paper method.symmetric=false method.bucket_size=8192 seed=1 run_dir=runs/bucket_size/alq_n-3b-resnet8-cifar10-s1-d0b4ba4e0217bb

# ALQ-N bucket_size=16384
run method=alq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.solver=paper method.symmetric=false method.bucket_size=16384 seed=1 run_dir=runs/bucket_size/alq_n-3b-resnet8-cifar10-s1-1b7339445104bc

# ALQ-N bucket_size=32768
run method=alq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.solver=paper method.symmetric=false method.bucket_size=32768 seed=1 run_dir=runs/bucket_size/alq_n-3b-resnet8-cifar10-s1-01f4e07ae509e8

# QSGDinf bucket_size=16
run method=qsgdinf data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.scope=model method.bits=3 method.bucket_size=16 seed=1 run_dir=runs/bucket_size/qsgdinf-3b-resnet8-cifar10-s1-e4d528d3ede0b8

# QSGDinf bucket_size=64
run method=qsgdinf data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.scope=model method.bits=3 method.bucket_size=64 seed=1 run_dir=runs/bucket_size/qsgdinf-3b-resnet8-cifar10-s1-1891f87af7e513

# QSGDinf bucket_size=128
run method=qsgdinf data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.scope=model method.bits=3 method.bucket_size=128 seed=1 run_dir=runs/bucket_size/qsgdinf-3b-resnet8-cifar10-s1-a27d1fe206554b

# QSGDinf bucket_size=256
run method=qsgdinf data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.scope=model method.bits=3 method.bucket_size=256 seed=1 run_dir=runs/bucket_size/qsgdinf-3b-resnet8-cifar10-s1-f9acfc6a71808e

# QSGDinf bucket_size=512
run method=qsgdinf data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.scope=model method.bits=3 method.bucket_size=512 seed=1 run_dir=runs/bucket_size/qsgdinf-3b-resnet8-cifar10-s1-7a0dd2019858f3

# QSGDinf bucket_size=1024
run method=qsgdinf data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.scope=model method.bits=3 method.bucket_size=1024 seed=1 run_dir=runs/bucket_size/qsgdinf-3b-resnet8-cifar10-s1-d04a7d76125f3a

# QSGDinf bucket_size=2048
run method=qsgdinf data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.scope=model method.bits=3 method.bucket_size=2048 seed=1 run_dir=runs/bucket_size/qsgdinf-3b-resnet8-cifar10-s1-322931a7d63aa8

# QSGDinf bucket_size=4096
run method=qsgdinf data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.scope=model method.bits=3 method.bucket_size=4096 seed=1 run_dir=runs/bucket_size/qsgdinf-3b-resnet8-cifar10-s1-2f139ed5daf248

# QSGDinf bucket_size=8192
run method=qsgdinf data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.scope=model method.bits=3 method.bucket_size=8192 seed=1 run_dir=runs/bucket_size/qsgdinf-3b-resnet8-cifar10-s1-5e271358d1705b

# QSGDinf bucket_size=16384
run method=qsgdinf data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.scope=model method.bits=3 method.bucket_size=16384 seed=1 run_dir=runs/bucket_size/qsgdinf-3b-resnet8-cifar10-s1-e66a5ababf5830

# QSGDinf bucket_size=32768
run method=qsgdinf data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.scope=model method.bits=3 method.bucket_size=32768 seed=1 run_dir=runs/bucket_size/qsgdinf-3b-resnet8-cifar10-s1-686934c5efbfd4

# TRN bucket_size=16
run method=trn data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.scope=model method.bucket_size=16 seed=1 run_dir=runs/bucket_size/trn-resnet8-cifar10-s1-6678f938b3650f

# TRN bucket_size=64
run method=trn data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.scope=model method.bucket_size=64 seed=1 run_dir=runs/bucket_size/trn-resnet8-cifar10-s1-1af22d763b19c3

# TRN bucket_size=128
run method=trn data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.scope=model method.bucket_size=128 seed=1 run_dir=runs/bucket_size/trn-resnet8-cifar10-s1-b80ee94967d0ac

# TRN bucket_size=256
run method=trn data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.scope=model method.bucket_size=256 seed=1 run_dir=runs/bucket_size/trn-resnet8-cifar10-s1-c2d514cdd3d5bb

# TRN bucket_size=512
run method=trn data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.scope=model method.bucket_size=512 seed=1 run_dir=runs/bucket_size/trn-resnet8-cifar10-s1-73ae0d0a69d188

# TRN bucket_size=1024
run method=trn data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.scope=model method.bucket_size=1024 seed=1 run_dir=runs/bucket_size/trn-resnet8-cifar10-s1-283351433c3b9e

# TRN bucket_size=2048
run method=trn data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.scope=model method.bucket_size=2048 seed=1 run_dir=runs/bucket_size/trn-resnet8-cifar10-s1-9b811922293cd7

# TRN bucket_size=4096
run method=trn data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.scope=model method.bucket_size=4096 seed=1 run_dir=runs/bucket_size/trn-resnet8-cifar10-s1-2b5885279f6fef

# TRN bucket_size=8192
run method=trn data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.scope=model method.bucket_size=8192 seed=1 run_dir=runs/bucket_size/trn-resnet8-cifar10-s1-d994e34664c03b

# TRN bucket_size=16384
run method=trn data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.scope=model method.bucket_size=16384 seed=1 run_dir=runs/bucket_size/trn-resnet8-cifar10-s1-363a93377e81c6

# TRN bucket_size=32768
run method=trn data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.scope=model method.bucket_size=32768 seed=1 run_dir=runs/bucket_size/trn-resnet8-cifar10-s1-e588350c8e33f2

# NUQSGD bucket_size=16
run method=nuqsgd data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.scope=model method.bits=3 method.bucket_size=16 seed=1 run_dir=runs/bucket_size/nuqsgd-3b-resnet8-cifar10-s1-44bd4ed9456757

# NUQSGD bucket_size=64
run method=nuqsgd data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.scope=model method.bits=3 method.bucket_size=64 seed=1 run_dir=runs/bucket_size/nuqsgd-3b-resnet8-cifar10-s1-859ae00e1c15b2

# NUQSGD bucket_size=128
run method=nuqsgd data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.scope=model method.bits=3 method.bucket_size=128 seed=1 run_dir=runs/bucket_size/nuqsgd-3b-resnet8-cifar10-s1-2077101e4ba670

# NUQSGD bucket_size=256
run method=nuqsgd data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.scope=model method.bits=3 method.bucket_size=256 seed=1 run_dir=runs/bucket_size/nuqsgd-3b-resnet8-cifar10-s1-d7f0be3e6d69ec

# NUQSGD bucket_size=512
run method=nuqsgd data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.scope=model method.bits=3 method.bucket_size=512 seed=1 run_dir=runs/bucket_size/nuqsgd-3b-resnet8-cifar10-s1-b49afffabace9d

# NUQSGD bucket_size=1024
run method=nuqsgd data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.scope=model method.bits=3 method.bucket_size=1024 seed=1 run_dir=runs/bucket_size/nuqsgd-3b-resnet8-cifar10-s1-fff861bc54d5da

# NUQSGD bucket_size=2048
run method=nuqsgd data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.scope=model method.bits=3 method.bucket_size=2048 seed=1 run_dir=runs/bucket_size/nuqsgd-3b-resnet8-cifar10-s1-33ed5be52e1141

# NUQSGD bucket_size=4096
run method=nuqsgd data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.scope=model method.bits=3 method.bucket_size=4096 seed=1 run_dir=runs/bucket_size/nuqsgd-3b-resnet8-cifar10-s1-fdf70f92cbef9d

# NUQSGD bucket_size=8192
run method=nuqsgd data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.scope=model method.bits=3 method.bucket_size=8192 seed=1 run_dir=runs/bucket_size/nuqsgd-3b-resnet8-cifar10-s1-e57b498d9d0bb7

# NUQSGD bucket_size=16384
run method=nuqsgd data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.scope=model method.bits=3 method.bucket_size=16384 seed=1 run_dir=runs/bucket_size/nuqsgd-3b-resnet8-cifar10-s1-53f344b894505d

# NUQSGD bucket_size=32768
run method=nuqsgd data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.scope=model method.bits=3 method.bucket_size=32768 seed=1 run_dir=runs/bucket_size/nuqsgd-3b-resnet8-cifar10-s1-b7ed705e0e9528

# ALQ bucket_size=16
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=paper method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=16 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-66519d1e35d0d1

# ALQ bucket_size=64
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=paper method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=64 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-e1d4bc30fccb9c

# ALQ bucket_size=128
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=paper method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=128 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-705aa075fe6f82

# ALQ bucket_size=256
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=paper method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=256 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-adfce03801f660

# ALQ bucket_size=512
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=paper method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=512 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-11870cf799f68d

# ALQ bucket_size=1024
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=paper method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=1024 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-ceaad4fecca2e1

# ALQ bucket_size=2048
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=paper method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=2048 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-43f51555dfc9ee

# ALQ bucket_size=4096
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=paper method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=4096 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-3070b3c152d5b3

# ALQ bucket_size=8192
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=paper method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=8192 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-2b76f5d2c59c33

# ALQ bucket_size=16384
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=paper method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=16384 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-688b98fe476aff

# ALQ bucket_size=32768
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=paper method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=32768 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-b55ac103cc959c

# ALQ symmetric bucket_size=16
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=paper method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=16 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-635f750290fcc9

# ALQ symmetric bucket_size=64
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=paper method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=64 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-73f1e865f96d96

# ALQ symmetric bucket_size=128
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=paper method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=128 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-8719c9378fdc92

# ALQ symmetric bucket_size=256
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=paper method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=256 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-619078999bdd98

# ALQ symmetric bucket_size=512
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=paper method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=512 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-c2bfd8a1b98d6e

# ALQ symmetric bucket_size=1024
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=paper method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=1024 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-14bebc7efce8b9

# ALQ symmetric bucket_size=2048
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=paper method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=2048 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-9bfb885baa07d7

# ALQ symmetric bucket_size=4096
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=paper method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=4096 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-2865d70eed69dc

# ALQ symmetric bucket_size=8192
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=paper method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=8192 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-4da9e49de1d8ac

# ALQ symmetric bucket_size=16384
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=paper method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=16384 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-9fa8d6f3b4cc1c

# ALQ symmetric bucket_size=32768
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=paper method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=32768 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-2ab09cba532d58

# ALQ closed form bucket_size=16
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=exact method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=16 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-fe6f0abb513528

# ALQ closed form bucket_size=64
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=exact method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=64 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-4b3f137866606d

# ALQ closed form bucket_size=128
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=exact method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=128 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-121a5ca788bb55

# ALQ closed form bucket_size=256
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=exact method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=256 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-c27ed075bc6b44

# ALQ closed form bucket_size=512
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=exact method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=512 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-572efa79e4b82f

# ALQ closed form bucket_size=1024
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=exact method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=1024 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-896a880612598a

# ALQ closed form bucket_size=2048
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=exact method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=2048 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-23dc5745b0cac7

# ALQ closed form bucket_size=4096
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=exact method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=4096 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-7438b27a9799a2

# ALQ closed form bucket_size=8192
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=exact method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=8192 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-29b8aa032a8137

# ALQ closed form bucket_size=16384
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=exact method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=16384 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-f5559dbb3d438f

# ALQ closed form bucket_size=32768
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=exact method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=32768 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-21550f0834e12f

# ALQ closed form symmetric bucket_size=16
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=exact method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=16 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-3839b75fb1add9

# ALQ closed form symmetric bucket_size=64
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=exact method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=64 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-36d54ae1559329

# ALQ closed form symmetric bucket_size=128
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=exact method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=128 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-e1affbba0bb42a

# ALQ closed form symmetric bucket_size=256
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=exact method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=256 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-e542c606f3dda0

# ALQ closed form symmetric bucket_size=512
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=exact method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=512 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-779217c92cf08a

# ALQ closed form symmetric bucket_size=1024
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=exact method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=1024 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-d8184bb76eafe5

# ALQ closed form symmetric bucket_size=2048
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=exact method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=2048 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-38d88b44bb5eb1

# ALQ closed form symmetric bucket_size=4096
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=exact method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=4096 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-9bb53910dd3435

# ALQ closed form symmetric bucket_size=8192
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=exact method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=8192 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-88efb8c092ab49

# ALQ closed form symmetric bucket_size=16384
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=exact method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=16384 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-02c8426ad038f4

# ALQ closed form symmetric bucket_size=32768
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 trajectory=sgd method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=exact method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=32768 seed=1 run_dir=runs/bucket_size/alq-3b-resnet8-cifar10-s1-f3c9963ab5aeef

exit "${failed:-0}"
