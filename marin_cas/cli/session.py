"""What the commands share: the workspace around the current folder and the rooms opened on it, each at first use."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import click

from marin_cas.errors import RequestError
from marin_cas.label import Label
from marin_cas.ui import words
from marin_cas.workspace import Workspace, open_workspace, rules_folder

if TYPE_CHECKING:
    from marin_cas.analysis.analysis import Analysis
    from marin_cas.analysis.lock import Lock
    from marin_cas.api.loading import ScriptLoader
    from marin_cas.cache.cache import Cache
    from marin_cas.graph.graph import Graph


PACKAGE = Path(__file__).resolve().parent.parent
# What decides which actions there are and what is in their keys; the rooms below these only carry it out.
_DECIDING = ("", "lang", "graph", "analysis")


def program_files() -> list[Path]:
    """The files of this program that an analysis is made by: in a checkout they change under one version number."""
    modules = [path for room in _DECIDING for path in sorted((PACKAGE / room).glob("*.py"))]
    return [*modules, *sorted((PACKAGE / "analysis" / "schemas").glob("*.json"))]


class Session:
    """One command's view of the workspace. `flags` are the configuration's fields given on the command line."""

    def __init__(self, flags: Mapping[str, object] | None = None) -> None:
        self.cwd = Path.cwd()
        self.workspace: Workspace = open_workspace(self.cwd, flags or {}, os.environ)
        self.config = self.workspace.config
        self.root = self.workspace.root
        self.package = self.workspace.package_of(self.cwd)

    @cached_property
    def cache(self) -> Cache:
        from marin_cas.cache.cache import open_cache

        cache = open_cache(self.workspace.cache)
        # Whatever way the command ends: what was hashed is not hashed again by the next one.
        click.get_current_context().call_on_close(cache.close)
        return cache

    @cached_property
    def loader(self) -> ScriptLoader:
        from marin_cas.api.loading import ScriptLoader
        from marin_cas.lang.loader import Loader

        base = Loader(self.root, rules_folder(), cache=self.workspace.cache)

        def read(path: str, function: str):
            from marin_cas.api import scripts, workshop

            workshop.use(self.root, base)
            return scripts.read(path, function)

        return ScriptLoader(base, read)

    @cached_property
    def lock(self) -> Lock:
        from marin_cas.analysis.lock import read_lock

        return read_lock(self.root)

    def target(self, text: str) -> Label:
        """The one existing target that `text` names."""
        found = self.expand([text])
        if len(found) != 1:
            raise RequestError(
                f"`{text}` names {words.count(len(found), 'target')}, and one is wanted",
                hint=f"`marin query '{text}'` lists them" if found else None,
            )
        return found[0]

    def is_target(self, label: Label) -> bool:
        """Whether a label that exists is a declared target, no source file."""
        return self.loader.has_package(label.package) and label.name in self.loader.package(label.package).declarations

    def expand(self, patterns: Sequence[str]) -> tuple[Label, ...]:
        """The targets that the patterns name, in their order, each once."""
        from marin_cas.graph.pattern import expand

        return expand(self.loader, patterns, self.package)

    def named(self, patterns: Sequence[str]) -> frozenset[Label]:
        """The targets that patterns name one by one, rather than by a wildcard."""
        from marin_cas.graph.pattern import ONE, parse_pattern

        parsed = [parse_pattern(text, self.package) for text in patterns]
        return frozenset(pattern.label for pattern in parsed if pattern.kind == ONE and not pattern.negative)

    def graph(self, roots: Iterable[Label]) -> Graph:
        from marin_cas.graph.graph import load_graph

        return load_graph(self.loader, roots, self.config.define, self.config.profile)

    def analyse(self, graph: Graph) -> Analysis:
        from marin_cas.analysis.analysis import analyse
        from marin_cas.analysis.sources import Sources

        return analyse(graph, self.loader, self.lock, Sources(self.root, self.cache.stats))

    def watched(self, analysis: Analysis) -> list[Path]:
        """Every file and folder that the analysis depends on: while none changes, it would come out the same."""
        from marin_cas.analysis.lock import LOCK_FILE
        from marin_cas.config import config_files

        found: dict[Path, None] = dict.fromkeys([*config_files(self.root, os.environ), self.root / LOCK_FILE])
        found.update(dict.fromkeys(program_files()))
        found.update(dict.fromkeys(sorted(self.loader.watched)))
        for source in sorted(analysis.sources):
            path = self.root / source
            found[path] = None
            # A file that appears beside a source may belong to a folder that is an input, or be what an import finds.
            for folder in path.parents:
                if folder in found or folder == self.root.parent:
                    break
                found[folder] = None
        return list(found)
