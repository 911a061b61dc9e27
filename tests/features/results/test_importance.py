"""Parameter importance."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.features.results.importance import (
    Influence,
    eta_squared,
    explain,
    importance,
    ranks,
    spearman,
)
from stoker.features.results.table import Row


def rows(*entries: tuple[Mapping[str, object], object]) -> list[Row]:
    return [Row(i, i, dict(params), {"loss": loss}) for i, (params, loss) in enumerate(entries)]


def test_parameter_that_orders_the_trials_comes_first() -> None:
    found = importance(
        rows(*(({"lr": i, "noise": i * 7 % 5, "same": 1}, -(i**3)) for i in range(10))), "loss"
    )
    assert [one.name for one in found] == ["lr", "noise"]
    assert found[0].score == pytest.approx(1)
    assert (found[0].direction, found[0].n) == (-1, 10)
    assert found[1].score < 0.3


def test_diverged_trials_do_not_dominate_the_score() -> None:
    losses = [1, 2, 3, 4, 5, 1e9, math.nan, math.inf]
    found = importance(rows(*(({"lr": i}, loss) for i, loss in enumerate(losses))), "loss")
    assert found[0].score == pytest.approx(1)
    assert found[0].n == 6


def test_categories_are_compared_by_their_groups() -> None:
    found = importance(
        rows(*(({"opt": "ab"[i % 2], "who": f"t{i}"}, i % 2 * 10 + i / 100) for i in range(8))),
        "loss",
    )
    assert [one.name for one in found] == ["opt"]  # `who` has a different value in each trial
    assert found[0].score == pytest.approx(1 - 5 / 21 * 7 / 6)
    assert found[0].direction == 0


def test_optimum_in_the_middle_has_a_score_without_direction() -> None:
    found = importance(rows(*(({"lr": i}, (i - 9.5) ** 2) for i in range(20))), "loss")
    assert found[0].score > 0.5
    assert found[0].direction == 0


def test_two_trials_give_no_importance() -> None:
    assert importance(rows(({"lr": 1}, 1), ({"lr": 2}, 2)), "loss") == []
    assert importance([], "loss") == []


@given(st.lists(st.tuples(st.integers(-5, 5), st.floats(allow_nan=False)), min_size=1))
def test_scores_lie_between_0_and_1(pairs: list[tuple[int, float]]) -> None:
    left, right = [a for a, _ in pairs], [b for _, b in pairs]
    assert sum(ranks(right)) == pytest.approx(len(pairs) * (len(pairs) + 1) / 2)
    assert -1 <= spearman(left, right) <= 1
    assert spearman(left, right) == spearman(right, left)
    assert 0 <= eta_squared(left, ranks(right)) <= 1


def test_rank_correlation_matches_the_textbook_value() -> None:
    iq = [106, 86, 100, 101, 99, 103, 97, 113, 112, 110]
    hours = [7, 0, 27, 50, 28, 29, 20, 12, 6, 17]
    assert spearman(iq, hours) == pytest.approx(-29 / 165)


def test_sentence_names_the_strongest_parameter_its_method_and_its_limits() -> None:
    trend = rows(*(({"lr": i, "noise": i * 7 % 5}, -(i**3)) for i in range(40)))
    text = explain(importance(trend, "loss"), "loss")
    assert text.startswith("lr explains most of the ranking by loss (1.00 of 1), from 40 trials;")
    assert "method: squared rank correlation" in text
    assert "combined effects do not count" in text
    assert "few" not in text


def test_sentence_says_when_trials_are_few_or_no_parameter_matters() -> None:
    few = rows(*(({"opt": "ab"[i % 2]}, i % 2) for i in range(4)))
    text = explain(importance(few, "loss"), "loss")
    assert "from 4 trials, which are few; method: ranks compared between its values" in text
    weak = [Influence("lr", 0.04, 0, 30, "m"), Influence("wd", 0.01, 0, 30, "m")]
    start = "no parameter explains much of the ranking by loss; the most is lr (0.04 of 1)"
    assert explain(weak, "loss").startswith(start)
    assert explain([], "loss") == ""


@pytest.mark.parametrize("values", [5, 200])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.6, 0.9])
def test_score_is_the_share_of_the_variance_that_a_parameter_explains(
    values: int, share: float
) -> None:
    """The best value is in the middle, so that there is no trend. Means of 20 sweeps."""
    rng = random.Random(1)
    places = [place / (values - 1) for place in range(values)]
    effect = [(place - 0.5) ** 2 for place in places]
    spread = statistics.pstdev(effect)
    scores = []
    for _ in range(20):
        chosen = [rng.randrange(values) for _ in range(100)]
        found = importance(
            rows(*(({"lr": places[one]}, math.sqrt(share) * effect[one] / spread
                    + math.sqrt(1 - share) * rng.gauss(0, 1)) for one in chosen)), "loss",
        )  # fmt: skip
        scores.append(found[0].score)
    assert statistics.mean(scores) == pytest.approx(share, abs=0.12)
