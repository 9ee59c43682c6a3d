"""Starts the worker's processes from any installation: run as `python -P -s boot.py forkserver|tool FD`.

A checkout that is not installed is put on the path just long enough to import the worker: had it stayed, user code
could import modules of the workspace that are not in its action's key.
"""

import sys
from importlib import import_module
from pathlib import Path

if __name__ == "__main__":
    home = str(Path(__file__).resolve().parents[2])
    added = home not in sys.path
    if added:
        sys.path.append(home)
    module = import_module(f"marin_cas.worker.{sys.argv[1]}")
    if added:
        sys.path.remove(home)
    sys.exit(module.main(int(sys.argv[2])))
