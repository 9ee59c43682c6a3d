"""`marin cache gc`: gives up what nothing needs, and on demand what is cheap to make again."""

from __future__ import annotations

import click

from marin_cas.cli import collected
from marin_cas.cli.options import output_option
from marin_cas.cli.session import Session
from marin_cas.errors import EnvironmentProblem, Interrupted
from marin_cas.ui import out, values, words


@click.command("gc")
@click.option("--max-size", metavar="SIZE", help="Give up results until the cache has no more than this: 50GiB.")
@click.option("--max-age", metavar="AGE", help="Give up what no root leads to and was not used for so long: 30d.")
@click.option("--grace", metavar="AGE", help="Keep whatever was used within this time; by default a day.")
@click.option("-n", "--dry-run", is_flag=True, help="Only say what would go.")
@click.option("--all", "everything", is_flag=True, help="List everything that goes, not only the largest.")
@output_option("text", "json")
def command(
    max_size: str | None, max_age: str | None, grace: str | None, dry_run: bool, everything: bool, output: str
) -> None:
    """Delete what nothing needs: blobs that nothing names, other attempts, and left-over folders.

    With --max-size or --max-age (or `max_size`, `max_age` of the configuration) results give up their bytes too: what
    is cheapest to make again for the bytes that it frees goes first. Their records stay; a build that needs the bytes
    makes them again.

    Never given up: what workspaces have built last (`marin cache roots`), pins, published versions, what somebody
    builds or reads now, and what was used within the grace time. Exit code 3: --max-size could not be met.

    \b
    marin cache gc --dry-run
    marin cache gc --max-size 50GiB
    marin cache gc --max-age 30d
    """
    session = Session({"max_size": max_size, "max_age": max_age, "gc_grace": grace})
    config = session.config
    from marin_cas.cache.gc import Wanted, plan

    made = plan(session.cache, Wanted(config.gc_grace, config.max_age, config.max_size))
    if output == "text":
        for line in collected.lines(made, everything=everything):
            out.data(line)
    done = None
    if not dry_run:
        from marin_cas.cache.budget import Total
        from marin_cas.cache.collect import collect
        from marin_cas.scheduler.interrupts import interrupts

        stops: list[bool] = []
        with interrupts(lambda: stops.append(True)):
            done = collect(session.cache, made, lambda: bool(stops))
        if config.max_size is not None:
            Total(session.cache).write(made.size - done.freed, 0)
    if output == "json":
        out.data(values.dumps(collected.to_json(made, done)))
    for note in collected.notes(made, done):
        out.note(note)
    out.note(collected.total(made, done))
    if done is not None and done.stopped:
        raise Interrupted("stopped; what was not deleted is whole, and `marin cache gc` goes on")
    if made.lacking and max_size is not None and not dry_run:
        raise EnvironmentProblem(
            f"the cache has {words.size(made.lacking)} more than `--max-size` allows",
            hint="let roots go (`marin cache roots --forget`, `marin cache unpin`), or allow more",
        )
