"""Starts the worker's processes from any installation: run as `python -P -s boot.py forkserver|tool FD`.

A checkout that is not installed is put on the path just long enough to find the package: had it stayed, user code
could import modules of the workspace that are not in its action's key. The processes that multiprocessing spawns
below a tool run this file as `__mp_main__`, and find the package in the same way.
"""

import os
import sys
from importlib import import_module
from pathlib import Path

if __name__ in ("__main__", "__mp_main__"):
    # First, so that it is the driver's package and not another one that is installed.
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    import_module("marin_cas")  # its submodules are found from now on
    del sys.path[0]

if __name__ == "__main__":
    code = import_module(f"marin_cas.worker.{sys.argv[1]}").main(int(sys.argv[2]))
    sys.stdout.flush()
    sys.stderr.flush()
    # All that an exit owes is done; taking the interpreter down beside a library's threads can still crash it.
    os._exit(code)
