"""Which commands share a profile."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stoker.engine.profiles import command_profile
from stoker.engine.profiles.command_profile import MAX_KEY_CHARS, profile_key


def key(text: str) -> str:
    return profile_key((text,), shell=True)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            "python train.py --lr 0.1 --seed 3 --out runs/3",
            "python train.py --lr 1e-4 --seed 12 --out runs/12",
        ),
        ("./run 3", "./run -17"),
        ("./run .5", "./run +1.5e+10"),
        ("./run 0x1f", "./run 7"),
        ("./run 12", "./run 99.5"),
        ("./run 0017", "./run 42"),
        ("./run --seed 3", "./run --seed 12345"),
        ("./run --warmup-steps 10", "./run --warmup-steps 500"),
        ("./run --log_every_n_steps=1", "./run --log_every_n_steps=50"),
        ("./run --lr=0.1", "./run --lr=-1e-05"),
        ("./run lr=0.1,0.2", "./run lr=3,1e-4"),
        ("./run run_17", "./run run_4"),
        ("./run run-17", "./run run-4"),
        ("./run exp3", "./run exp12"),
        ("./run Trial3/seed1", "./run Trial4/seed22"),
        ("./run ckpt_000100.pt", "./run ckpt_002500.pt"),
        ("./run lr_1e-4_wd_0.1", "./run lr_0.3_wd_2"),
        ("./run lr1e-4", "./run lr0.3"),
        ("./run cuda:0", "./run cuda:3"),
        ("./run --at 2026-11-15T10:33:00", "./run --at 2025-01-02T23:00:59"),
        ("./run out/20261115T103300Z", "./run out/20250102T230059Z"),
        ("./run out/2026-11-15_10-33-00", "./run out/2025-01-02_23-00-59"),
        ("./run x/job123456", "./run x/job7"),
        ("./run --id a94a8fe5ccb19ba6", "./run --id 0dd3e512642c97ca"),
        ("./run --id 3k2j9d8s", "./run --id x7fk29qz3"),
        (
            "./run --id 550e8400-e29b-41d4-a716-446655440000",
            "./run --id 123e4567-beef-12d3-a456-426614174000",
        ),
        (
            "./run o/550e8400-e29b-41d4-a716-446655440000.pt",
            "./run o/f23e4567-beef-dead-a456-426614174000.pt",
        ),
        ("./run > log.3", "./run > log.4"),
        ("model.optimizer.lr=0.1 ./run", "model.optimizer.lr=0.2 ./run"),
        ("LR=0.1 python train.py", "LR=0.2 python train.py"),
        ("CUDA_VISIBLE_DEVICES=0 python train.py", "CUDA_VISIBLE_DEVICES=2,3 python train.py"),
        ("CUDA_VISIBLE_DEVICES=0 python train.py", "python train.py"),
        ("/usr/bin/python3.11 train.py", "python train.py"),
        (".venv/bin/python3 train.py", "python train.py"),
        ("/opt/conda/envs/a/bin/torchrun train.py", "torchrun train.py"),
        ("/bin/bash train.sh", "bash train.sh"),
        ("cd /home/me/work && python train.py", "cd work/; python train.py"),
        ("cd work ; python train.py", "cd ~/work && python train.py"),
        ("cd runs/17 && ../train.py", "cd runs/18 && ../train.py"),
        ("  ./run   a\tb ", "./run a b"),
        ("./run --name 'a b' \"c\"", "./run --name a b c"),
    ],
)
def test_commands_that_differ_in_numbers_have_one_profile(one: str, other: str) -> None:
    assert key(one) == key(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("python train.py", "python evaluate.py"),
        ("python train.py", "python train.py --amp"),
        ("./run model=resnet18", "./run model=resnet50"),
        ("./run resnet18", "./run resnet50"),
        ("./run model=resnet50", "./run model=vit_b"),
        ("./run --model vit_b_16", "./run --model vit_b_32"),
        ("./run --base-model=vit_b_16", "./run --base-model=vit_b_32"),
        (
            "./run --model_name_or_path meta-llama/Llama-3.2-1B",
            "./run --model_name_or_path meta-llama/Llama-3.1-8B",
        ),
        ("./run --data cifar10", "./run --data cifar100"),
        ("./run --dtype fp16", "./run --dtype fp32"),
        ("./run 7b", "./run 70b"),
        ("./run 224x224", "./run 512x512"),
        ("./run --l1 0.1", "./run --l2 0.1"),
        ("./run --batch-size 32", "./run --batch-size 64"),
        ("./run --batch_size=32", "./run --batch_size=64"),
        ("./run -b 32", "./run -b 64"),
        ("./run --bs 32", "./run --bs 64"),
        ("./run data.batch_size=32", "./run data.batch_size=64"),
        ("BATCH=32 ./run", "BATCH=64 ./run"),
        ("./run '{\"batch_size\": 32}'", "./run '{\"batch_size\": 64}'"),
        ("./run --hidden 128", "./run --hidden 256"),
        ("./run --width 128", "./run --width 256"),
        ("./run --dim 128", "./run --dim 256"),
        ("./run --num-layers 2", "./run --num-layers 12"),
        ("./run --n_layer=2", "./run --n_layer=12"),
        ("./run --n_embd=384", "./run --n_embd=768"),
        ("./run --d_model 512", "./run --d_model 1024"),
        ("./run --depth 2", "./run --depth 3"),
        ("./run --seq 128", "./run --seq 256"),
        ("./run --max-length 128", "./run --max-length 256"),
        ("./run --resolution 128", "./run --resolution 256"),
        ("./run --img-size 128", "./run --img-size 256"),
        ("cd a/one && python train.py", "cd a/two && python train.py"),
        ("DATA=a ./run", "DATA=b ./run"),
    ],
)
def test_commands_that_need_other_memory_have_other_profiles(one: str, other: str) -> None:
    assert key(one) != key(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("./run --epochs 5", "./run --epochs 500"),
        ("./run --epochs=5", "./run --epochs=500"),
        ("./run trainer.max_epochs=5", "./run trainer.max_epochs=500"),
        ("./run --max_steps 100", "./run --max_steps 200"),
        ("./run --max-train-steps 100", "./run --max-train-steps 200"),
        ("./run --num_samples 1e3", "./run --num_samples 1e6"),
        ("./run --n-trials 10", "./run --n-trials 20"),
        ("./run --limit 10", "./run --limit 20"),
        ("./run --total-timesteps 1000", "./run --total-timesteps 9000"),
        ("./run -n 10", "./run -n 20"),
        ("EPOCHS=5 ./run", "EPOCHS=500 ./run"),
        ("sleep 1", "sleep 90"),
        ("bash t.sh 90", "bash t.sh 300"),
        ("sleep 9.5", "sleep 10.5"),
    ],
)
def test_commands_with_another_amount_of_work_have_other_profiles(one: str, other: str) -> None:
    assert key(one) != key(other)


def test_only_the_values_of_sizes_are_kept() -> None:
    shown = key("./run --batch-size 64 3 --no-size --seed 4 --model.lr=5")
    assert shown == "./run --batch-size 64 # --no-size --seed # --model.lr=#"


def test_words_and_the_same_shell_command_have_one_profile() -> None:
    words = ("python3", "train.py", "--lr", "0.1", "--name", "a b", "--seed=3")
    assert profile_key(words, shell=False) == key("python train.py --lr 3 --name 'a b' --seed=1")


def test_documented_limits_of_profiles_hold() -> None:
    assert key("./run vit_b_16") == key("./run vit_b_32")
    assert key("bash t.sh 10") == key("bash t.sh 99")


def test_long_commands_have_short_keys_that_differ() -> None:
    names = [f"file-{'abc'[index % 3]}{'xyz'[index % 7 % 3]}" for index in range(100)]
    one, other = key("cat " + " ".join(names)), key("cat " + " ".join([*names[:-1], "other"]))
    assert len(one) == len(other) == MAX_KEY_CHARS
    assert one != other and one[:100] == other[:100]


def test_text_after_the_first_kilobytes_does_not_count() -> None:
    many = tuple(["cat", *["file"] * 5000])
    assert profile_key((*many, "a"), shell=False) == profile_key((*many, "b"), shell=False)


def test_empty_command_has_a_profile() -> None:
    assert profile_key((), shell=False) == profile_key(("",), shell=True) == ""


WORDS = st.one_of(
    st.text(st.sampled_from("abefrunxzTE0123456789._-=/:,+#{}'\" ;&")),
    st.sampled_from(["cd", "&&", ";", "--size", "batch=", "0x", "python3.1", "run", "1e-4", "-"]),
    st.text(),
)
ARGV = st.lists(WORDS, max_size=8).map(tuple)


@given(ARGV, st.booleans())
@example(("cd ;",), True)
@example(("cd",), True)
@example(("cd && && x",), True)
@example(("cd / && x",), True)
@example(("\udcff \ud800 3²",), True)
@example(("=", "=3", "-", "--", "0x", "1e-"), False)
def test_every_command_has_a_short_key_that_is_text(argv: tuple[str, ...], shell: bool) -> None:
    found = profile_key(argv, shell)
    assert len(found) <= MAX_KEY_CHARS
    found.encode()
    assert profile_key(argv, shell) == found


@given(ARGV)
@example(("z12345abcde67", "12345run6", "1.2.3", "x1.2#.#", "550e8400-e29b.1", "1e-4e-4"))
def test_key_of_a_key_is_itself(argv: tuple[str, ...]) -> None:
    found = profile_key(argv, shell=True)
    if len(found) < MAX_KEY_CHARS:
        assert profile_key((found,), shell=True) == found


NUMBERS = st.one_of(
    st.integers(-(10**9), 10**9).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
)


@given(st.lists(NUMBERS, min_size=4, max_size=4))
def test_numbers_can_be_exchanged(numbers: list[str]) -> None:
    template = "python train.py --lr {} seed={} --clip={} -x {}"
    other = sorted(numbers)
    assert key(template.format(*numbers)) == key(template.format(*other))
    assert key(template.format(*numbers)) == "python train.py --lr # seed=# --clip=# -x #"


@given(st.integers(0, 10**9), st.integers(0, 10**9))
def test_counted_names_have_one_profile(one: int, other: int) -> None:
    template = "./run exp{0} runs/run_{0}/ckpt-{0:06}.pt fold{0}"
    assert key(template.format(one)) == key(template.format(other))


@given(st.lists(st.sampled_from("abcdefghij"), min_size=1), st.lists(st.integers(0, 9)))
def test_words_without_numbers_are_kept(letters: list[str], numbers: list[int]) -> None:
    word = "".join(letters)
    assert key(f"./{word} --{word} {' '.join(map(str, numbers))}").startswith(f"./{word} --{word}")


@given(ARGV, ARGV, st.booleans(), st.randoms(use_true_random=False))
def test_key_does_not_depend_on_commands_before_it(
    before: tuple[str, ...], argv: tuple[str, ...], shell: bool, random: Random
) -> None:
    def with_other_digits(words: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(
            "".join(random.choice("123456789") if c in "123456789" else c for c in word)
            for word in words
        )

    for command in (argv, with_other_digits(argv)):
        for cache in (command_profile._keys, command_profile._kept, command_profile._known):
            cache.clear()
        expected = profile_key(command, shell)
        for earlier in (before, argv, with_other_digits(argv), with_other_digits(command)):
            profile_key(earlier, shell)
        assert profile_key(command, shell) == expected
