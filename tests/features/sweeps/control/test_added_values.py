"""`stoker sweep add` and `clone`: only new points run, once, also after a crash."""

from __future__ import annotations

import json
from contextlib import closing

import pytest

import stoker
from stoker.client.queue import Queue as StoredQueue
from stoker.errors import Conflict
from stoker.features.sweeps.control import lifecycle
from stoker.features.sweeps.spec.arguments import space_from
from tests.features.sweeps.control.test_repeated_sweeps import at_once
from tests.features.sweeps.control.test_sweep import rows, sweep, trials
from tests.lab import Lab
from tests.python.conftest import here as here

_HELD = ("--hold", "-n", "s", "echo {x} {y}", "x=1,2", "y=range(2)")


def added(lab: Lab, *words: str, **env: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(lab.ok("sweep", "add", "s", "--json", *words, **env))
    return found


def numbers(lab: Lab) -> dict[tuple[object, object], tuple[int, int]]:
    """Trial number and job of each point."""
    return {(row["x"], row["y"]): (row["trial"], row["job"]) for row in rows(lab, "s")}


def in_order() -> list[tuple[object, ...]]:
    """Number, values and job of each trial, by number."""
    found = stoker.Queue().find_sweep("s").results()
    return sorted((row["trial"], row["x"], row["y"], row["job"]) for row in found)


def test_only_new_combinations_run_and_trial_numbers_stay(lab: Lab) -> None:
    sweep(lab, "-n", "s", "-G", "0", "echo {x} {y}", "x=1,2", "y=range(2)")
    lab.wait()
    before = numbers(lab)
    assert added(lab, "x=3", "y=1,7")["added"] == 5
    lab.wait()
    after = numbers(lab)
    assert before.items() <= after.items()
    assert sorted(number for number, _ in after.values()) == list(range(1, 10))
    again = added(lab, "x=3", "y=1,7")
    assert (again["added"], again["jobs"], numbers(lab)) == (0, [], after)
    assert trials(lab, "s") == {"done": 9}


def test_added_trials_do_not_run_cancelled_ones_again(here: Lab) -> None:
    swept = stoker.sweep("true {x}", {"x": [1, 2]}, name="s", gpus=0, hold=True)
    with closing(StoredQueue()) as queue:
        lifecycle.stop(queue, "s")
        lifecycle.add_values(queue, "s", space_from(["x=9"]).grids[0], is_point=True)
        assert swept.counts == {"cancelled": 2, "held": 1}
        lifecycle.stop(queue, "s")
        lifecycle.resume(queue, "s")  # the added point as well
        assert swept.counts == {"held": 3}


@pytest.mark.parametrize(
    "point, words, expected",
    [
        ("sweep.before_commit:1", ("x=3",), {(3, 0), (3, 1)}),
        ("sweep.before_commit:2", ("x=3",), {(3, 0), (3, 1)}),
        ("sweep.after_commit:1", ("x=3",), {(3, 0), (3, 1)}),
        ("sweep.before_commit:2", ("--point", "x=9", "y=9"), {(9, 9)}),
    ],
)
def test_adding_is_completed_by_repeating_it_after_a_crash(
    here: Lab, point: str, words: tuple[str, ...], expected: set[tuple[int, int]]
) -> None:
    stoker.sweep("true {x} {y}", {"x": [1, 2], "y": [0, 1]}, name="s", gpus=0, hold=True)
    before = in_order()
    died = here.run("sweep", "add", "s", *words, STOKER_FAILPOINT=point)
    assert died.returncode == -9
    axes = space_from([word for word in words if "=" in word]).grids[0]
    with closing(StoredQueue()) as queue:
        lifecycle.add_values(queue, "s", axes, is_point="--point" in words)
        lifecycle.add_values(queue, "s", axes, is_point="--point" in words)
    after = in_order()
    assert after[:4] == before
    assert {(x, y) for _, x, y, _ in after[4:]} == expected
    assert len(stoker.Queue().jobs("held")) == len(after), "no trial has two jobs"


def test_values_added_at_the_same_time_are_all_there(here: Lab) -> None:
    stoker.sweep("true {x}", {"x": [0]}, name="s", gpus=0, hold=True)
    values = iter(range(1, 5))

    def add() -> None:
        axes = space_from([f"x={next(values)}"]).grids[0]
        with closing(StoredQueue()) as queue:
            lifecycle.add_values(queue, "s", axes)

    at_once(4, add)
    assert sorted(row["x"] for row in stoker.Queue().find_sweep("s").results()) == [0, 1, 2, 3, 4]


def test_extension_that_is_repeated_by_mistake_is_refused(here: Lab) -> None:
    stoker.sweep("true {x}", {"x": "interval(0,1)"}, name="s", method="random", trials=3, gpus=0,
                 hold=True)  # fmt: skip
    with closing(StoredQueue()) as queue:
        assert lifecycle.extend(queue, "s", 2, expected=3).added == 2
        with pytest.raises(Conflict, match="`s` has 5 trials, not 3"):
            lifecycle.extend(queue, "s", 2, expected=3)


def test_refusals_of_add_say_what_to_do(lab: Lab) -> None:
    sweep(lab, *_HELD)
    sweep(lab, "--hold", "-n", "r", "-N", "2", "-m", "random", "echo {x}", "x=interval(0,1)")
    for words, message in (
        (("s",), "give the values to add"),
        (("s", "x"), "`x` is not a parameter"),
        (("r", "x=1"), "cannot add values to `r`: it runs 2 sampled trials, not every point"),
    ):
        assert message in lab.run("sweep", "add", *words).stderr
    dry = lab.ok("sweep", "add", "s", "x=3", "--dry-run")
    assert dry == "echo 3 0\necho 3 1\n"
    assert trials(lab, "s") == {"held": 4}


def test_clone_has_the_options_and_environment_of_the_original(lab: Lab) -> None:
    folder = lab.folder / "elsewhere"
    folder.mkdir()
    command = 'echo "$KEY {x} $(basename $PWD)"'
    made = json.loads(
        lab.ok("sweep", "--json", "-n", "s", "-G", "0", "-T", "night", "--max-parallel", "1",
               "-t", "1h", command, "x=1,2", "y=5", "--lenient", cwd=folder, KEY="secret")
    )  # fmt: skip
    lab.wait()
    cloned = json.loads(lab.ok("sweep", "clone", "s", "--json", "x=3", "-t", "2h"))
    lab.wait()
    assert (cloned["sweep"], cloned["added"]) == ("s-2", 1)
    assert lab.log(cloned["jobs"][0]) == "secret 3 elsewhere\n"
    job = json.loads(lab.ok("show", str(cloned["jobs"][0]), "--json"))["jobs"][0]
    assert (job["tags"], job["time_limit"], job["gpus"]) == (["night"], 7200, 0)
    same = lab.run("sweep", "clone", "s", "-n", "s")
    assert "there is already a sweep `s`" in same.stderr
    assert len(made["jobs"]) == 2 and trials(lab, "s") == {"done": 2}


def test_removing_a_sweep_on_a_terminal_says_what_is_removed() -> None:
    from stoker.features.sweeps.sweep_states import removal_text

    assert "its jobs with their logs, metrics and folders stay" in removal_text(3).lower()
    assert "table of 3 trials" in removal_text(3)
    assert "all its jobs with logs and metrics" in removal_text(3, with_jobs=True)
