"""What building costs around a training: wall of the action minus wall inside `train_lm.main`, imports excluded."""

from __future__ import annotations

import json
import subprocess
import sys

from measure import MARIN, ROOT, verdict

LABEL = "//exp:tiny_smoke"


def main() -> None:
    events = ROOT / "cache" / "bench-events.jsonl"
    # Everything below is made and compiled first, so that the measured run has only its own work to do.
    for command in (["build", LABEL], ["build", LABEL, "--again", LABEL, "--events", str(events)]):
        if subprocess.run([MARIN, *command], cwd=ROOT, stdout=subprocess.DEVNULL).returncode:
            sys.exit(f"marin {' '.join(command)} failed")
    finished = [json.loads(line) for line in events.read_text().splitlines()]
    (action,) = [e for e in finished if e["event"] == "action_finished" and e["label"] == LABEL]
    metrics = subprocess.run([MARIN, "path", f"{LABEL}%metrics"], cwd=ROOT, capture_output=True, text=True, check=True)
    with open(metrics.stdout.strip()) as file:
        seconds = json.loads(file.readlines()[-1])["summary"]["seconds"]
    print(f"wall of the action           {action['seconds']:8.3f} s")
    print(f"inside train_lm.main         {seconds['main']:8.3f} s")
    print(f"imports                      {seconds['imports']:8.3f} s")
    verdict("around it", action["seconds"] - seconds["main"] - seconds["imports"], 3)


if __name__ == "__main__":
    main()
