"""Plans do not depend on the processor: other BLAS kernels, no vector units, and noise in the last digit of functions.

A machine with AVX-512 computes exponentials otherwise than one without; here, numpy's own functions return random last
digits instead, and equal keys of its unstable sorts come in random order.
"""

import os
import subprocess
import sys
from pathlib import Path

NOISE = """
import numpy as np

random = np.random.default_rng(int(os.environ["NOISE"]))

def noisy(name):
    exact = getattr(np, name)
    def function(*arguments, **keywords):
        value = exact(*arguments, **keywords)
        if getattr(value, "dtype", None) != np.float64:
            return value
        return value * (1 + random.integers(-1, 2, np.shape(value)) * 2.0**-52)
    setattr(np, name, function)

for name in ("exp", "exp2", "expm1", "log", "log2", "log1p", "power", "float_power"):
    noisy(name)

sort = np.argsort
def unstable(values, axis=-1, kind=None, **keywords):
    if kind == "stable" or np.ndim(values) != 1:
        return sort(values, axis=axis, kind=kind, **keywords)
    return np.lexsort((random.random(len(values)), values))
np.argsort = unstable
"""
PLANS = """
from planner import Policy, plan
from topologies import load_topology

for topology, nodes, workload, policy in (
    ("zionex-16", 4, "dlrm-dcnv2", None),
    ("dgx-a100-40", 1, "dlrm-dcnv2", None),
    ("dgx-h100", 2, "synthetic:40@seed=3", Policy(runtime="torchrec")),
):
    made = plan(load_topology(topology, nodes=nodes), workload, policy=policy, effort=0, simulate=nodes == 2)
    print(made.model_dump_json())
"""


def _plans(**environment: str) -> str:
    head = "import os\n" + (NOISE if "NOISE" in environment else "")
    path = os.pathsep.join([str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH", "")])
    every = {**os.environ, "PYTHONPATH": path, **environment}
    done = subprocess.run([sys.executable, "-c", head + PLANS], env=every, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_plans_are_equal_byte_for_byte() -> None:
    """On an older processor whose functions have other last digits, too."""
    assert _plans(OPENBLAS_CORETYPE="Prescott", NPY_DISABLE_CPU_FEATURES="X86_V3", NOISE="1") == _plans()
