"""`marin cache untaint`: takes a taint back."""

from __future__ import annotations

import click

from marin_cas.cache.provenance import Blame
from marin_cas.cache.tainting import labels_of, tainted_results, untaint_digest, untaint_keys
from marin_cas.cli.decision import because_option, who
from marin_cas.cli.options import output_option
from marin_cas.cli.session import Session
from marin_cas.cli.what import What, find
from marin_cas.errors import RequestError
from marin_cas.ui import out, values, words


@click.command("untaint")
@click.argument("what", metavar="WHAT")
@because_option
@output_option("text", "json")
def command(what: str, because: str, output: str) -> None:
    """Take a taint back: what it kept from being served is served again.

    WHAT is what was tainted, as for `marin cache taint`. A result that was made in the meantime stays the one that is
    served. With a digest, the results that were tainted because of it come back too, unless something else taints
    them.

    \b
    marin cache untaint //exp:raw --because "the crawl was whole after all"
    """
    session = Session()
    cache = session.cache
    found = find(session, what, built=False)
    before = tainted_results(cache)
    if found.hash is not None:
        lifted = untaint_digest(cache, found.hash, because, who())
    else:
        lifted = untaint_keys(cache, found.keys, because, who())
    if not lifted:
        raise _nothing(found, before)
    after = tainted_results(cache)
    cache.sync()
    labels = labels_of(cache)
    back = sorted((labels.get(key, ()), key) for key in before if key not in after)
    if output == "json":
        freed = [{"key": key, "labels": list(ids)} for ids, key in back]
        out.data(values.dumps({"what": found.text, "because": because, "who": who(), "freed": freed}))
        return
    out.note(f"not tainted any more: {found}")
    for line in words.table([[key[:12], ", ".join(ids) or "(of no target as declared now)"] for ids, key in back]):
        out.data(line)
    for key in found.keys:
        if (blame := after.get(key.hex)) is not None:
            out.note(f"key {key.short} is still not served: {blame.taint.said()}")


def _nothing(found: What, bad: dict[str, Blame]) -> RequestError:
    for key in found.keys:
        if (blame := bad.get(key.hex)) is None:
            continue
        if blame.taint.cause:
            hint = f"untaint `{blame.taint.cause[:12]}`, which it holds or reads"
        else:
            hint = f"untaint `{blame.key[:12]}` ({blame.result.label}), which it was made from"
        return RequestError(f"{found} is not tainted itself", hint=hint)
    return RequestError(f"{found} is not tainted", hint='`marin query "tainted()"` lists the targets that are')
