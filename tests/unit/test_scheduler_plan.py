"""What a plan says of each action, hollow results included, and what a build then does about them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))

from scheduler_fakes import Declared, World, label_of, names

from marin_cas.digest import Digest
from marin_cas.reasons import Code
from marin_cas.recipe import Input, Pending, Recipe
from marin_cas.recipe_diff import diff


def chain(*, lr: float = 0.1, doc: str = "one") -> Declared:
    declared = Declared()
    declared.add("raw", doc=doc)
    declared.add("tok", ["raw"])
    declared.add("train", ["tok"], outputs=("native", "hf", "metrics"), optimizer={"type": "adam", "lr": lr})
    declared.add("eval", ["train.hf"])
    return declared


def shown(plan):
    return [(d.status, d.action.label.name, d.reason.text()) for d in plan.decisions.values()]


class TestGoldens:
    def test_first_build(self):
        assert shown(World().plan(chain(), "eval")) == [
            ("miss", "raw", "never built"),
            ("miss", "tok", "never built"),
            ("miss", "train", "never built"),
            ("miss", "eval", "never built"),
        ]

    def test_nothing_changed(self):
        world = World()
        world.build(chain(), "eval")
        assert shown(world.plan(chain(), "eval")) == [("hit", "eval", "already built from these declarations")]

    def test_the_first_differing_value_is_named(self):
        world = World()
        world.build(chain(), "eval")
        assert shown(world.plan(chain(lr=0.2), "eval")) == [
            ("hit", "tok", "already built from these declarations"),
            ("miss", "train", "changed: params.optimizer.lr: 0.1 -> 0.2"),
            ("miss", "eval", "waits for `//x:train`"),
        ]
        world.build(chain(lr=0.2), "eval")
        assert names(world.ran) == ["train", "eval"]

    def test_a_changed_input_is_named_once_it_is_known(self):
        world = World()
        world.build(chain(), "eval")
        report = world.build(chain(doc="two"), "eval")
        change = report.outcomes["//x:tok"].reason.changes[0]
        assert change.path == "inputs.in0"
        assert change.before.startswith("file ")
        assert change.before != change.after

    def test_json_has_the_first_digits_of_the_fingerprint_while_there_is_no_key(self):
        decision = World().plan(chain(), "eval").decisions["//x:eval"]
        assert decision.key is None
        assert decision.name == decision.action.fingerprint.hex()[:12]
        data = decision.to_json()
        assert data["key"] is None
        assert data["reason"]["code"] == "miss_new"
        known = World().plan(chain(), "eval").decisions["//x:raw"]
        assert known.name == known.key.short

    def test_tainted(self):
        world = World()
        world.build(chain(), "eval")
        key = world.key("raw")
        world.tainted[key] = "a disk lied"
        world.changed.add(key.hash)
        assert shown(world.plan(chain(), "eval")) == [
            ("miss", "raw", "its result is tainted: a disk lied"),
            ("miss", "tok", "made from `//x:raw`, which is tainted: a disk lied"),
            ("miss", "train", "made from `//x:raw`, which is tainted: a disk lied"),
            ("miss", "eval", "made from `//x:raw`, which is tainted: a disk lied"),
        ]
        report = world.build(chain(), "eval")
        assert names(world.ran) == ["raw"], "it came out as before"
        assert report.exit_code == 0

    def test_a_target_without_default_outputs_wants_all_of_its_actions(self):
        declared = chain()
        target = declared.targets[label_of("tok")]
        declared.targets[label_of("tok")] = type(target)(target.target, {}, target.actions, {})
        assert list(World().plan(declared, "tok").decisions) == ["//x:raw", "//x:tok"]

    def test_bytes_of_all_or_none(self):
        world = World()
        world.build(chain(), "eval")
        world.drop("raw", "eval")
        assert [d.status for d in world.plan(chain(), "eval", bytes="none").decisions.values()] == ["hit"]
        by_name = {d.action.label.name: d for d in world.plan(chain(), "eval", bytes="all").decisions.values()}
        assert {name: d.reason.code for name, d in by_name.items()} == {
            "raw": Code.MISS_HOLLOW,
            "tok": Code.HIT_FINGERPRINT,
            "train": Code.HIT_FINGERPRINT,
            "eval": Code.MISS_HOLLOW,
        }


class TestHollow:
    def test_below_a_hit_it_is_nobodys_business(self):
        world = World()
        world.build(chain(), "eval")
        world.drop("raw", "tok", "train")
        assert shown(world.plan(chain(), "eval")) == [("hit", "eval", "already built from these declarations")]
        world.build(chain(), "eval")
        assert world.ran == []

    def test_only_what_is_needed_comes_back(self):
        world = World()
        world.build(chain(), "eval")
        world.drop("tok", "train", "eval")
        assert [(s, n) for s, n, _ in shown(world.plan(chain(), "eval"))] == [
            ("hit", "raw"),
            ("miss", "tok"),
            ("miss", "train"),
            ("miss", "eval"),
        ]
        report = world.build(chain(), "eval")
        assert names(world.ran) == ["tok", "train", "eval"]
        assert report.exit_code == 0
        assert report.outcomes["//x:tok"].reason.code is Code.MISS_HOLLOW
        assert world.attempts == []

    def test_an_output_that_nobody_reads_may_be_gone(self):
        world = World()
        world.build(chain(), "eval")
        world.drop("eval")
        native = world.results[world.key("train")].outputs["native"]
        world.blobs.discard(native.digest)
        world.build(chain(), "eval")
        assert names(world.ran) == ["eval"]

    def test_a_digest_is_enough_for_a_consumer_that_hits_by_key(self):
        world = World()
        world.content["//x:raw"] = lambda task: b"same"
        world.build(chain(), "eval")
        world.drop("tok")
        world.build(chain(doc="two"), "eval")
        assert names(world.ran) == ["raw"]

    def test_bytes_that_turn_out_to_be_needed_in_the_middle_of_a_build(self):
        """`join` waits for `a`; only when its key misses are the bytes of `b` needed."""

        def declared(doc):
            made = Declared()
            made.add("a", doc=doc)
            made.add("b")
            made.add("join", ["a", "b"])
            return made

        world = World()
        world.build(declared("one"), "join")
        world.drop("b")
        planned = world.plan(declared("two"), "join").decisions
        assert planned["//x:b"].reason.code is Code.MISS_HOLLOW, "the plan shows the likely price"
        world.build(declared("two"), "join")
        assert sorted(names(world.ran)) == ["a", "b", "join"]
        assert world.ran[-1] == "//x:join"

    def test_blobs_that_vanish_between_the_look_and_the_run(self):
        world, declared = World(), chain()
        world.build(declared, "tok")
        vanish = [True]

        def run(task, control):
            if task.action.id == "//x:train" and vanish:
                vanish.clear()
                world.drop("tok")

        world.before_run = run
        report = world.build(declared, "train")
        assert report.exit_code == 0
        assert names(world.ran) == ["train", "tok", "train"]

    def test_blobs_that_vanish_for_ever_end_the_build(self):
        world, declared = World(), chain()
        world.build(declared, "tok")
        world.before_run = lambda task, control: world.drop("tok") if task.action.id == "//x:train" else None
        report = world.build(declared, "train")
        assert report.exit_code != 0
        assert report.failures

    @given(st.sets(st.sampled_from(["raw", "tok", "train", "eval"])))
    def test_whatever_is_gone_the_build_ends_well(self, gone):
        world = World()
        world.build(chain(), "eval")
        world.drop(*gone)
        report = world.build(chain(), "eval")
        assert report.exit_code == 0
        assert world.missing(world.results[world.key("eval")], ["data"]) is None


class TestHollowThatDiffers:
    """`tok` does not reproduce, and its bytes are gone; `train` was made from the old ones."""

    @pytest.fixture
    def world(self):
        world = World()
        self.runs = []
        world.content["//x:tok"] = lambda task: self.runs.append(1) or bytes(len(self.runs))
        world.build(chain(), "eval")
        self.old = world.results[world.key("tok")]
        world.drop("tok")
        return world

    def test_the_build_stops_and_names_the_consumers(self, world):
        report = world.build(chain(), "tok", "eval")
        assert report.exit_code == 1
        assert names(world.ran) == ["tok"]
        text = report.failures[0].error.render()
        assert "`//x:train`" in text
        assert "`//x:eval`" in text
        assert "--accept-new" in text
        assert "--keep-old" in text
        assert "`out/data`" in text
        assert world.results[world.key("tok")] == self.old
        assert len(world.attempts) == 1

    def test_consumers_outside_of_the_request_are_found_in_the_labels_histories(self, world):
        only = Declared()
        only.add("raw", doc="one")
        only.add("tok", ["raw"])
        report = world.build(only, "tok")
        assert "`//x:train`" in report.failures[0].error.render()

    def test_accept_new_takes_the_new_bytes_and_builds_the_consumers_again(self, world):
        report = world.build(chain(), "tok", "eval", accept_new=True)
        assert report.exit_code == 0
        assert names(world.ran) == ["tok", "train", "eval"]
        assert world.results[world.key("tok")] != self.old
        assert report.counts["executed"] == 3
        world.build(chain(), "tok", "eval")
        assert world.ran == []

    def test_keep_old_goes_on_with_what_does_not_need_the_bytes(self, world):
        declared = chain()
        declared.add("other")
        report = world.build(declared, "tok", "eval", "other", keep_old=True, jobs=1)
        assert report.exit_code == 1
        assert sorted(names(world.ran)) == ["other", "tok"]
        assert report.outcomes["//x:eval"].source == "local"
        assert "--keep-old" in report.failures[0].error.render()
        assert world.results[world.key("tok")] == self.old

    def test_a_training_is_not_run_again_unasked(self, world):
        world.build(chain(), "eval")
        assert world.ran == []

    def test_a_consumer_that_needs_the_bytes_is_skipped(self, world):
        world.drop("train", "eval")
        report = world.build(chain(), "eval", keep_old=True)
        assert names(world.ran) == ["tok"]
        assert report.exit_code == 1
        assert report.outcomes["//x:train"].reason.code is Code.SKIPPED


class TestDiff:
    def test_nested_values_have_their_path(self):
        before = Recipe("train", 1, {"optimizer": {"lr": 0.1, "betas": [0.9, 0.99]}, "steps": 5})
        after = Recipe("train", 2, {"optimizer": {"lr": 0.2, "betas": [0.9, 0.95, 1.0]}, "warm": None})
        assert [str(change) for change in diff(before, after)] == [
            "revision: 1 -> 2",
            "params.optimizer.betas[1]: 0.99 -> 0.95",
            "params.optimizer.betas[2]: (absent) -> 1.0",
            "params.optimizer.lr: 0.1 -> 0.2",
            "params.steps: 5 -> (absent)",
            "params.warm: (absent) -> null",
        ]

    def test_types_are_values_too(self):
        before, after = Recipe("t", 1, {"a": 1, "b": 1, "c": "1"}), Recipe("t", 1, {"a": 1.0, "b": True, "c": 1})
        assert [str(c) for c in diff(before, after)] == [
            "params.a: 1 -> 1.0",
            "params.b: 1 -> true",
            'params.c: "1" -> 1',
        ]

    def test_inputs_by_their_first_digits_and_unbuilt_ones_not_at_all(self):
        one, two = Digest.of(b"1"), Digest.of(b"2")
        before = Recipe("t", 1, inputs={"a": Input("file", one), "b": Input("file", one)})
        after = Recipe("t", 1, inputs={"a": Input("tree", two), "b": Pending("file", bytes(32), "x")})
        assert [str(c) for c in diff(before, after)] == [f"inputs.a: file {one.short} -> tree {two.short}"]

    def test_the_version_and_the_toolchain(self):
        before = Recipe("t", 1, toolchain={"jax": "0.9.2"}, version="1")
        after = Recipe("t", 1, toolchain={"jax": "0.9.3"})
        assert [str(c) for c in diff(before, after)] == [
            'version: "1" -> (absent)',
            'toolchain.jax: "0.9.2" -> "0.9.3"',
        ]

    VALUES = st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=8,
    )

    @given(st.dictionaries(st.text(), VALUES, max_size=4), st.dictionaries(st.text(), VALUES, max_size=4))
    def test_it_is_empty_exactly_for_equal_keys(self, left, right):
        before, after = Recipe("t", 1, left), Recipe("t", 1, right)
        assert (not diff(before, after)) == (before.key() == after.key())
        assert diff(before, before) == ()
