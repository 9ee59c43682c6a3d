"""The pages of the documentation hold together: links lead somewhere, and every list of names is whole."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from marin_cas import config, errors
from marin_cas.cache.cache import open_cache
from marin_cas.reasons import Code
from marin_cas.scheduler import events
from marin_cas.worker.attempt import Status
from tests.unit.test_layers import ROOMS

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "cache" / "README.md"]
LINK = re.compile(r"(?<!!)\[[^\]\n]*\]\(([^)\s]+)\)")
PATH = re.compile(r"`((?:marin_cas|rules|scripts|tests|docs|exp|benchmarks)/[\w./-]*)`")


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def prose(text: str) -> str:
    """Without blocks of code."""
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def anchors(text: str) -> set[str]:
    """The anchors of the headings, made as code hosts make them."""
    found = set()
    for heading in re.findall(r"^#+ (.+)$", prose(text), re.MULTILINE):
        plain = re.sub(r"[^\w\- ]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)).lower()
        found.add(plain.replace(" ", "-"))
    return found


def section(text: str, heading: str) -> str:
    return text.split(f"{heading}\n", 1)[1].split("\n## ", 1)[0]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_local_link_leads_somewhere(page: Path):
    text = page.read_text(encoding="utf-8")
    for target in LINK.findall(prose(text)):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        assert path.exists(), f"{page.name}: [{target}]"
        assert not anchor or anchor in anchors(path.read_text(encoding="utf-8")), f"{page.name}: [{target}]"


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_file_that_a_page_names_exists(page: Path):
    for name in PATH.findall(prose(page.read_text(encoding="utf-8"))):
        assert (ROOT / name).exists(), f"{page.name}: `{name}`"


def test_the_pages_made_from_code_are_current():
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "document"), "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_page_is_on_the_map():
    readme = text_of("README.md")
    assert all(f"(docs/{path.name})" in readme for path in (ROOT / "docs").glob("*.md"))


def test_every_configuration_key_is_explained():
    rows = set(re.findall(r"^\| `(\w+)` \|", text_of("docs/configuration.md"), re.MULTILINE))
    assert rows == set(config.Config.__dataclass_fields__) - {"sources"}
    variables = set(re.findall(r"`(MARIN_\w+)`", text_of("docs/configuration.md")))
    assert variables == {f"MARIN_{name.upper()}" for name in rows}


def first_cells(text: str) -> set[str]:
    return set(re.findall(r"^\| `([\w.<>]+)`", text, re.MULTILINE))


def constants(module: object) -> Iterator[str]:
    for name, value in vars(module).items():
        if name.isupper() and isinstance(value, str) and not name.startswith("_"):
            yield value


def test_every_event_count_status_and_reason_is_explained():
    page = text_of("docs/events.md")
    sources = set(events.COUNTED)
    assert set(constants(events)) - sources <= first_cells(page)
    assert all(f"`{name}`" in page for name in (*events.COUNTS, *sources, *Status, "skipped"))
    assert {str(code) for code in Code} <= first_cells(page)


def test_every_exit_code_is_explained():
    codes = {value for name, value in vars(errors).items() if name.startswith("EXIT_")}
    for page in ("docs/events.md", "docs/commands.md"):
        table = text_of(page).split("## Exit codes", 1)[1]
        assert {int(code) for code in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)} == codes


def test_the_rooms_are_those_that_are_tested():
    rows = re.findall(r"^\| `(\w+)` \|", section(text_of("docs/architecture.md"), "## Rooms"), re.MULTILINE)
    assert rows == ["values", *ROOMS]


def test_every_folder_of_a_cache_is_explained(tmp_path: Path):
    explained = re.findall(
        r"^\| `([\w.]+)/?` \|", section(text_of("docs/concepts.md"), "## The folders under cache/"), re.M
    )
    cache = open_cache(tmp_path / "cache")
    cache.sync()
    cache.close()
    assert {path.name for path in cache.root.iterdir()} <= set(explained)
    named = set(re.findall(r'"(\w+)"', (ROOT / "marin_cas/cache/cache.py").read_text().split("def open_cache", 1)[1]))
    assert named <= set(explained) | {"state"}
