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
  if [ "$code" -ne 0 ] && [ "$code" -ne 4 ]; then failed=1; fi # 4: another process has its folder
}

# SGD
run method=sgd data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model seed=1 run_dir=runs/bucket_size_trained/sgd-resnet8-cifar10-s1-1eac1d585b2fa6

# SuperSGD
run method=supersgd data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model seed=1 run_dir=runs/bucket_size_trained/supersgd-resnet8-cifar10-s1-cedf544203f45e

# AMQ-N bucket_size=16
run method=amq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.solver=paper method.bucket_size=16 seed=1 run_dir=runs/bucket_size_trained/amq_n-3b-resnet8-cifar10-s1-f7219b365b3204

# AMQ-N bucket_size=64
run method=amq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.solver=paper method.bucket_size=64 seed=1 run_dir=runs/bucket_size_trained/amq_n-3b-resnet8-cifar10-s1-a4405e2c7519a8

# AMQ-N bucket_size=128
run method=amq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.solver=paper method.bucket_size=128 seed=1 run_dir=runs/bucket_size_trained/amq_n-3b-resnet8-cifar10-s1-e68a81b19241cb

# AMQ-N bucket_size=256
run method=amq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.solver=paper method.bucket_size=256 seed=1 run_dir=runs/bucket_size_trained/amq_n-3b-resnet8-cifar10-s1-37e4946a70440f

# AMQ-N bucket_size=512
run method=amq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.solver=paper method.bucket_size=512 seed=1 run_dir=runs/bucket_size_trained/amq_n-3b-resnet8-cifar10-s1-600f3871f14167

# AMQ-N bucket_size=1024
run method=amq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.solver=paper method.bucket_size=1024 seed=1 run_dir=runs/bucket_size_trained/amq_n-3b-resnet8-cifar10-s1-e1ef84441b0c20

# AMQ-N bucket_size=2048
run method=amq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.solver=paper method.bucket_size=2048 seed=1 run_dir=runs/bucket_size_trained/amq_n-3b-resnet8-cifar10-s1-519934a0073315

# AMQ-N bucket_size=4096
run method=amq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.solver=paper method.bucket_size=4096 seed=1 run_dir=runs/bucket_size_trained/amq_n-3b-resnet8-cifar10-s1-3eb93c6e8c6323

# AMQ-N bucket_size=8192
run method=amq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.solver=paper method.bucket_size=8192 seed=1 run_dir=runs/bucket_size_trained/amq_n-3b-resnet8-cifar10-s1-261d99b8ca6cd7

# AMQ-N bucket_size=16384
run method=amq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.solver=paper method.bucket_size=16384 seed=1 run_dir=runs/bucket_size_trained/amq_n-3b-resnet8-cifar10-s1-969239882c835f

# AMQ-N bucket_size=32768
run method=amq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.solver=paper method.bucket_size=32768 seed=1 run_dir=runs/bucket_size_trained/amq_n-3b-resnet8-cifar10-s1-2b5632c9ff52b4

# AMQ bucket_size=16
run method=amq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.num_components=350 method.bucket_size=16 seed=1 run_dir=runs/bucket_size_trained/amq-3b-resnet8-cifar10-s1-53abf91cc737c5

# AMQ bucket_size=64
run method=amq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.num_components=350 method.bucket_size=64 seed=1 run_dir=runs/bucket_size_trained/amq-3b-resnet8-cifar10-s1-0bd661aa893a73

# AMQ bucket_size=128
run method=amq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.num_components=350 method.bucket_size=128 seed=1 run_dir=runs/bucket_size_trained/amq-3b-resnet8-cifar10-s1-b7c4af3ce416cb

# AMQ bucket_size=256
run method=amq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.num_components=350 method.bucket_size=256 seed=1 run_dir=runs/bucket_size_trained/amq-3b-resnet8-cifar10-s1-9677cee177423a

# AMQ bucket_size=512
run method=amq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.num_components=350 method.bucket_size=512 seed=1 run_dir=runs/bucket_size_trained/amq-3b-resnet8-cifar10-s1-154e4f7ed3607f

# AMQ bucket_size=1024
run method=amq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.num_components=350 method.bucket_size=1024 seed=1 run_dir=runs/bucket_size_trained/amq-3b-resnet8-cifar10-s1-8cfa4af6aeca6c

# AMQ bucket_size=2048
run method=amq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.num_components=350 method.bucket_size=2048 seed=1 run_dir=runs/bucket_size_trained/amq-3b-resnet8-cifar10-s1-33ae7ef73187b9

# AMQ bucket_size=4096
run method=amq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.num_components=350 method.bucket_size=4096 seed=1 run_dir=runs/bucket_size_trained/amq-3b-resnet8-cifar10-s1-5f7428e0063a52

# AMQ bucket_size=8192
run method=amq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.num_components=350 method.bucket_size=8192 seed=1 run_dir=runs/bucket_size_trained/amq-3b-resnet8-cifar10-s1-6ae6b71d14cd8a

# AMQ bucket_size=16384
run method=amq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.num_components=350 method.bucket_size=16384 seed=1 run_dir=runs/bucket_size_trained/amq-3b-resnet8-cifar10-s1-db8a61d80c4392

# AMQ bucket_size=32768
run method=amq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.num_components=350 method.bucket_size=32768 seed=1 run_dir=runs/bucket_size_trained/amq-3b-resnet8-cifar10-s1-82e1736ae967b1

# ALQ-N bucket_size=16
run method=alq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.solver=paper method.symmetric=false method.bucket_size=16 seed=1 run_dir=runs/bucket_size_trained/alq_n-3b-resnet8-cifar10-s1-4a309937aa0738

# ALQ-N bucket_size=64
run method=alq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.solver=paper method.symmetric=false method.bucket_size=64 seed=1 run_dir=runs/bucket_size_trained/alq_n-3b-resnet8-cifar10-s1-8ef7f7739bc407

# ALQ-N bucket_size=128
run method=alq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.solver=paper method.symmetric=false method.bucket_size=128 seed=1 run_dir=runs/bucket_size_trained/alq_n-3b-resnet8-cifar10-s1-9411b9dce17d38

# ALQ-N bucket_size=256
run method=alq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.solver=paper method.symmetric=false method.bucket_size=256 seed=1 run_dir=runs/bucket_size_trained/alq_n-3b-resnet8-cifar10-s1-c68137f582bee7

# ALQ-N bucket_size=512
run method=alq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.solver=paper method.symmetric=false method.bucket_size=512 seed=1 run_dir=runs/bucket_size_trained/alq_n-3b-resnet8-cifar10-s1-c9e570a392e1db

# ALQ-N bucket_size=1024
run method=alq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.solver=paper method.symmetric=false method.bucket_size=1024 seed=1 run_dir=runs/bucket_size_trained/alq_n-3b-resnet8-cifar10-s1-b5bd3f732157c8

# ALQ-N bucket_size=2048
run method=alq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.solver=paper method.symmetric=false method.bucket_size=2048 seed=1 run_dir=runs/bucket_size_trained/alq_n-3b-resnet8-cifar10-s1-168f034fb0f523

# ALQ-N bucket_size=4096
run method=alq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.solver=paper method.symmetric=false method.bucket_size=4096 seed=1 run_dir=runs/bucket_size_trained/alq_n-3b-resnet8-cifar10-s1-022f01ab1070f1

# ALQ-N bucket_size=8192
run method=alq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.solver=paper method.symmetric=false method.bucket_size=8192 seed=1 run_dir=runs/bucket_size_trained/alq_n-3b-resnet8-cifar10-s1-1547db0967fbc1

# ALQ-N bucket_size=16384
run method=alq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.solver=paper method.symmetric=false method.bucket_size=16384 seed=1 run_dir=runs/bucket_size_trained/alq_n-3b-resnet8-cifar10-s1-1d29206f5b86b1

# ALQ-N bucket_size=32768
run method=alq_n data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.solver=paper method.symmetric=false method.bucket_size=32768 seed=1 run_dir=runs/bucket_size_trained/alq_n-3b-resnet8-cifar10-s1-3fcb93892788ba

# QSGDinf bucket_size=16
run method=qsgdinf data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bits=3 method.rounding=stochastic method.bucket_size=16 seed=1 run_dir=runs/bucket_size_trained/qsgdinf-3b-resnet8-cifar10-s1-6e1b4877f9f04f

# QSGDinf bucket_size=64
run method=qsgdinf data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bits=3 method.rounding=stochastic method.bucket_size=64 seed=1 run_dir=runs/bucket_size_trained/qsgdinf-3b-resnet8-cifar10-s1-8b63754eda0167

# QSGDinf bucket_size=128
run method=qsgdinf data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bits=3 method.rounding=stochastic method.bucket_size=128 seed=1 run_dir=runs/bucket_size_trained/qsgdinf-3b-resnet8-cifar10-s1-c3c5249d91ef3b

# QSGDinf bucket_size=256
run method=qsgdinf data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bits=3 method.rounding=stochastic method.bucket_size=256 seed=1 run_dir=runs/bucket_size_trained/qsgdinf-3b-resnet8-cifar10-s1-0ad45e11e693d5

# QSGDinf bucket_size=512
run method=qsgdinf data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bits=3 method.rounding=stochastic method.bucket_size=512 seed=1 run_dir=runs/bucket_size_trained/qsgdinf-3b-resnet8-cifar10-s1-7cc1b4bfb81743

# QSGDinf bucket_size=1024
run method=qsgdinf data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bits=3 method.rounding=stochastic method.bucket_size=1024 seed=1 run_dir=runs/bucket_size_trained/qsgdinf-3b-resnet8-cifar10-s1-916f52883f8649

# QSGDinf bucket_size=2048
run method=qsgdinf data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bits=3 method.rounding=stochastic method.bucket_size=2048 seed=1 run_dir=runs/bucket_size_trained/qsgdinf-3b-resnet8-cifar10-s1-f9f3ac0e75049b

# QSGDinf bucket_size=4096
run method=qsgdinf data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bits=3 method.rounding=stochastic method.bucket_size=4096 seed=1 run_dir=runs/bucket_size_trained/qsgdinf-3b-resnet8-cifar10-s1-7f428322d0e2d8

# QSGDinf bucket_size=8192
run method=qsgdinf data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bits=3 method.rounding=stochastic method.bucket_size=8192 seed=1 run_dir=runs/bucket_size_trained/qsgdinf-3b-resnet8-cifar10-s1-e5bc7927cc0596

# QSGDinf bucket_size=16384
run method=qsgdinf data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bits=3 method.rounding=stochastic method.bucket_size=16384 seed=1 run_dir=runs/bucket_size_trained/qsgdinf-3b-resnet8-cifar10-s1-476c9a8edeac1f

# QSGDinf bucket_size=32768
run method=qsgdinf data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bits=3 method.rounding=stochastic method.bucket_size=32768 seed=1 run_dir=runs/bucket_size_trained/qsgdinf-3b-resnet8-cifar10-s1-3a3ba370cf43e4

# TRN bucket_size=16
run method=trn data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.rounding=stochastic method.bucket_size=16 seed=1 run_dir=runs/bucket_size_trained/trn-resnet8-cifar10-s1-256c04b904d080

# TRN bucket_size=64
run method=trn data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.rounding=stochastic method.bucket_size=64 seed=1 run_dir=runs/bucket_size_trained/trn-resnet8-cifar10-s1-445e2be62fcb5d

# TRN bucket_size=128
run method=trn data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.rounding=stochastic method.bucket_size=128 seed=1 run_dir=runs/bucket_size_trained/trn-resnet8-cifar10-s1-7a8ffddc0c0255

# TRN bucket_size=256
run method=trn data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.rounding=stochastic method.bucket_size=256 seed=1 run_dir=runs/bucket_size_trained/trn-resnet8-cifar10-s1-5777d9edfdbcf1

# TRN bucket_size=512
run method=trn data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.rounding=stochastic method.bucket_size=512 seed=1 run_dir=runs/bucket_size_trained/trn-resnet8-cifar10-s1-9db930573b484c

# TRN bucket_size=1024
run method=trn data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.rounding=stochastic method.bucket_size=1024 seed=1 run_dir=runs/bucket_size_trained/trn-resnet8-cifar10-s1-2dad6a788a1331

# TRN bucket_size=2048
run method=trn data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.rounding=stochastic method.bucket_size=2048 seed=1 run_dir=runs/bucket_size_trained/trn-resnet8-cifar10-s1-218a52ca34fc25

# TRN bucket_size=4096
run method=trn data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.rounding=stochastic method.bucket_size=4096 seed=1 run_dir=runs/bucket_size_trained/trn-resnet8-cifar10-s1-d2d218d96bb9e3

# TRN bucket_size=8192
run method=trn data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.rounding=stochastic method.bucket_size=8192 seed=1 run_dir=runs/bucket_size_trained/trn-resnet8-cifar10-s1-6e93cd9e3fed69

# TRN bucket_size=16384
run method=trn data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.rounding=stochastic method.bucket_size=16384 seed=1 run_dir=runs/bucket_size_trained/trn-resnet8-cifar10-s1-bd82c4601f14d8

# TRN bucket_size=32768
run method=trn data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.rounding=stochastic method.bucket_size=32768 seed=1 run_dir=runs/bucket_size_trained/trn-resnet8-cifar10-s1-8f7e37de9fa5e4

# NUQSGD bucket_size=16
run method=nuqsgd data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bits=3 method.rounding=stochastic method.bucket_size=16 seed=1 run_dir=runs/bucket_size_trained/nuqsgd-3b-resnet8-cifar10-s1-4bbc7aa98c5fa6

# NUQSGD bucket_size=64
run method=nuqsgd data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bits=3 method.rounding=stochastic method.bucket_size=64 seed=1 run_dir=runs/bucket_size_trained/nuqsgd-3b-resnet8-cifar10-s1-f1331bbe6a6c20

# NUQSGD bucket_size=128
run method=nuqsgd data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bits=3 method.rounding=stochastic method.bucket_size=128 seed=1 run_dir=runs/bucket_size_trained/nuqsgd-3b-resnet8-cifar10-s1-6f1d0b0d66581e

# NUQSGD bucket_size=256
run method=nuqsgd data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bits=3 method.rounding=stochastic method.bucket_size=256 seed=1 run_dir=runs/bucket_size_trained/nuqsgd-3b-resnet8-cifar10-s1-2e7bb4e6465477

# NUQSGD bucket_size=512
run method=nuqsgd data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bits=3 method.rounding=stochastic method.bucket_size=512 seed=1 run_dir=runs/bucket_size_trained/nuqsgd-3b-resnet8-cifar10-s1-c685ebd5fdd1d4

# NUQSGD bucket_size=1024
run method=nuqsgd data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bits=3 method.rounding=stochastic method.bucket_size=1024 seed=1 run_dir=runs/bucket_size_trained/nuqsgd-3b-resnet8-cifar10-s1-09cb085da365ed

# NUQSGD bucket_size=2048
run method=nuqsgd data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bits=3 method.rounding=stochastic method.bucket_size=2048 seed=1 run_dir=runs/bucket_size_trained/nuqsgd-3b-resnet8-cifar10-s1-4fb977c9a04dd5

# NUQSGD bucket_size=4096
run method=nuqsgd data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bits=3 method.rounding=stochastic method.bucket_size=4096 seed=1 run_dir=runs/bucket_size_trained/nuqsgd-3b-resnet8-cifar10-s1-f0cd1307d7818a

# NUQSGD bucket_size=8192
run method=nuqsgd data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bits=3 method.rounding=stochastic method.bucket_size=8192 seed=1 run_dir=runs/bucket_size_trained/nuqsgd-3b-resnet8-cifar10-s1-dd5636256c1d64

# NUQSGD bucket_size=16384
run method=nuqsgd data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bits=3 method.rounding=stochastic method.bucket_size=16384 seed=1 run_dir=runs/bucket_size_trained/nuqsgd-3b-resnet8-cifar10-s1-83aedc86db8a92

# NUQSGD bucket_size=32768
run method=nuqsgd data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.scope=model method.bits=3 method.rounding=stochastic method.bucket_size=32768 seed=1 run_dir=runs/bucket_size_trained/nuqsgd-3b-resnet8-cifar10-s1-099adf1c03f94f

# ALQ bucket_size=16
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=16 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-a1dc6f83178ff3

# ALQ bucket_size=64
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=64 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-a01ba394c6880a

# ALQ bucket_size=128
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=128 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-746bb306924aeb

# ALQ bucket_size=256
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=256 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-03b071980ab5a1

# ALQ bucket_size=512
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=512 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-02dd65122735bb

# ALQ bucket_size=1024
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=1024 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-7d011825c822a4

# ALQ bucket_size=2048
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=2048 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-2a72c3f11b9a51

# ALQ bucket_size=4096
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=4096 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-965002c4e8cbbf

# ALQ bucket_size=8192
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=8192 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-3e3aba1e580103

# ALQ bucket_size=16384
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=16384 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-335093df9e8ee1

# ALQ bucket_size=32768
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=32768 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-675b4c96f0f3ba

# ALQ symmetric bucket_size=16
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=16 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-16a1bee9ec786e

# ALQ symmetric bucket_size=64
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=64 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-09ac9ee29995d2

# ALQ symmetric bucket_size=128
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=128 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-0938d21e6ceb49

# ALQ symmetric bucket_size=256
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=256 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-df033af9a9bd05

# ALQ symmetric bucket_size=512
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=512 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-c4ff112935b9f5

# ALQ symmetric bucket_size=1024
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=1024 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-fdd0dd75c7f1e0

# ALQ symmetric bucket_size=2048
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=2048 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-937b4c2417b478

# ALQ symmetric bucket_size=4096
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=4096 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-94f2765776c5fe

# ALQ symmetric bucket_size=8192
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=8192 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-3a9013ec4e2077

# ALQ symmetric bucket_size=16384
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=16384 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-2d8bcb091a9908

# ALQ symmetric bucket_size=32768
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=paper method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=32768 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-a9227ae4cfee64

# ALQ closed form bucket_size=16
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=exact method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=16 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-7997e26433bbd8

# ALQ closed form bucket_size=64
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=exact method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=64 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-bf123f670c6db1

# ALQ closed form bucket_size=128
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=exact method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=128 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-dee5455600bd26

# ALQ closed form bucket_size=256
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=exact method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=256 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-5de3cdd30e0899

# ALQ closed form bucket_size=512
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=exact method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=512 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-8703282e811989

# ALQ closed form bucket_size=1024
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=exact method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=1024 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-26b695154d1379

# ALQ closed form bucket_size=2048
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=exact method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=2048 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-49195a55033790

# ALQ closed form bucket_size=4096
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=exact method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=4096 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-caa217274df17f

# ALQ closed form bucket_size=8192
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=exact method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=8192 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-78d5a7587275d7

# ALQ closed form bucket_size=16384
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=exact method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=16384 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-46ab6374f9ec6d

# ALQ closed form bucket_size=32768
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=exact method.weights=norm method.symmetric=false method.num_components=350 method.bucket_size=32768 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-78f25ba1486ef5

# ALQ closed form symmetric bucket_size=16
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=exact method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=16 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-028b5b19261d5c

# ALQ closed form symmetric bucket_size=64
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=exact method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=64 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-f97c6845fdcd62

# ALQ closed form symmetric bucket_size=128
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=exact method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=128 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-8c495441eb2a05

# ALQ closed form symmetric bucket_size=256
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=exact method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=256 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-d84dfa19151786

# ALQ closed form symmetric bucket_size=512
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=exact method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=512 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-ef3c3aa7f76f0a

# ALQ closed form symmetric bucket_size=1024
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=exact method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=1024 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-0eb4f80884e955

# ALQ closed form symmetric bucket_size=2048
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=exact method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=2048 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-d839965e48ef84

# ALQ closed form symmetric bucket_size=4096
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=exact method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=4096 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-338dbbb1384b9c

# ALQ closed form symmetric bucket_size=8192
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=exact method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=8192 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-d47f1fdc96a0cf

# ALQ closed form symmetric bucket_size=16384
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=exact method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=16384 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-c9b434b3f44169

# ALQ closed form symmetric bucket_size=32768
run method=alq data=cifar10 model=resnet8 optim=sgd schedule=step workers=4 optim.lr=0.1 optim.momentum=0.9 optim.weight_decay=0.0001 'schedule.at=[40000,60000]' schedule.factor=0.1 measure.every=100 batch_size=128 steps=80000 eval_every=2000 method.statistics=fresh method.num_samples=10 method.scope=model method.bits=3 'method.update_at=[100,2000]' method.update_every=10000 method.norm=l2 method.rounding=stochastic method.fit=mixture method.solver=exact method.weights=norm method.symmetric=true method.num_components=350 method.bucket_size=32768 seed=1 run_dir=runs/bucket_size_trained/alq-3b-resnet8-cifar10-s1-b12c535e403e21

exit "${failed:-0}"
