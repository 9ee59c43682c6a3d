"""Configuration: the order of its layers, where each value came from, and what is refused where."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from marin_cas.config import SETTINGS, Config, load_config
from marin_cas.errors import RequestError
from marin_cas.workspace import find_workspace, open_workspace


def write(root: Path, text: str, name: str = "marin.toml") -> Path:
    root.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)
    return root


def refusal(root: Path, flags: dict[str, object] | None = None, environ: dict[str, str] | None = None) -> str:
    with pytest.raises(RequestError) as caught:
        load_config(root, flags or {}, environ or {})
    return caught.value.render()


def test_layers_rise_from_file_to_user_to_variable_to_flag(tmp_path: Path) -> None:
    root = write(tmp_path / "w", "jobs = 1\nram = '1GiB'\nlocked = true\ncache = 'c'\n")
    write(tmp_path / "home" / "marin-cas", "jobs = 2\nram = '2GiB'\nlocked = false\n", "config.toml")
    environ = {"XDG_CONFIG_HOME": str(tmp_path / "home"), "MARIN_JOBS": "3", "MARIN_RAM": "3GiB"}
    config = load_config(root, {"jobs": 4, "cache": None}, environ)
    assert (config.jobs, config.ram, config.locked, config.cache) == (4, 3 << 30, False, "c")
    assert config.sources["jobs"] == "--jobs"
    assert config.sources["ram"] == "MARIN_RAM"
    assert config.sources["locked"].endswith("marin-cas/config.toml:3")
    assert config.sources["cache"] == "marin.toml:4"
    assert config.sources["progress"] == "default"


def test_a_profile_is_above_the_files_and_below_variables(tmp_path: Path) -> None:
    root = write(tmp_path, "jobs = 1\n[define]\na = 'file'\nb = 'file'\n[profile.ci]\njobs = 2\ndefine = {a = 'ci'}\n")
    assert load_config(root, {}, {}).jobs == 1
    config = load_config(root, {"profile": "ci", "define": {"c": "flag"}}, {"HOME": "/nowhere"})
    assert config.jobs == 2
    assert config.define == {"a": "ci", "b": "file", "c": "flag"}
    assert config.sources["jobs"] == "marin.toml:6 [profile.ci]"
    assert load_config(root, {}, {"MARIN_PROFILE": "ci", "MARIN_JOBS": "7"}).jobs == 7


def test_pyproject_serves_as_well(tmp_path: Path) -> None:
    root = write(tmp_path, "[project]\nname = 'x'\n[tool.marin]\njobs = 5\n", "pyproject.toml")
    assert find_workspace(root) == root.resolve()
    config = load_config(root, {}, {})
    assert config.jobs == 5
    assert config.sources["jobs"] == "pyproject.toml:4"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\njosb = 1\n", "marin.toml:2: unknown key `josb`\n  hint: did you mean `jobs`?"),
        ("[profile.ci]\njobs = 1\n[profile.me]\n\njosb = 1\n", "marin.toml:5: unknown key `profile.me.josb`"),
        ("jobs = 1\n[profile.ci]\njobs = 'x'\n", "marin.toml:3: `profile.ci.jobs` must be a whole number"),
        ("jobs = true\n", "marin.toml:1: `jobs` must be a whole number of at least 1, not `true`"),
        ("jobs = 0\n", "not `0`"),
        ("ram = '8 GoB'\n", "such as `8GiB`"),
        ("progress = 'loud'\n", "one of `auto`, `plain`, `none`, not `loud`"),
        ("keep_going = 'perhaps'\n", "true or false"),
        ("[define]\na = 1\n", "marin.toml:1: `define` must be a table of texts"),
        ("pass_env = [1]\n", "a list of variable names"),
        ("cache = ''\n", "a text that is not empty"),
        ("[profile]\nci = 3\n", "marin.toml:2: `profile.ci` must be a table"),
        ("profile = 3\n", "marin.toml:1: `profile` must be a name or tables"),
        ("jobs = = 3\n", "marin.toml:1: not TOML: invalid value"),
        ("jobs = 1\njobs = 2\n", "marin.toml:2: not TOML: cannot overwrite a value"),
    ],
)
def test_refused_with_the_place(tmp_path: Path, text: str, message: str) -> None:
    assert message in refusal(write(tmp_path, text))


def test_a_section_that_is_not_chosen_is_checked_too(tmp_path: Path) -> None:
    assert "profile.ci.profile" in refusal(write(tmp_path, "[profile.ci]\nprofile = 'x'\n"))


def test_an_unknown_profile_is_refused(tmp_path: Path) -> None:
    root = write(tmp_path, "[profile.nightly]\njobs = 1\n")
    assert "there is no profile `nighty`\n  hint: did you mean `nightly`?" in refusal(root, {"profile": "nighty"})
    assert "add a section `[profile.x]`" in refusal(root, {"profile": "x"})


def test_a_slip_in_a_variable_is_refused_and_others_are_left_alone(tmp_path: Path) -> None:
    root = write(tmp_path, "")
    assert "did you mean `MARIN_JOBS`?" in refusal(root, environ={"MARIN_JOB": "1"})
    assert "`MARIN_JOBS` must be a whole number" in refusal(root, environ={"MARIN_JOBS": "many"})
    assert load_config(root, {}, {"MARIN_PREFIX": "gs://x", "MARIN_JOBS": ""}).jobs is None


def test_two_configurations_of_one_root_are_refused(tmp_path: Path) -> None:
    write(tmp_path, "[tool.marin]\n", "pyproject.toml")
    assert "configured twice" in refusal(write(tmp_path, ""))


def test_not_utf8_is_refused(tmp_path: Path) -> None:
    (tmp_path / "marin.toml").write_bytes(b"\xff")
    assert "not UTF-8" in refusal(tmp_path)


def test_the_workspace_is_found_from_below(tmp_path: Path) -> None:
    root = write(tmp_path / "w", "cache = 'elsewhere'\n")
    (root / "exp" / "deep").mkdir(parents=True)
    write(root / "exp", "[project]\nname = 'marinade'\n", "pyproject.toml")  # mentions marin, is no workspace
    workspace = open_workspace(root / "exp" / "deep", {}, {})
    assert workspace.root == root.resolve()
    assert workspace.cache == root.resolve() / "elsewhere"
    assert workspace.package_of(root / "exp") == "exp"
    assert workspace.package_of(root) == ""


def test_outside_a_workspace_says_so(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="not inside a workspace"):
        find_workspace(tmp_path)


def test_every_setting_is_explained() -> None:
    assert [item.name for item in fields(Config) if item.name != "sources"] == list(SETTINGS)
