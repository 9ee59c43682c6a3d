"""`buildfiles(x)`: the BUILD files of the packages of `x`, and every rule file that these load, as source files."""

from __future__ import annotations

from marin_cas.graph.target import SourceFile
from marin_cas.label import Label
from marin_cas.query.verb import EXPRESSION, Nodes, Verb
from marin_cas.query.world import World


def answer(world: World, x: Nodes) -> Nodes:
    files: set[Label] = set()
    for name in sorted({label.package for label in x.labels if not label.repo}):
        package = world.package(name)
        home = name if package.home is None else package.home
        files.add(Label(home, package.build_file.removeprefix(f"{home}/")))
        files.update(package.loads)
    world.add_files(SourceFile(label) for label in files)
    return Nodes.of(files)


VERB = Verb("buildfiles", (("x", EXPRESSION),), answer)
