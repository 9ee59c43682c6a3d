"""The end of a build in a cache with a size: when it has more, it is brought below that, in one line for people."""

from __future__ import annotations

from marin_cas.cache.cache import Cache
from marin_cas.config import Config
from marin_cas.errors import MarinError
from marin_cas.ui import out, words

# Down to here, so that not every build collects. A budget that cannot be reached is tried again when as much was added.
_DOWN_TO = 0.9
_PATIENCE = 0.05


def keep_below(cache: Cache, config: Config, added: int, *, quiet: bool) -> None:
    """`added` are the bytes that this build made. No error of this ends a build: what it made is made."""
    if config.max_size is None or not added:
        return
    try:
        line = _keep_below(cache, config, config.max_size, added)
    except MarinError as error:
        line = f"warning: the cache was not brought below its `max_size`: {error.message}"
        quiet = False
    if line and not quiet:
        out.note(line)


def _keep_below(cache: Cache, config: Config, limit: int, added: int) -> str | None:
    from marin_cas.cache.budget import Total, measure

    total = Total(cache)
    total.add(added)
    known = total.read()
    if known is not None and known[0] <= max(limit, known[1]):
        return None
    size = measure(cache)
    if size <= limit:
        total.write(size, 0)
        return None
    from marin_cas.cache.collect import collect
    from marin_cas.cache.gc import Wanted, plan
    from marin_cas.scheduler.interrupts import interrupts

    made = plan(cache, Wanted(config.gc_grace, config.max_age, limit, int(_DOWN_TO * limit)))
    stops: list[bool] = []
    with interrupts(lambda: stops.append(True)):
        done = collect(cache, made, lambda: bool(stops))
    left = made.size - done.freed
    over = left - limit
    total.write(left, left + int(_PATIENCE * limit) if over > 0 else 0)
    freed = f"collected {words.size(done.freed)}; " if done.freed else ""
    text = f"{freed}the cache has {words.size(left)} of {words.size(limit)}"
    if over > 0 and made.holders and not done.stopped:
        name, held = made.holders[0]
        text += f": {name} holds {words.size(held)} (`marin cache gc --dry-run` says more)"
    return text
