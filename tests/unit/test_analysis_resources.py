from __future__ import annotations

import pytest

from marin_cas.action import Resources
from marin_cas.analysis.devices import TPUS
from marin_cas.analysis.resources import chips, described, hosts, parse_resources, parse_size
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


def test_the_table_of_tpus():
    assert len(TPUS) == 39
    shapes = {name: (tpu.chips, tpu.hosts, tpu.host.hbm_gib) for name, tpu in TPUS.items()}
    assert {name: shapes[name] for name in ("v4-8", "v4-128", "v4-4096")} == {
        "v4-8": (4, 1, 32),
        "v4-128": (64, 16, 32),
        "v4-4096": (2048, 512, 32),
    }
    assert shapes["v5p-12288"] == (6144, 1536, 95)
    small = ["v5litepod-1", "v5litepod-8", "v5litepod-16", "v5litepod-256"]
    assert [shapes[name] for name in small] == [(1, 1, 16), (8, 1, 16), (16, 4, 16), (256, 64, 16)]
    assert [shapes[name] for name in ("v6e-8", "v6e-16")] == [(8, 1, 32), (16, 4, 32)]
    assert all(tpu.chips == 4 * tpu.hosts for tpu in TPUS.values() if tpu.hosts > 1)


def test_a_tpu_takes_half_of_each_host_and_counts_all_slices():
    held = parse_resources({"device": "tpu", "variant": "v4-128", "slice_count": 4, "cpu": None, "ram": None}, HERE)
    assert (held.cpu, held.ram) == (120.0, 200 << 30)
    assert (hosts(held), chips(held)) == (64, 256)
    some = parse_resources({"device": "tpu", "variant": "v6e-8", "cpu": 3, "ram": "1g"}, HERE)
    assert (some.cpu, some.ram, hosts(some), chips(some)) == (3.0, 1 << 30, 1, 8)
    gpu = parse_resources({"device": "gpu", "variant": "H100", "count": 8}, HERE)
    assert described(gpu)["chips"] == 8 and described(gpu)["hosts"] == 1
    assert chips(Resources()) == 0


def test_types_that_can_stand_for_each_other():
    stated = {"device": "tpu", "variant": "v4-128", "alternatives": ["v5p-128"]}
    assert parse_resources(stated, HERE).alternatives == ("v5p-128",)
    with pytest.raises(RequestError, match="one cannot stand for the other"):
        parse_resources({**stated, "alternatives": ["v6e-128"]}, HERE)


@pytest.mark.parametrize(
    ("device", "variant", "message", "hint"),
    [
        ("tpu", "v4-127", "there is no TPU `v4-127`", "v4 has v4-8, v4-16"),
        ("tpu", "v9-8", "there is no TPU `v9-8`", "did you mean"),
        ("tpu", "v5e-16", "there is no TPU `v5e-16`", "did you mean `v5litepod-16`?"),
        ("tpu", "H100", "there is no TPU `H100`", "there are v4-N, v5litepod-N, v5p-N, v6e-N"),
        ("gpu", "h100", "there is no GPU `h100`", "did you mean `H100`?"),
        ("gpu", "A100", "there is no GPU `A100`", "did you mean `A100-40G` or `A100-80G`?"),
        ("gpu", "", "there is no GPU ``", "there are A10, A100-40G"),
    ],
)
def test_accelerators_that_do_not_exist(device, variant, message, hint):
    with pytest.raises(RequestError) as error:
        parse_resources({"device": device, "variant": variant}, HERE)
    assert message in error.value.message
    assert error.value.hint and hint in error.value.hint


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        ({"rma": "4g"}, "`resources` has no field `rma`"),
        ({"cpu": 0}, "above 0"),
        ({"cpu": True}, "above 0"),
        ({"cpu": None}, "above 0"),
        ({"device": "npu"}, "none of cpu, tpu, gpu"),
        ({"count": -1}, "not a count"),
        ({"slice_count": 0}, "not a count"),
        ({"device": "tpu", "variant": None}, "`None` is not text"),
        ({"preemptible": 1}, "not True or False"),
        ({"regions": "us"}, "list of region names"),
        ({"variant": 4}, "not text"),
    ],
)
def test_wrong_fields_are_located(stated, message):
    with pytest.raises(RequestError, match=message) as error:
        parse_resources(stated, HERE)
    assert error.value.render().startswith("error: exp/BUILD.marin:3: ")
