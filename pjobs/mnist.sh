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
  if [ "$code" -ne 0 ]; then failed=1; fi
}

# SGD
run method=sgd data=mnist model=mnist_cnn optim=sgd optim.lr=0.1 optim.momentum=0.0 optim.weight_decay=0.0 measure.every=100 batch_size=128 steps=14070 eval_every=469 workers=1 seed=1 run_dir=runs/mnist/sgd-mnist_cnn-mnist-s1-40e6dc57cc3621

# QSGD bucket_size=1024 workers=2
run method=qsgd data=mnist model=mnist_cnn optim=sgd optim.lr=0.1 optim.momentum=0.0 optim.weight_decay=0.0 measure.every=100 batch_size=128 steps=14070 eval_every=469 method.bits=4 method.bucket_size=1024 workers=2 seed=1 run_dir=runs/mnist/qsgd-4b-mnist_cnn-mnist-s1-260cb4a466195a

# QSGD bucket_size=1024 workers=4
run method=qsgd data=mnist model=mnist_cnn optim=sgd optim.lr=0.1 optim.momentum=0.0 optim.weight_decay=0.0 measure.every=100 batch_size=128 steps=14070 eval_every=469 method.bits=4 method.bucket_size=1024 workers=4 seed=1 run_dir=runs/mnist/qsgd-4b-mnist_cnn-mnist-s1-69b5858a618993

# QSGD bucket_size=4096 workers=2
run method=qsgd data=mnist model=mnist_cnn optim=sgd optim.lr=0.1 optim.momentum=0.0 optim.weight_decay=0.0 measure.every=100 batch_size=128 steps=14070 eval_every=469 method.bits=4 method.bucket_size=4096 workers=2 seed=1 run_dir=runs/mnist/qsgd-4b-mnist_cnn-mnist-s1-712009cd28ac5a

# QSGD bucket_size=4096 workers=4
run method=qsgd data=mnist model=mnist_cnn optim=sgd optim.lr=0.1 optim.momentum=0.0 optim.weight_decay=0.0 measure.every=100 batch_size=128 steps=14070 eval_every=469 method.bits=4 method.bucket_size=4096 workers=4 seed=1 run_dir=runs/mnist/qsgd-4b-mnist_cnn-mnist-s1-fb2596bee55764

# QSGD bucket_size=8192 workers=2
run method=qsgd data=mnist model=mnist_cnn optim=sgd optim.lr=0.1 optim.momentum=0.0 optim.weight_decay=0.0 measure.every=100 batch_size=128 steps=14070 eval_every=469 method.bits=4 method.bucket_size=8192 workers=2 seed=1 run_dir=runs/mnist/qsgd-4b-mnist_cnn-mnist-s1-ee3aa49fa7c041

# QSGD bucket_size=8192 workers=4
run method=qsgd data=mnist model=mnist_cnn optim=sgd optim.lr=0.1 optim.momentum=0.0 optim.weight_decay=0.0 measure.every=100 batch_size=128 steps=14070 eval_every=469 method.bits=4 method.bucket_size=8192 workers=4 seed=1 run_dir=runs/mnist/qsgd-4b-mnist_cnn-mnist-s1-48c24f1e1fe796

# QSGDinf bucket_size=1024 workers=2
run method=qsgdinf data=mnist model=mnist_cnn optim=sgd optim.lr=0.1 optim.momentum=0.0 optim.weight_decay=0.0 measure.every=100 batch_size=128 steps=14070 eval_every=469 method.bits=4 method.bucket_size=1024 workers=2 seed=1 run_dir=runs/mnist/qsgdinf-4b-mnist_cnn-mnist-s1-d8eeaf0a2032f9

# QSGDinf bucket_size=1024 workers=4
run method=qsgdinf data=mnist model=mnist_cnn optim=sgd optim.lr=0.1 optim.momentum=0.0 optim.weight_decay=0.0 measure.every=100 batch_size=128 steps=14070 eval_every=469 method.bits=4 method.bucket_size=1024 workers=4 seed=1 run_dir=runs/mnist/qsgdinf-4b-mnist_cnn-mnist-s1-8fbdc30b8b4a42

# QSGDinf bucket_size=4096 workers=2
run method=qsgdinf data=mnist model=mnist_cnn optim=sgd optim.lr=0.1 optim.momentum=0.0 optim.weight_decay=0.0 measure.every=100 batch_size=128 steps=14070 eval_every=469 method.bits=4 method.bucket_size=4096 workers=2 seed=1 run_dir=runs/mnist/qsgdinf-4b-mnist_cnn-mnist-s1-78394bfa72d593

# QSGDinf bucket_size=4096 workers=4
run method=qsgdinf data=mnist model=mnist_cnn optim=sgd optim.lr=0.1 optim.momentum=0.0 optim.weight_decay=0.0 measure.every=100 batch_size=128 steps=14070 eval_every=469 method.bits=4 method.bucket_size=4096 workers=4 seed=1 run_dir=runs/mnist/qsgdinf-4b-mnist_cnn-mnist-s1-78ae13fcf94ad8

# QSGDinf bucket_size=8192 workers=2
run method=qsgdinf data=mnist model=mnist_cnn optim=sgd optim.lr=0.1 optim.momentum=0.0 optim.weight_decay=0.0 measure.every=100 batch_size=128 steps=14070 eval_every=469 method.bits=4 method.bucket_size=8192 workers=2 seed=1 run_dir=runs/mnist/qsgdinf-4b-mnist_cnn-mnist-s1-3771ffb6dbc19e

# QSGDinf bucket_size=8192 workers=4
run method=qsgdinf data=mnist model=mnist_cnn optim=sgd optim.lr=0.1 optim.momentum=0.0 optim.weight_decay=0.0 measure.every=100 batch_size=128 steps=14070 eval_every=469 method.bits=4 method.bucket_size=8192 workers=4 seed=1 run_dir=runs/mnist/qsgdinf-4b-mnist_cnn-mnist-s1-173da824c710b0

# NUQSGD bucket_size=1024 workers=2
run method=nuqsgd data=mnist model=mnist_cnn optim=sgd optim.lr=0.1 optim.momentum=0.0 optim.weight_decay=0.0 measure.every=100 batch_size=128 steps=14070 eval_every=469 method.bits=4 method.bucket_size=1024 workers=2 seed=1 run_dir=runs/mnist/nuqsgd-4b-mnist_cnn-mnist-s1-54c10f6b58a461

# NUQSGD bucket_size=1024 workers=4
run method=nuqsgd data=mnist model=mnist_cnn optim=sgd optim.lr=0.1 optim.momentum=0.0 optim.weight_decay=0.0 measure.every=100 batch_size=128 steps=14070 eval_every=469 method.bits=4 method.bucket_size=1024 workers=4 seed=1 run_dir=runs/mnist/nuqsgd-4b-mnist_cnn-mnist-s1-ff82eb8f977ffa

# NUQSGD bucket_size=4096 workers=2
run method=nuqsgd data=mnist model=mnist_cnn optim=sgd optim.lr=0.1 optim.momentum=0.0 optim.weight_decay=0.0 measure.every=100 batch_size=128 steps=14070 eval_every=469 method.bits=4 method.bucket_size=4096 workers=2 seed=1 run_dir=runs/mnist/nuqsgd-4b-mnist_cnn-mnist-s1-73c634b80d5012

# NUQSGD bucket_size=4096 workers=4
run method=nuqsgd data=mnist model=mnist_cnn optim=sgd optim.lr=0.1 optim.momentum=0.0 optim.weight_decay=0.0 measure.every=100 batch_size=128 steps=14070 eval_every=469 method.bits=4 method.bucket_size=4096 workers=4 seed=1 run_dir=runs/mnist/nuqsgd-4b-mnist_cnn-mnist-s1-dd366e491b72c4

# NUQSGD bucket_size=8192 workers=2
run method=nuqsgd data=mnist model=mnist_cnn optim=sgd optim.lr=0.1 optim.momentum=0.0 optim.weight_decay=0.0 measure.every=100 batch_size=128 steps=14070 eval_every=469 method.bits=4 method.bucket_size=8192 workers=2 seed=1 run_dir=runs/mnist/nuqsgd-4b-mnist_cnn-mnist-s1-1cb971e68cacdf

# NUQSGD bucket_size=8192 workers=4
run method=nuqsgd data=mnist model=mnist_cnn optim=sgd optim.lr=0.1 optim.momentum=0.0 optim.weight_decay=0.0 measure.every=100 batch_size=128 steps=14070 eval_every=469 method.bits=4 method.bucket_size=8192 workers=4 seed=1 run_dir=runs/mnist/nuqsgd-4b-mnist_cnn-mnist-s1-5fa8720233dbd1

exit "${failed:-0}"
