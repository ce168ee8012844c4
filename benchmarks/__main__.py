"""Every benchmark, one after the other: `make bench`."""

import os
import pkgutil
import subprocess
import sys

import benchmarks

for module in pkgutil.iter_modules(benchmarks.__path__):
    if module.name != "__main__":
        print(f"\n{module.name}\n", flush=True)
        one_thread = {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
        subprocess.run([sys.executable, "-m", f"benchmarks.{module.name}"], check=False, env=os.environ | one_thread)
