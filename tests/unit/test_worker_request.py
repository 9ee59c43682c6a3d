"""A request and a tool's parameters survive JSON exactly: a worker elsewhere must see the very same values."""

from __future__ import annotations

import json
from dataclasses import fields

from hypothesis import given
from hypothesis import strategies as st

from marin_cas.action import Action, OutputSpec, Resources, Source
from marin_cas.digest import Digest
from marin_cas.errors import Location
from marin_cas.label import Label
from marin_cas.worker import plain
from marin_cas.worker.job import Job
from marin_cas.worker.request import Request

KEYS = st.text("$byteskey", max_size=7)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
    | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


def same(left, right) -> bool:
    return type(left) is type(right) and repr(left) == repr(right)


@given(VALUES)
def test_values_go_through_json(value):
    assert same(plain.from_json(json.loads(json.dumps(plain.to_json(value)))), value)


DIGEST = Digest.of(b"x")
FULL = Request(
    key=DIGEST,
    label="//exp:x",
    fence="00ff",
    fingerprint=b"\0" * 32,
    record=b"marin",
    outcome="sampled",
    artifact="a@1",
    reporting=("log",),
    settings={"a": 1.0, "b": [b"x"]},
    resources=Resources(cpu=2, ram=5, device="gpu", variant="H100", regions=("eu",)),
    secrets=("TOKEN",),
    pass_env=("P",),
    machine_env={"A": "b"},
    writable=("/w",),
    heavy=True,
    code=DIGEST,
    producer_keys=(b"\1" * 32,),
    keep_work=True,
    fresh=True,
    timeout=1.5,
)


def test_a_request_goes_through_json():
    for request in (FULL, Request(DIGEST, "//exp:x", "f")):
        assert Request.from_json(json.loads(json.dumps(request.to_json()))) == request
    defaults = Request(DIGEST, "//exp:x", "f")
    unset = [f.name for f in fields(Request) if getattr(FULL, f.name) == getattr(defaults, f.name)]
    assert unset == ["key", "label"], "every field of FULL must differ from its default, or the test proves nothing"


def test_a_job_goes_through_its_file(tmp_path):
    job = Job(
        "tool", 3, {"code": b"\1", "x": 1.0}, {"y": 1}, ("a",), {"o": "tree"}, 2, True, ("/w",), False, "/r", {"z": 1}
    )
    job.write(tmp_path)
    assert Job.read(tmp_path) == job


def test_the_request_of_an_action():
    action = Action(
        id="//exp:x",
        label=Label("exp", "x"),
        rule="py_action",
        location=Location("exp/BUILD.marin", 1),
        tool="function",
        revision=1,
        params={},
        inputs={},
        outputs={"files": OutputSpec("tree"), "log": OutputSpec("file", reporting=True)},
        fingerprint=b"f",
        settings={"s": 1},
        secrets=("T",),
        heavy=True,
        code=Source("tree", DIGEST, ("exp/f.py",), ("exp/f.py",)),
        artifact="exp/x@dev",
    )
    request = Request.of(action, DIGEST, "fence", keep_work=True)
    assert (request.label, request.reporting, request.code) == ("//exp:x", ("log",), DIGEST)
    assert (request.secrets, request.heavy, request.keep_work, request.fence) == (("T",), True, True, "fence")
    assert request.settings == {"s": 1} and request.artifact == "exp/x@dev"
