from __future__ import annotations

import platform

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin_cas.analysis.lock import Lock, installed_lock, lock_text, read_lock, write_lock
from marin_cas.errors import RequestError

names = st.from_regex(r"[a-z][a-z0-9_.-]{0,10}", fullmatch=True)
versions = st.from_regex(r"[0-9]+(\.[0-9a-z]+){0,3}", fullmatch=True)


@given(st.dictionaries(names, versions, max_size=6))
def test_a_lock_can_be_read_back(tmp_path_factory, toolchain):
    root = tmp_path_factory.mktemp("lock")
    assert write_lock(root, Lock(toolchain))
    assert not write_lock(root, Lock(dict(reversed(toolchain.items()))))
    assert read_lock(root) == Lock(toolchain)


def test_one_sorted_line_an_entry():
    assert lock_text(Lock({"jax": "1", "a.b": "2"})).splitlines()[3:] == ["[toolchain]", '"a.b" = "2"', 'jax = "1"']


def test_an_open_python_is_the_running_one(tmp_path):
    lock = read_lock(tmp_path)
    assert not lock.present
    assert lock.version("python") == platform.python_version()
    assert Lock({"python": "3.12.0"}).version("python") == "3.12.0"


def test_what_is_not_locked_is_an_error_with_a_next_step(tmp_path):
    with pytest.raises(RequestError, match=r"there is no marin\.lock") as error:
        read_lock(tmp_path).version("jax")
    assert error.value.hint and "marin lock" in error.value.hint
    with pytest.raises(RequestError, match=r"`jax` bears identity here, but marin\.lock does not pin it"):
        Lock({}).version("jax")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("format = 2\n", "its format is 2"),
        ("", "its format is None"),
        ("format = 1\n[toolchian]\n", "unknown section `toolchian`"),
        ("format = 1\n[toolchain]\njax = 1\n", "the version of `jax` must be text"),
        ("format = ", "not a lock file"),
    ],
)
def test_a_wrong_lock_is_refused(tmp_path, text, message):
    (tmp_path / "marin.lock").write_text(text)
    with pytest.raises(RequestError, match=message) as error:
        read_lock(tmp_path)
    assert "marin.lock" in error.value.render()


def test_locking_takes_what_is_installed_and_keeps_the_rest():
    import blake3

    lock = installed_lock(["blake3", "python"], Lock({"not-here": "1.0"}))
    assert lock.toolchain == {"blake3": blake3.__version__, "not-here": "1.0"}
    assert installed_lock([], Lock({"python": "3.12.0"})).toolchain == {"python": platform.python_version()}
    with pytest.raises(RequestError, match="`never-there`"):
        installed_lock(["never-there"], Lock())
