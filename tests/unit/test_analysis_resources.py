from __future__ import annotations

import pytest

from marin_cas.action import Resources
from marin_cas.analysis.resources import parse_resources, parse_size
from marin_cas.errors import Location, RequestError

HERE = Location("exp/BUILD.marin", 3)


@pytest.mark.parametrize(
    ("text", "size"), [("4g", 4 << 30), ("1.5 GiB", 3 << 29), ("10", 10), (7, 7), ("2T", 2 << 40), ("3kb", 3 << 10)]
)
def test_sizes(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "g", "-1g", "4 gallons", True, 1.5, None, -1])
def test_what_is_not_a_size(text):
    with pytest.raises(ValueError, match="is not a size"):
        parse_size(text)


def test_fields():
    stated = {"device": "tpu", "variant": "v4-128", "slice_count": 4, "cpu": 120, "ram": "200g", "regions": ["us"]}
    assert parse_resources(stated, HERE) == Resources(
        cpu=120.0, ram=200 << 30, device="tpu", variant="v4-128", slice_count=4, regions=("us",)
    )
    assert parse_resources(None, HERE) == Resources()


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        ({"rma": "4g"}, "`resources` has no field `rma`"),
        ({"cpu": 0}, "above 0"),
        ({"cpu": True}, "above 0"),
        ({"cpu": None}, "above 0"),
        ({"device": "npu"}, "none of cpu, tpu, gpu"),
        ({"count": -1}, "not a count"),
        ({"preemptible": 1}, "not True or False"),
        ({"regions": "us"}, "list of region names"),
        ({"variant": 4}, "not text"),
    ],
)
def test_wrong_fields_are_located(stated, message):
    with pytest.raises(RequestError, match=message) as error:
        parse_resources(stated, HERE)
    assert error.value.render().startswith("error: exp/BUILD.marin:3: ")
