"""A sweep of one's own, with `my_site.yaml`, the profile of a cluster.

python grid_run.py show examples/my_sweep.py bits
python grid_run.py plan examples/my_sweep.py bits --site examples/my_site.yaml
python grid_run.py run examples/my_sweep.py bits
python -m analysis figures my_sweep_bits
"""

from grid.engine.sweep import Sweep, axis, point, product, union

TASK = point("", data="digits", model="cnn", workers=4, batch_size=16, steps=40, eval_every=20)
METHODS = union(
    point("SuperSGD", method="supersgd"),
    product(
        union(
            point("QSGDinf", method="qsgdinf"),
            point("ALQ", {"method": "alq", "method.update_at": [5, 20]}),
        ),
        axis("method.bits", [2, 4]),
    ),
)


def bits() -> Sweep:
    """QSGDinf and ALQ at 2 and 4 bits beside full precision, two seeds."""
    return Sweep(product(TASK, METHODS), seeds=(1, 2))
