"""A plan as text: one line an action, then what it comes to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from marin_cas.action import Resources
from marin_cas.analysis.needs import needs_of
from marin_cas.analysis.resources import chips, hosts
from marin_cas.scheduler.plan import HIT, MISS, Decision, Plan
from marin_cas.ui import words


def resources(held: Resources) -> str:
    """`2 cpu, 4.0 GiB`, `gpu H100 x8`, `tpu v4-128 x4: 64 hosts, 256 chips`."""
    if held.device == "cpu":
        return f"{held.cpu:g} cpu, {words.size(held.ram)}"
    times = held.slice_count if held.device == "tpu" else held.count
    shown = f"{held.device} {' or '.join((held.variant, *held.alternatives))}" + (f" x{times}" if times > 1 else "")
    if held.device == "tpu":
        shown += f": {words.count(hosts(held), 'host')}, {words.count(chips(held), 'chip')}"
    return shown


def name(decision: Decision) -> str:
    """The key's first 12 digits, or behind a `~` the fingerprint's while the key waits for inputs; behind a `?` one
    that is provisional: it changes once marin.lock says what it stands for."""
    if decision.action.provisional:
        return f"?{decision.name}"
    return decision.name if decision.key else f"~{decision.name}"


def lines(plan: Plan) -> Iterator[str]:
    rows = [
        [
            decision.status,
            decision.action.id,
            decision.action.rule,
            name(decision),
            resources(decision.action.resources),
            decision.reason.text(),
        ]
        for decision in plan.decisions.values()
    ]
    yield from words.table(rows)


def total(plan: Plan) -> str:
    """`would run 3 actions (1 train_lm, 2 tokenized) and serve 4`."""
    status = Counter(decision.status for decision in plan.decisions.values())
    rules = Counter(decision.action.rule for decision in plan.misses)
    what = ", ".join(f"{count} {rule}" for rule, count in sorted(rules.items()))
    ran = f"would run {words.count(status[MISS], 'action')}" + (f" ({what})" if what else "")
    text = f"{ran} and serve {status[HIT]}"
    needs = needs_of(decision.action for decision in plan.decisions.values())
    for need in needs[:1]:
        others = f" and {len(needs) - 1} more" if len(needs) > 1 else ""
        text += f"; fingerprints with a `?` are provisional until `marin lock` finds out `{need}`{others}"
    return text
