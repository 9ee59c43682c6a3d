"""What building costs around a training: wall of the action minus wall inside `train_lm.main`, imports excluded."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from measure import MARIN, ROOT, folder, verdict

LABEL = "//exp:tiny_smoke"


def main() -> None:
    with folder() as cache:
        # A cache of its own, so that the training runs; compiled programs are those of any second run.
        environ = {**os.environ, "MARIN_CACHE": str(cache), "MARIN_COMPILATION_CACHE": str(ROOT / "cache" / "jax")}
        events = cache / "events.jsonl"
        command = [MARIN, "build", LABEL, "--events", str(events)]
        if subprocess.run(command, cwd=ROOT, env=environ, stdout=subprocess.DEVNULL).returncode:
            sys.exit(f"{' '.join(command)} failed")
        finished = [json.loads(line) for line in events.read_text().splitlines()]
        (action,) = [e for e in finished if e["event"] == "action_finished" and e["label"] == LABEL]
        with (cache / "out" / "exp" / "tiny_smoke" / "metrics").open() as file:
            seconds = json.loads(file.readlines()[-1])["summary"]["seconds"]
    print(f"wall of the action           {action['seconds']:8.3f} s")
    print(f"inside train_lm.main         {seconds['main']:8.3f} s")
    print(f"imports                      {seconds['imports']:8.3f} s")
    verdict("around it", action["seconds"] - seconds["main"] - seconds["imports"], 3)


if __name__ == "__main__":
    main()
