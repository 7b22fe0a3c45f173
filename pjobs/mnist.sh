#!/usr/bin/env bash
# nuq.mnist: MNIST, the small cnn, 30 epochs: SGD against QSGD, QSGDinf and NUQSGD at 4 bits, three bucket sizes, 2 and 4 workers.
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
run method=sgd data=mnist model=mnist_cnn optim=sgd optim.lr=0.1 optim.momentum=0.0 optim.weight_decay=0.0 measure.every=100 batch_size=128 steps=14070 eval_every=469 workers=1 seed=1 run_dir=runs/mnist/sgd-mnist_cnn-mnist-s1-40e6dc57cc3621

# QSGD bucket_size=1024 workers=2
run method=qsgd data=mnist model=mnist_cnn optim=sgd optim.lr=0.1 optim.momentum=0.0 optim.weight_decay=0.0 measure.every=100 batch_size=128 steps=14070 eval_every=469 method.rounding=stochastic method.bits=4 method.bucket_size=1024 workers=2 seed=1 run_dir=runs/mnist/qsgd-4b-mnist_cnn-mnist-s1-4a35129098400a

# QSGD bucket_size=1024 workers=4
run method=qsgd data=mnist model=mnist_cnn optim=sgd optim.lr=0.1 optim.momentum=0.0 optim.weight_decay=0.0 measure.every=100 batch_size=128 steps=14070 eval_every=469 method.rounding=stochastic method.bits=4 method.bucket_size=1024 workers=4 seed=1 run_dir=runs/mnist/qsgd-4b-mnist_cnn-mnist-s1-854e8f6763fb31

# QSGD bucket_size=4096 workers=2
run method=qsgd data=mnist model=mnist_cnn optim=sgd optim.lr=0.1 optim.momentum=0.0 optim.weight_decay=0.0 measure.every=100 batch_size=128 steps=14070 eval_every=469 method.rounding=stochastic method.bits=4 method.bucket_size=4096 workers=2 seed=1 run_dir=runs/mnist/qsgd-4b-mnist_cnn-mnist-s1-38631a9935713a

# QSGD bucket_size=4096 workers=4
run method=qsgd data=mnist model=mnist_cnn optim=sgd optim.lr=0.1 optim.momentum=0.0 optim.weight_decay=0.0 measure.every=100 batch_size=128 steps=14070 eval_every=469 method.rounding=stochastic method.bits=4 method.bucket_size=4096 workers=4 seed=1 run_dir=runs/mnist/qsgd-4b-mnist_cnn-mnist-s1-df7e5a64496919

# QSGD bucket_size=8192 workers=2
run method=qsgd data=mnist model=mnist_cnn optim=sgd optim.lr=0.1 optim.momentum=0.0 optim.weight_decay=0.0 measure.every=100 batch_size=128 steps=14070 eval_every=469 method.rounding=stochastic method.bits=4 method.bucket_size=8192 workers=2 seed=1 run_dir=runs/mnist/qsgd-4b-mnist_cnn-mnist-s1-82a895f99dfb69

# QSGD bucket_size=8192 workers=4
run method=qsgd data=mnist model=mnist_cnn optim=sgd optim.lr=0.1 optim.momentum=0.0 optim.weight_decay=0.0 measure.every=100 batch_size=128 steps=14070 eval_every=469 method.rounding=stochastic method.bits=4 method.bucket_size=8192 workers=4 seed=1 run_dir=runs/mnist/qsgd-4b-mnist_cnn-mnist-s1-8fa80e2c0239c6

# QSGDinf bucket_size=1024 workers=2
run method=qsgdinf data=mnist model=mnist_cnn optim=sgd optim.lr=0.1 optim.momentum=0.0 optim.weight_decay=0.0 measure.every=100 batch_size=128 steps=14070 eval_every=469 method.rounding=stochastic method.bits=4 method.bucket_size=1024 workers=2 seed=1 run_dir=runs/mnist/qsgdinf-4b-mnist_cnn-mnist-s1-dc0d6943d0e6fd

# QSGDinf bucket_size=1024 workers=4
run method=qsgdinf data=mnist model=mnist_cnn optim=sgd optim.lr=0.1 optim.momentum=0.0 optim.weight_decay=0.0 measure.every=100 batch_size=128 steps=14070 eval_every=469 method.rounding=stochastic method.bits=4 method.bucket_size=1024 workers=4 seed=1 run_dir=runs/mnist/qsgdinf-4b-mnist_cnn-mnist-s1-0c438a6ecab778

# QSGDinf bucket_size=4096 workers=2
run method=qsgdinf data=mnist model=mnist_cnn optim=sgd optim.lr=0.1 optim.momentum=0.0 optim.weight_decay=0.0 measure.every=100 batch_size=128 steps=14070 eval_every=469 method.rounding=stochastic method.bits=4 method.bucket_size=4096 workers=2 seed=1 run_dir=runs/mnist/qsgdinf-4b-mnist_cnn-mnist-s1-6c532d1bde27e6

# QSGDinf bucket_size=4096 workers=4
run method=qsgdinf data=mnist model=mnist_cnn optim=sgd optim.lr=0.1 optim.momentum=0.0 optim.weight_decay=0.0 measure.every=100 batch_size=128 steps=14070 eval_every=469 method.rounding=stochastic method.bits=4 method.bucket_size=4096 workers=4 seed=1 run_dir=runs/mnist/qsgdinf-4b-mnist_cnn-mnist-s1-8d15c57cf0c02d

# QSGDinf bucket_size=8192 workers=2
run method=qsgdinf data=mnist model=mnist_cnn optim=sgd optim.lr=0.1 optim.momentum=0.0 optim.weight_decay=0.0 measure.every=100 batch_size=128 steps=14070 eval_every=469 method.rounding=stochastic method.bits=4 method.bucket_size=8192 workers=2 seed=1 run_dir=runs/mnist/qsgdinf-4b-mnist_cnn-mnist-s1-dae66f2e8eaade

# QSGDinf bucket_size=8192 workers=4
run method=qsgdinf data=mnist model=mnist_cnn optim=sgd optim.lr=0.1 optim.momentum=0.0 optim.weight_decay=0.0 measure.every=100 batch_size=128 steps=14070 eval_every=469 method.rounding=stochastic method.bits=4 method.bucket_size=8192 workers=4 seed=1 run_dir=runs/mnist/qsgdinf-4b-mnist_cnn-mnist-s1-3a7e57b292eda0

# NUQSGD bucket_size=1024 workers=2
run method=nuqsgd data=mnist model=mnist_cnn optim=sgd optim.lr=0.1 optim.momentum=0.0 optim.weight_decay=0.0 measure.every=100 batch_size=128 steps=14070 eval_every=469 method.rounding=stochastic method.bits=4 method.bucket_size=1024 workers=2 seed=1 run_dir=runs/mnist/nuqsgd-4b-mnist_cnn-mnist-s1-97deaf92173e65

# NUQSGD bucket_size=1024 workers=4
run method=nuqsgd data=mnist model=mnist_cnn optim=sgd optim.lr=0.1 optim.momentum=0.0 optim.weight_decay=0.0 measure.every=100 batch_size=128 steps=14070 eval_every=469 method.rounding=stochastic method.bits=4 method.bucket_size=1024 workers=4 seed=1 run_dir=runs/mnist/nuqsgd-4b-mnist_cnn-mnist-s1-b2731dc9b4ebc6

# NUQSGD bucket_size=4096 workers=2
run method=nuqsgd data=mnist model=mnist_cnn optim=sgd optim.lr=0.1 optim.momentum=0.0 optim.weight_decay=0.0 measure.every=100 batch_size=128 steps=14070 eval_every=469 method.rounding=stochastic method.bits=4 method.bucket_size=4096 workers=2 seed=1 run_dir=runs/mnist/nuqsgd-4b-mnist_cnn-mnist-s1-db56f8bb3c21e4

# NUQSGD bucket_size=4096 workers=4
run method=nuqsgd data=mnist model=mnist_cnn optim=sgd optim.lr=0.1 optim.momentum=0.0 optim.weight_decay=0.0 measure.every=100 batch_size=128 steps=14070 eval_every=469 method.rounding=stochastic method.bits=4 method.bucket_size=4096 workers=4 seed=1 run_dir=runs/mnist/nuqsgd-4b-mnist_cnn-mnist-s1-2686fbef50c521

# NUQSGD bucket_size=8192 workers=2
run method=nuqsgd data=mnist model=mnist_cnn optim=sgd optim.lr=0.1 optim.momentum=0.0 optim.weight_decay=0.0 measure.every=100 batch_size=128 steps=14070 eval_every=469 method.rounding=stochastic method.bits=4 method.bucket_size=8192 workers=2 seed=1 run_dir=runs/mnist/nuqsgd-4b-mnist_cnn-mnist-s1-418f98281c5f28

# NUQSGD bucket_size=8192 workers=4
run method=nuqsgd data=mnist model=mnist_cnn optim=sgd optim.lr=0.1 optim.momentum=0.0 optim.weight_decay=0.0 measure.every=100 batch_size=128 steps=14070 eval_every=469 method.rounding=stochastic method.bits=4 method.bucket_size=8192 workers=4 seed=1 run_dir=runs/mnist/nuqsgd-4b-mnist_cnn-mnist-s1-6a47db66b85701

exit "${failed:-0}"
