"""Which node an allocation of a Ray backend gets, and what it waits for."""

from __future__ import annotations

from stoker.features.backends.ray.placement import Place, choose, reserve_for, waiting_words


def _names(found: list[Place] | None) -> list[str]:
    return [one.node for one in found or []]


def test_held_gpus_are_used_before_others_are_requested() -> None:
    fresh = Place("a", gpus=4, in_ray=4)
    held = Place("b", gpus=4, free=2, in_ray=2, has_actor=True)
    assert _names(choose([fresh, held], 2)) == ["b"]
    assert held.take(2) is True
    assert (held.free, held.wanted) == (0, 0)


def test_gpus_that_are_on_their_way_are_not_requested_again() -> None:
    place = Place("a", gpus=4, coming=2, in_ray=2, has_actor=True)
    assert place.take(2) is False
    assert place.wanted == 0
    assert place.take(2) is False
    assert place.wanted == 2
    assert choose([place], 1) is None


def test_node_with_the_least_left_over_is_chosen() -> None:
    places = [Place("a", gpus=4, in_ray=4), Place("b", gpus=4, in_ray=2)]
    assert _names(choose(places, 2)) == ["b"]
    assert _names(choose(places, 3)) == ["a"]


def test_job_on_several_nodes_gets_all_of_them_or_none() -> None:
    places = [Place("a", gpus=4, in_ray=4), Place("b", gpus=4, in_ray=2)]
    assert _names(choose(places, 2, nodes=2)) == ["b", "a"]
    assert choose(places, 3, nodes=2) is None


def test_model_is_part_of_the_name_of_the_accelerator() -> None:
    places = [
        Place("a", gpus=4, in_ray=4, model="A100"),
        Place("b", gpus=4, in_ray=4, model="H100"),
    ]
    assert _names(choose(places, 1, model="h100")) == ["b"]


def test_jobs_without_a_gpu_are_spread_by_free_cpus() -> None:
    places = [Place("a", cpus=1), Place("b", cpus=2)]
    assert _names(choose(places, 0)) == ["b"]
    for place in places:
        while place.cpus:
            place.take(0)
    assert choose(places, 0) is None


def test_reserved_node_takes_nothing_else() -> None:
    places = [Place("a", gpus=4, in_ray=3), Place("b", gpus=4, in_ray=1), Place("c", gpus=2)]
    reserve_for(places, 4, 1, None)
    assert _names(choose(places, 1)) == ["b"]
    assert choose(places, 2) is None


def test_reason_names_what_is_missing() -> None:
    assert waiting_words(1, 1, None) == "waits for a node with 1 free GPU"
    assert waiting_words(2, 3, "H100") == (
        "waits for 3 nodes with 2 free GPUs of the model H100 each"
    )
    assert waiting_words(0, 1, None) == "waits for a node with a free CPU"
