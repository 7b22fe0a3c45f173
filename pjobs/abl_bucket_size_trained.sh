#!/usr/bin/env bash
# abl.bucket_size_trained: The same 112 points, each trained with its own gradient: accuracy against bucket size.
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
run method=sgd data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 seed=1 run_dir=runs/bucket_size_trained/sgd-resnet8-cifar10-s1-1eac1d585b2fa6

# SuperSGD
run method=supersgd data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 seed=1 run_dir=runs/bucket_size_trained/supersgd-resnet8-cifar10-s1-cedf544203f45e

# AMQ-N bucket_size=16
run method=amq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.solver=paper method.bucket_size=16 seed=1 run_dir=runs/bucket_size_trained/amq_n-3b-resnet8-cifar10-s1-bbd813cff2bb09

# AMQ-N bucket_size=64
run method=amq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.solver=paper method.bucket_size=64 seed=1 run_dir=runs/bucket_size_trained/amq_n-3b-resnet8-cifar10-s1-01bc5165610372

# AMQ-N bucket_size=128
run method=amq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.solver=paper method.bucket_size=128 seed=1 run_dir=runs/bucket_size_trained/amq_n-3b-resnet8-cifar10-s1-e1d87707f4e270

# AMQ-N bucket_size=256
run method=amq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.solver=paper method.bucket_size=256 seed=1 run_dir=runs/bucket_size_trained/amq_n-3b-resnet8-cifar10-s1-af9304429ace68

# AMQ-N bucket_size=512
run method=amq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.solver=paper method.bucket_size=512 seed=1 run_dir=runs/bucket_size_trained/amq_n-3b-resnet8-cifar10-s1-1f411891d2d2ae

# AMQ-N bucket_size=1024
run method=amq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.solver=paper method.bucket_size=1024 seed=1 run_dir=runs/bucket_size_trained/amq_n-3b-resnet8-cifar10-s1-da2baf02341f0e

# AMQ-N bucket_size=2048
run method=amq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.solver=paper method.bucket_size=2048 seed=1 run_dir=runs/bucket_size_trained/amq_n-3b-resnet8-cifar10-s1-363eb9cdb7f1aa

# AMQ-N bucket_size=4096
run method=amq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.solver=paper method.bucket_size=4096 seed=1 run_dir=runs/bucket_size_trained/amq_n-3b-resnet8-cifar10-s1-193a64498b7299

# AMQ-N bucket_size=8192
run method=amq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.solver=paper method.bucket_size=8192 seed=1 run_dir=runs/bucket_size_trained/amq_n-3b-resnet8-cifar10-s1-50456e9aab5e4b

# AMQ-N bucket_size=16384
run method=amq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.solver=paper method.bucket_size=16384 seed=1 run_dir=runs/bucket_size_trained/amq_n-3b-resnet8-cifar10-s1-beb72f22571482

# AMQ-N bucket_size=32768
run method=amq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.solver=paper method.bucket_size=32768 seed=1 run_dir=runs/bucket_size_trained/amq_n-3b-resnet8-cifar10-s1-dc168ba21f7979

# AMQ bucket_size=16
run method=amq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=paper method.weights=norm method.num_components=350 method.bucket_size=16 seed=1 run_dir=runs/bucket_size_trained/amq-3b-resnet8-cifar10-s1-801ca1e2570701

# AMQ bucket_size=64
run method=amq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=paper method.weights=norm method.num_components=350 method.bucket_size=64 seed=1 run_dir=runs/bucket_size_trained/amq-3b-resnet8-cifar10-s1-6ef0aa29918212

# AMQ bucket_size=128
run method=amq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=paper method.weights=norm method.num_components=350 method.bucket_size=128 seed=1 run_dir=runs/bucket_size_trained/amq-3b-resnet8-cifar10-s1-7c23386c44a2ca

# AMQ bucket_size=256
run method=amq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=paper method.weights=norm method.num_components=350 method.bucket_size=256 seed=1 run_dir=runs/bucket_size_trained/amq-3b-resnet8-cifar10-s1-d05820486b2266

# AMQ bucket_size=512
run method=amq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=paper method.weights=norm method.num_components=350 method.bucket_size=512 seed=1 run_dir=runs/bucket_size_trained/amq-3b-resnet8-cifar10-s1-759dd88a52fcd1

# AMQ bucket_size=1024
run method=amq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=paper method.weights=norm method.num_components=350 method.bucket_size=1024 seed=1 run_dir=runs/bucket_size_trained/amq-3b-resnet8-cifar10-s1-ad0603f7eba0d2

# AMQ bucket_size=2048
run method=amq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=paper method.weights=norm method.num_components=350 method.bucket_size=2048 seed=1 run_dir=runs/bucket_size_trained/amq-3b-resnet8-cifar10-s1-972544870981e1

# AMQ bucket_size=4096
run method=amq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=paper method.weights=norm method.num_components=350 method.bucket_size=4096 seed=1 run_dir=runs/bucket_size_trained/amq-3b-resnet8-cifar10-s1-3cbdd302726fad

# AMQ bucket_size=8192
run method=amq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=paper method.weights=norm method.num_components=350 method.bucket_size=8192 seed=1 run_dir=runs/bucket_size_trained/amq-3b-resnet8-cifar10-s1-dd93c2c736d6da

# AMQ bucket_size=16384
run method=amq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=paper method.weights=norm method.num_components=350 method.bucket_size=16384 seed=1 run_dir=runs/bucket_size_trained/amq-3b-resnet8-cifar10-s1-fed97708102d69

# AMQ bucket_size=32768
run method=amq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=paper method.weights=norm method.num_components=350 method.bucket_size=32768 seed=1 run_dir=runs/bucket_size_trained/amq-3b-resnet8-cifar10-s1-07b52df921ab54

# ALQ-N bucket_size=16
run method=alq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.solver=paper method.symmetric=false method.bucket_size=16 seed=1 run_dir=runs/bucket_size_trained/alq_n-3b-resnet8-cifar10-s1-47debd221934e2

# ALQ-N bucket_size=64
run method=alq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.solver=paper method.symmetric=false method.bucket_size=64 seed=1 run_dir=runs/bucket_size_trained/alq_n-3b-resnet8-cifar10-s1-304fa083e25bc4

# ALQ-N bucket_size=128
run method=alq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.solver=paper method.symmetric=false method.bucket_size=128 seed=1 run_dir=runs/bucket_size_trained/alq_n-3b-resnet8-cifar10-s1-c1e3651642371d

# ALQ-N bucket_size=256
run method=alq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.solver=paper method.symmetric=false method.bucket_size=256 seed=1 run_dir=runs/bucket_size_trained/alq_n-3b-resnet8-cifar10-s1-7f8d1d7fe451ae

# ALQ-N bucket_size=512
run method=alq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.solver=paper method.symmetric=false method.bucket_size=512 seed=1 run_dir=runs/bucket_size_trained/alq_n-3b-resnet8-cifar10-s1-fcec7e17940a29

# ALQ-N bucket_size=1024
run method=alq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.solver=paper method.symmetric=false method.bucket_size=1024 seed=1 run_dir=runs/bucket_size_trained/alq_n-3b-resnet8-cifar10-s1-b1949ee8d4fff6

# ALQ-N bucket_size=2048
run method=alq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.solver=paper method.symmetric=false method.bucket_size=2048 seed=1 run_dir=runs/bucket_size_trained/alq_n-3b-resnet8-cifar10-s1-cf6087fb5105db

# ALQ-N bucket_size=4096
run method=alq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.solver=paper method.symmetric=false method.bucket_size=4096 seed=1 run_dir=runs/bucket_size_trained/alq_n-3b-resnet8-cifar10-s1-a7b0fe18b9057a

# ALQ-N bucket_size=8192
run method=alq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.solver=paper method.symmetric=false method.bucket_size=8192 seed=1 run_dir=runs/bucket_size_trained/alq_n-3b-resnet8-cifar10-s1-bf81bc5ce6f460

# ALQ-N bucket_size=16384
run method=alq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.solver=paper method.symmetric=false method.bucket_size=16384 seed=1 run_dir=runs/bucket_size_trained/alq_n-3b-resnet8-cifar10-s1-6f558e39641667

# ALQ-N bucket_size=32768
run method=alq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.solver=paper method.symmetric=false method.bucket_size=32768 seed=1 run_dir=runs/bucket_size_trained/alq_n-3b-resnet8-cifar10-s1-2729f0ad7be0ee

# QSGDinf bucket_size=16
run method=qsgdinf data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bits=3 method.bucket_size=16 seed=1 run_dir=runs/bucket_size_trained/qsgdinf-3b-resnet8-cifar10-s1-bf5cf069e1af2c

# QSGDinf bucket_size=64
run method=qsgdinf data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bits=3 method.bucket_size=64 seed=1 run_dir=runs/bucket_size_trained/qsgdinf-3b-resnet8-cifar10-s1-5dd972a5819c87

# QSGDinf bucket_size=128
run method=qsgdinf data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bits=3 method.bucket_size=128 seed=1 run_dir=runs/bucket_size_trained/qsgdinf-3b-resnet8-cifar10-s1-741ebce8914c19

# QSGDinf bucket_size=256
run method=qsgdinf data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bits=3 method.bucket_size=256 seed=1 run_dir=runs/bucket_size_trained/qsgdinf-3b-resnet8-cifar10-s1-9527274defab24

# QSGDinf bucket_size=512
run method=qsgdinf data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bits=3 method.bucket_size=512 seed=1 run_dir=runs/bucket_size_trained/qsgdinf-3b-resnet8-cifar10-s1-937ef5dc993790

# QSGDinf bucket_size=1024
run method=qsgdinf data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bits=3 method.bucket_size=1024 seed=1 run_dir=runs/bucket_size_trained/qsgdinf-3b-resnet8-cifar10-s1-74ae3a0a889c98

# QSGDinf bucket_size=2048
run method=qsgdinf data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bits=3 method.bucket_size=2048 seed=1 run_dir=runs/bucket_size_trained/qsgdinf-3b-resnet8-cifar10-s1-cf35a3aeeea16d

# QSGDinf bucket_size=4096
run method=qsgdinf data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bits=3 method.bucket_size=4096 seed=1 run_dir=runs/bucket_size_trained/qsgdinf-3b-resnet8-cifar10-s1-326813261ee053

# QSGDinf bucket_size=8192
run method=qsgdinf data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bits=3 method.bucket_size=8192 seed=1 run_dir=runs/bucket_size_trained/qsgdinf-3b-resnet8-cifar10-s1-2737209ae3fd45

# QSGDinf bucket_size=16384
run method=qsgdinf data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bits=3 method.bucket_size=16384 seed=1 run_dir=runs/bucket_size_trained/qsgdinf-3b-resnet8-cifar10-s1-9936209ae65901

# QSGDinf bucket_size=32768
run method=qsgdinf data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bits=3 method.bucket_size=32768 seed=1 run_dir=runs/bucket_size_trained/qsgdinf-3b-resnet8-cifar10-s1-07a2fe363c24ce

# TRN bucket_size=16
run method=trn data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bucket_size=16 seed=1 run_dir=runs/bucket_size_trained/trn-resnet8-cifar10-s1-e531f249e635b8

# TRN bucket_size=64
run method=trn data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bucket_size=64 seed=1 run_dir=runs/bucket_size_trained/trn-resnet8-cifar10-s1-3967e563eb3e0a

# TRN bucket_size=128
run method=trn data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bucket_size=128 seed=1 run_dir=runs/bucket_size_trained/trn-resnet8-cifar10-s1-b9a38a8fcc8d67

# TRN bucket_size=256
run method=trn data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bucket_size=256 seed=1 run_dir=runs/bucket_size_trained/trn-resnet8-cifar10-s1-c81ec5ab465701

# TRN bucket_size=512
run method=trn data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bucket_size=512 seed=1 run_dir=runs/bucket_size_trained/trn-resnet8-cifar10-s1-4b78936abb23cc

# TRN bucket_size=1024
run method=trn data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bucket_size=1024 seed=1 run_dir=runs/bucket_size_trained/trn-resnet8-cifar10-s1-1ef0ed8d2d4834

# TRN bucket_size=2048
run method=trn data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bucket_size=2048 seed=1 run_dir=runs/bucket_size_trained/trn-resnet8-cifar10-s1-c249775e51127e

# TRN bucket_size=4096
run method=trn data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bucket_size=4096 seed=1 run_dir=runs/bucket_size_trained/trn-resnet8-cifar10-s1-1b6a9b0152f7aa

# TRN bucket_size=8192
run method=trn data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bucket_size=8192 seed=1 run_dir=runs/bucket_size_trained/trn-resnet8-cifar10-s1-e8a329f919d9e9

# TRN bucket_size=16384
run method=trn data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bucket_size=16384 seed=1 run_dir=runs/bucket_size_trained/trn-resnet8-cifar10-s1-9a189384c340dc

# TRN bucket_size=32768
run method=trn data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bucket_size=32768 seed=1 run_dir=runs/bucket_size_trained/trn-resnet8-cifar10-s1-70479e6d4990b2

# NUQSGD bucket_size=16
run method=nuqsgd data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bits=3 method.bucket_size=16 seed=1 run_dir=runs/bucket_size_trained/nuqsgd-3b-resnet8-cifar10-s1-98d1d51a619ba4

# NUQSGD bucket_size=64
run method=nuqsgd data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bits=3 method.bucket_size=64 seed=1 run_dir=runs/bucket_size_trained/nuqsgd-3b-resnet8-cifar10-s1-09fcb63242063a

# NUQSGD bucket_size=128
run method=nuqsgd data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bits=3 method.bucket_size=128 seed=1 run_dir=runs/bucket_size_trained/nuqsgd-3b-resnet8-cifar10-s1-7ee059b231473d

# NUQSGD bucket_size=256
run method=nuqsgd data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bits=3 method.bucket_size=256 seed=1 run_dir=runs/bucket_size_trained/nuqsgd-3b-resnet8-cifar10-s1-455c73a9023e6d

# NUQSGD bucket_size=512
run method=nuqsgd data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bits=3 method.bucket_size=512 seed=1 run_dir=runs/bucket_size_trained/nuqsgd-3b-resnet8-cifar10-s1-675d5a21627f6c

# NUQSGD bucket_size=1024
run method=nuqsgd data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bits=3 method.bucket_size=1024 seed=1 run_dir=runs/bucket_size_trained/nuqsgd-3b-resnet8-cifar10-s1-32c429e9300dfe

# NUQSGD bucket_size=2048
run method=nuqsgd data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bits=3 method.bucket_size=2048 seed=1 run_dir=runs/bucket_size_trained/nuqsgd-3b-resnet8-cifar10-s1-1a652e6f3e3cc0

# NUQSGD bucket_size=4096
run method=nuqsgd data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bits=3 method.bucket_size=4096 seed=1 run_dir=runs/bucket_size_trained/nuqsgd-3b-resnet8-cifar10-s1-062d6883fd8f42

# NUQSGD bucket_size=8192
run method=nuqsgd data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bits=3 method.bucket_size=8192 seed=1 run_dir=runs/bucket_size_trained/nuqsgd-3b-resnet8-cifar10-s1-45702146f7b47c

# NUQSGD bucket_size=16384
run method=nuqsgd data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bits=3 method.bucket_size=16384 seed=1 run_dir=runs/bucket_size_trained/nuqsgd-3b-resnet8-cifar10-s1-9c586ccaa88007

# NUQSGD bucket_size=32768
run method=nuqsgd data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bits=3 method.bucket_size=32768 seed=1 run_dir=runs/bucket_size_trained/nuqsgd-3b-resnet8-cifar10-s1-cc97a7a395145e

# ALQ bucket_size=16
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=paper method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=16 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-1572ac66633d20

# ALQ bucket_size=64
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=paper method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=64 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-ae8a8d2be38fec

# ALQ bucket_size=128
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=paper method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=128 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-e81113a1077330

# ALQ bucket_size=256
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=paper method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=256 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-166fe81ae6ab8e

# ALQ bucket_size=512
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=paper method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=512 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-be1cb8b4ed2727

# ALQ bucket_size=1024
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=paper method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=1024 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-dc4c1e98920bec

# ALQ bucket_size=2048
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=paper method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=2048 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-8b97a712eb272e

# ALQ bucket_size=4096
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=paper method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=4096 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-ffddc66e1f16c2

# ALQ bucket_size=8192
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=paper method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=8192 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-4d9d402428d0cb

# ALQ bucket_size=16384
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=paper method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=16384 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-af9c905aa04902

# ALQ bucket_size=32768
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=paper method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=32768 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-7901eaa6b5cb9a

# ALQ symmetric bucket_size=16
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=paper method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=16 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-8783b7d413396a

# ALQ symmetric bucket_size=64
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=paper method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=64 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-e7502db1cbaf62

# ALQ symmetric bucket_size=128
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=paper method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=128 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-4cee161954326f

# ALQ symmetric bucket_size=256
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=paper method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=256 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-cfdd3c5575e92a

# ALQ symmetric bucket_size=512
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=paper method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=512 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-dbfcdfb16d3a56

# ALQ symmetric bucket_size=1024
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=paper method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=1024 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-5461309b8c14bf

# ALQ symmetric bucket_size=2048
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=paper method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=2048 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-206ee73e000afd

# ALQ symmetric bucket_size=4096
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=paper method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=4096 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-3ee0b4bf1f0be6

# ALQ symmetric bucket_size=8192
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=paper method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=8192 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-ad6ffbd9f75414

# ALQ symmetric bucket_size=16384
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=paper method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=16384 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-665d93599fbed4

# ALQ symmetric bucket_size=32768
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=paper method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=32768 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-3b83b60e41c713

# ALQ closed form bucket_size=16
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=exact method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=16 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-a1cb68268b699d

# ALQ closed form bucket_size=64
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=exact method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=64 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-26f243479bf98f

# ALQ closed form bucket_size=128
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=exact method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=128 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-4ddb03a72dab2f

# ALQ closed form bucket_size=256
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=exact method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=256 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-740a560f610ec8

# ALQ closed form bucket_size=512
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=exact method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=512 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-f5ab4cf06d3343

# ALQ closed form bucket_size=1024
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=exact method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=1024 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-38bd14141024b4

# ALQ closed form bucket_size=2048
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=exact method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=2048 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-29908fb9d698eb

# ALQ closed form bucket_size=4096
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=exact method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=4096 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-b23dc2bb53e363

# ALQ closed form bucket_size=8192
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=exact method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=8192 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-6d1eeef882989c

# ALQ closed form bucket_size=16384
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=exact method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=16384 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-6d584367f0d2a8

# ALQ closed form bucket_size=32768
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=exact method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=32768 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-bfe607f5aaf74c

# ALQ closed form symmetric bucket_size=16
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=exact method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=16 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-39f8d5d4832459

# ALQ closed form symmetric bucket_size=64
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=exact method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=64 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-502c2a2fb8ac8d

# ALQ closed form symmetric bucket_size=128
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=exact method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=128 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-aceac7c00c98cc

# ALQ closed form symmetric bucket_size=256
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=exact method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=256 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-a83785fe6198db

# ALQ closed form symmetric bucket_size=512
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=exact method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=512 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-adca8fa2bcf70f

# ALQ closed form symmetric bucket_size=1024
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=exact method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=1024 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-60c68f0f195ac6

# ALQ closed form symmetric bucket_size=2048
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=exact method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=2048 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-819820ff1433e6

# ALQ closed form symmetric bucket_size=4096
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=exact method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=4096 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-94df3538c2415e

# ALQ closed form symmetric bucket_size=8192
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=exact method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=8192 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-af5887254ae55f

# ALQ closed form symmetric bucket_size=16384
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=exact method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=16384 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-ee0cd50f0572c1

# ALQ closed form symmetric bucket_size=32768
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.fit=mixture method.solver=exact method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=32768 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-1274c0a57ab316

exit "${failed:-0}"
