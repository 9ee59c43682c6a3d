"""What targets ask for is shown by `aquery` and `build -n`; what does not exist is refused where it is written."""

from __future__ import annotations

import pytest

from tests.cli.conftest import DATA, Mini

LOAD = 'load("@marin//rules:resources.bzl", "cpu", "gpu", "tpu")\n'


def asking(mini: Mini, resources: str) -> Mini:
    mini.write(
        {
            "f.py": "def f(ctx):\n    (ctx.output_path / 'a').write_text('a')\n",
            "BUILD.marin": DATA
            + LOAD
            + f'raw_download(\n    name = "x",\n    function = "f.py:f",\n    resources = {resources},\n)\n',
        }
    )
    return mini


@pytest.mark.parametrize(
    ("resources", "shown", "fields"),
    [
        (
            'tpu("v4-128", slice_count = 4)',
            "tpu v4-128 x4: 64 hosts, 256 chips",
            {"device": "tpu", "variant": "v4-128", "slice_count": 4, "hosts": 64, "chips": 256, "ram": 200 << 30},
        ),
        ('tpu(["v4-8", "v5p-8"])', "tpu v4-8 or v5p-8: 1 host, 4 chips", {"alternatives": ["v5p-8"], "cpu": 120.0}),
        ('gpu("H100", count = 8)', "gpu H100 x8", {"device": "gpu", "count": 8, "hosts": 1, "chips": 8}),
        ('cpu(cpu = 2, ram = "3g")', "2 cpu, 3.0 GiB", {"device": "cpu", "cpu": 2.0, "hosts": 1, "chips": 0}),
    ],
)
def test_what_a_target_asks_for_is_shown(mini: Mini, resources: str, shown: str, fields: dict[str, object]) -> None:
    asking(mini, resources)
    assert f"  resources    {shown}\n" in mini.ok("aquery", "//:x").out
    assert shown in mini.ok("build", "-n", "//:x").out
    [record] = mini.ok("aquery", "//:x", "--output", "json").json
    [planned] = mini.ok("build", "-n", "//:x", "--output", "json").json
    for told in (record["execution"]["resources"], planned["resources"]):
        assert told.items() >= fields.items()


def test_a_device_that_this_machine_has_not_is_refused_when_it_is_built(mini: Mini) -> None:
    ran = asking(mini, 'tpu("v4-8")').run("build", "//:x", code=3)
    assert '`tpu("v4-8")` is asked for' in ran.err


@pytest.mark.parametrize(
    ("resources", "texts"),
    [
        ('tpu("v5litpod-16")', ["there is no TPU `v5litpod-16`", "did you mean `v5litepod-16`?"]),
        ('gpu("H10")', ["there is no GPU `H10`", "did you mean `H100`?"]),
        ('{"device": "cpu", "rma": "4g"}', ["no field `rma`", "did you mean `ram`?"]),
        ('tpu("v4-8", slice_count = 0)', ["`slice_count` is 0"]),
    ],
)
def test_what_does_not_exist_is_refused_where_it_is_written(mini: Mini, resources: str, texts: list[str]) -> None:
    ran = asking(mini, resources).run("build", "-n", "//:x", code=2)
    assert "BUILD.marin:" in ran.err
    for text in texts:
        assert text in ran.err
