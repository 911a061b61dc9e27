"""Parameters that are read from the commands of jobs outside sweeps."""

from __future__ import annotations

import pytest

from stoker.text.commands.command_params import command_params


@pytest.mark.parametrize(
    ("command", "params"),
    [
        ("python train.py --lr 0.1 --seed=3", {"lr": 0.1, "seed": 3}),
        ("python train.py --amp --offset -2 --name -x", {"amp": True, "offset": -2, "name": True}),
        ("python -m train model.lr=1e-3 +opt=adam", {"model.lr": 0.001, "opt": "adam"}),
        ("A=1 python train.py --text 'two words'", {"text": "two words"}),
        ("cd data && python t.py --lr 1 | tee log --x 2", {"x": 2}),
        ("cd data && python t.py --lr 1", {"lr": 1}),
        ("python train.py --lr 0.1 'open", {}),
        ("./run", {}),
    ],
)
def test_parameters_of_a_command(command: str, params: dict[str, object]) -> None:
    assert command_params((command,), True) == params


def test_words_of_a_command_without_shell_are_not_split() -> None:
    argv = ("python", "t.py", "--note", "a; b --lr 3", "--lr=0.5")
    assert command_params(argv, False) == {"note": "a; b --lr 3", "lr": 0.5}
