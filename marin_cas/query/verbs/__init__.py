"""The verbs of the query language, one file each; `let`, `set` and the operators belong to the grammar."""

from __future__ import annotations

from marin_cas.query.verbs import (
    allpaths,
    attr,
    buildfiles,
    deps,
    filter,
    kind,
    labels,
    rdeps,
    siblings,
    somepath,
    tainted,
    tests,
)

VERBS = {
    module.VERB.name: module.VERB
    for module in (allpaths, attr, buildfiles, deps, filter, kind, labels, rdeps, siblings, somepath, tainted, tests)
}
