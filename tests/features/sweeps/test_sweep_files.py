from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.errors import NotFound, UsageError
from stoker.features.sweeps.files import gpu_task_scheduler_file, sweep_file, wandb_file
from stoker.features.sweeps.spec import spec
from stoker.features.sweeps.spec.domains import Choices, Continuous, Whole
from stoker.features.sweeps.spec.methods import points
from stoker.features.sweeps.spec.search_space import axis, make_space
from stoker.features.sweeps.spec.spec import METHODS, Metric, SweepSpec, make_spec
from stoker.features.sweeps.template.template import argv, shell
from tests.features.sweeps.test_values_and_domains import ANY_DOMAIN, JSON

pytest.importorskip("yaml")

OURS = """
command = "python train.py --lr {lr} --opt {opt} --wd {wd} --seed {seed}"
method  = "tpe"
trials  = 40
seed = 7
name = "lr-search"
max_parallel = 4
max_fails = 3
metric  = { name = "val_loss", goal = "min" }
[resources]
gpus = 1
gpu_mem = "20G"
env = { A = "b" }
[params]
lr  = "log(1e-5, 1e-1)"
opt = ["sgd", "adam"]
wd  = { values = [0, 1e-4], when = "opt == 'adam'" }
[constants]
seed = 1
[[include]]
opt = ["lion"]
lr  = [1e-4]
[stop]
kind = "median"
after_step = 5
"""


def load(tmp_path: Path, text: str, name: str = "sweep.toml") -> SweepSpec:
    (tmp_path / name).write_text(text)
    return sweep_file.load(tmp_path / name)


def grid(found: SweepSpec) -> list[dict[str, object]]:
    return [{name: value.data for name, value in point.items()} for point in points(found)]


def test_toml_file_is_read_completely(tmp_path: Path) -> None:
    made = load(tmp_path, OURS)
    assert (made.method, made.trials, made.seed, made.name) == ("tpe", 40, 7, "lr-search")
    assert made.metric == Metric("val_loss", "min") and made.max_parallel == 4
    assert made.early_stop == {"kind": "median", "after_step": 5} and made.max_fails == 3
    assert made.resources == {"gpus": 1, "gpu_mem": "20G", "env": {"A": "b"}}
    assert made.space.names == ("seed", "lr", "opt", "wd") and len(made.space.grids) == 2
    assert made.space.grids[0][0].domains[0] == Continuous("log", 1e-5, 0.1)
    found = grid(made._replace(method="random", trials=None, seed=1)._replace(trials=60))
    assert {"seed": 1, "opt": "lion", "lr": 1e-4} in found


def test_toml_json_and_yaml_files_give_the_same_sweep(tmp_path: Path) -> None:
    import tomllib

    made = load(tmp_path, OURS)
    text = json.dumps(tomllib.loads(OURS))
    assert load(tmp_path, text, "sweep.json") == made
    assert load(tmp_path, text, "sweep.yaml") == made


def test_every_form_of_a_parameter_in_a_toml_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "seeds").write_text("1\n2\n")
    made = load(
        tmp_path,
        """
        command = ["python", "t.py", "{params}"]
        zip = [["a", "b"]]
        [params]
        a = [1, 2]
        one = "hello, world"
        b = ["x", "y"]
        s = "file(seeds)"
        i = { min = 1, max = 2 }
        l = { value = [1, 2] }
        d = { domain = "choice(p,q)" }
        q = { min = 0, max = 1, step = 0.5 }
        """,
    )
    assert not made.template.shell and made.space.grids[0][0].names == ("a", "b")
    found = grid(made)
    assert len(found) == 2 * 2 * 2 * 2 * 3
    assert found[0] == {
        "a": 1, "b": "x", "one": "hello, world", "s": 1, "i": 1, "l": [1, 2], "d": "p", "q": 0.0,
    }  # fmt: skip
    zipped = load(tmp_path, "command='t {params}'\n[[zip]]\na=[1,2]\nb=[3,4]\n[params]\nc=[5,6]")
    assert grid(zipped)[:2] == [{"c": 5, "a": 1, "b": 3}, {"c": 5, "a": 2, "b": 4}]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("comand='t {lr}'\nparams={lr=[1]}", "`command`"),
        ("command='t {lr}'\n[params]\nlr={vaules=[1]}", "`params.lr.values`"),
        ("command='t {lr}'\n[params]\nlr='lgo(1,2)'", "`log`"),
        ("command='t {lr}'\n[params]\nlr='tune.uniform(0,1)'", "`interval(...)`"),
        ("command='t {lr}'\n[params]\nlr=[]", "no values"),
        ("command='t {lr}'\n[params]\nlr={min=1}", "no max"),
        ("command='t {lr}'\n[params]\nlr={values=[1],value=1}", "value and values"),
        ("command='t {lr}'\n[params]\nlr=[nan]", "cannot be the value"),
        ("command='t {lr}'\n[params]\nlr=[1]\n[resources]\nmemory='2G'", "resources.memory"),
        ("command='t {lr}'\n[params]\nlr=[1]\n[resources]\ngpu=1", "`resources.gpus`"),
        ("command='t {lr}'\nmethod='gird'\n[params]\nlr=[1]", "`grid`"),
        ("command='t {lr}'\nmethod='tpe'\n[params]\nlr=[1]", "--metric"),
        ("command='t {lr}'\ntrials=0\n[params]\nlr=[1]", "trials"),
        ("command='t {lr}'\nmetric={name='a',goal='low'}\n[params]\nlr=[1]", "goal"),
        ("command='t {lr}'\nmetric='loss'\n[params]\nlr=[1]\n[stop]\nkind='medain'", "`median`"),
        (
            "command='t {lr}'\nmetric='loss'\n[params]\nlr=[1]\n[stop]\nafterstep=1",
            "stop.after_step",
        ),
        ("command='t {lr}'\n[params]\nlr=[1]\n[stop]\nkind='median'", "metric"),
        ("command='t {lr}'\nparameters={lr=[1]}\nprogram='x'\nparams={lr=[1]}", "`params`"),
        ("cmd='t {lr}'\nparams={lr=[1]}", "did you mean `command`?"),
        ("command='t {lr}'\nrun_cap=9\n[params]\nlr=[1]", "did you mean `trials`?"),
        ("command='t {lr}'\ngpuss=1\n[params]\nlr=[1]", "did you mean `gpus` in [resources]?"),
        ("command='t {lr}'\ngpus=1\n[params]\nlr=[1]", "did you mean `gpus` in [resources]?"),
        ("command='t {lr}'\nvram=1\n[params]\nlr=[1]", "did you mean `gpu_mem` in [resources]?"),
        (
            "command='t {lr}'\n[parameters]\nlr=[1]",
            "did you mean [params]? `parameters` is the W&B format: lr = { values = [1, 2] }",
        ),
        ("command='t {lr}'", "add a table [params]"),
        ("command='t {lr}'\nmethod='bayes'\n[params]\nlr=[1]", "did you mean `tpe`?"),
        ("command='t {lr}'\nmethod='random_search'\n[params]\nlr=[1]", "did you mean `random`?"),
        ("command='t {lr}'\nmethod='sobol'\n[params]\nlr=[1]", "did you mean `lhs`?"),
        ("command='t {lr}'\n[params]\nlr={low=1,high=2}", "did you mean `params.lr.min`?"),
        ("command='t {lr}'\n[params]\nlr={choices=[1]}", "did you mean `params.lr.values`?"),
        ("command='t {lr}'\n[params]\nlr='uniform(0,1)'", "did you mean `interval`?"),
        ("command='t {lr}'\n[params]\nlr=[1]\n[resources]\ntimeout=5", "`resources.time_limit`"),
        ("command='t {lr}'\nmetric={name='a',mode='min'}\n[params]\nlr=[1]", "`metric.goal`"),
        ("command='t {lr}'\nmetric={name='a',goal='higher'}\n[params]\nlr=[1]", "mean `max`?"),
        ("command='t {lr}'\nmetric='loss'\n[params]\nlr=[1]\n[stop]\nkind='sha'", "mean `asha`?"),
        ("command='t {lr}'\nmetric='loss'\n[params]\nlr=[1]\n[stop]\ntype='asha'", "`stop.kind`"),
        (
            "command='t {lr}'\nmetric='loss'\n[params]\nlr=[1]\n[stop]\nkind='asha'\neta=3",
            "did you mean `stop.factor`?",
        ),
        ("command='t {lr}'\nzip=[['lr','x']]\n[params]\nlr=[1]", "params.x"),
        ("command='t {a} {b}'\nzip=[['a','b']]\n[params]\na=[1]\nb=[1,2]", "equally many"),
        ("command='t {lr}'", "no parameters"),
        ("[params]\nlr=[1]", "no command"),
        ("command='t {lr}'\n[constants]\nlr=1\n[params]\nlr=[1]", "constant"),
        ("command='t {lr}\n", "TOML"),
    ],
)
def test_error_in_a_toml_file_names_its_place(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(UsageError) as caught:
        load(tmp_path, text)
    assert expected in f"{caught.value.message} {caught.value.hint}"


def test_file_that_is_not_a_sweep_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="program") as caught:
        load(tmp_path, "", "sweep.py")
    assert caught.value.hint and "toml" in caught.value.hint
    with pytest.raises(NotFound):
        sweep_file.load(tmp_path / "nothing.toml")
    for name, text in (
        ("a.json", '{"a": 1, "a": 2}'),
        ("a.json", "[]"),
        ("a.txt", ""),
        ("b.yaml", "["),
    ):
        with pytest.raises(UsageError):
            load(tmp_path, text, name)


WANDB = [
    """
program: train.py
method: random
metric: {goal: minimize, name: loss}
parameters:
  batch_size: {distribution: q_log_uniform_values, max: 256, min: 32, q: 8}
  dropout: {values: [0.3, 0.4, 0.5]}
  epochs: {value: 1}
  learning_rate: {distribution: uniform, max: 0.1, min: 0}
  optimizer: {values: ["adam", "sgd"]}
""",
    """
program: train.py
method: bayes
metric: {goal: minimize, name: val_loss}
parameters:
  decay: {values: [1e-5, 1e-6, 1e-7]}
  epochs: {value: 27}
early_terminate: {type: hyperband, s: 2, eta: 3, max_iter: 27}
""",
    """
program: main.py
metric: {name: val_loss, goal: minimize}
method: bayes
parameters:
  optimizer.config.learning_rate:
    min: !!float 1e-5
    max: 0.1
  experiment: {values: [expt001, expt002]}
  optimizer: {values: [sgd, adagrad, adam]}
command:
- ${env}
- ${interpreter}
- ${program}
- ${args_no_hyphens}
""",
    """
program: sweep_nested.py
name: sweep_nested
method: random
metric: {name: loss, goal: minimize}
run_cap: 10
parameters:
  optimizer:
    parameters:
      learning_rate: {values: [0.01, 0.001]}
      momentum: {value: 0.9}
  fc_layer_size: {values: [128, 256, 512]}
project: p
entity: e
description: d
""",
]


@pytest.mark.parametrize("text", WANDB)
def test_wandb_examples_are_read(tmp_path: Path, text: str) -> None:
    made = load(tmp_path, text, "sweep.yaml")
    assert made.metric is not None and made.metric.goal == "min"
    listed = made if made.method == "random" else made._replace(method="random")
    for point in points(listed._replace(seed=1), 3):
        assert made.template.render(point, 1, "/d").argv[:3] == (
            "/usr/bin/env", "python", str(made.template.words[2]),
        )  # fmt: skip


def test_wandb_file_becomes_an_equivalent_sweep(tmp_path: Path) -> None:
    made = load(tmp_path, WANDB[1], "a.yml")
    assert made.method == "tpe" and made.metric == Metric("val_loss", "min")
    assert made.early_stop == {"kind": "hyperband", "factor": 3, "min_step": 3, "max_step": 27}
    hydra = load(tmp_path, WANDB[2], "a.yml")
    assert hydra.template.words == ("/usr/bin/env", "python", "main.py", "{params:hydra}")
    assert hydra.space.grids[0][0].domains[0] == Continuous("uniform", 1e-5, 0.1)
    nested = load(tmp_path, WANDB[3], "a.yml")
    assert nested.trials == 10 and nested.name == "sweep_nested"
    assert nested.space.names == (
        "optimizer.learning_rate", "optimizer.momentum", "fc_layer_size",
    )  # fmt: skip
    point = next(points(nested._replace(method="grid")))
    assert nested.template.render(point).argv[3:] == (
        "--optimizer.learning_rate=0.01", "--optimizer.momentum=0.9", "--fc_layer_size=128",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "domain"),
    [
        ("min: 1, max: 3", Whole(1, 3)),
        ("min: 1, max: 3.5", Continuous("uniform", 1, 3.5)),
        ("distribution: int_uniform, min: 1, max: 3", Whole(1, 3)),
        ("distribution: q_uniform, min: 0, max: 1, q: 0.1", Continuous("uniform", 0, 1, 0.1)),
        ("distribution: q_uniform, min: 0, max: 9", Continuous("uniform", 0, 9, 1.0)),
        ("distribution: log_uniform, min: -2, max: 0", Continuous("log", math.exp(-2), 1)),
        ("distribution: log_uniform_values, min: 1e-5, max: 1e-1", Continuous("log", 1e-5, 0.1)),
        ("distribution: inv_log_uniform, min: 0, max: 2", Continuous("log", math.exp(-2), 1)),
        ("distribution: inv_log_uniform_values, min: 1, max: 2", Continuous("log", 1, 2)),
        ("distribution: q_log_uniform, min: 0, max: 1, q: 2", Continuous("log", 1, math.e, 2)),
        ("distribution: normal", Continuous("normal", 0, 1)),
        ("distribution: q_normal, mu: 1, sigma: 2, q: 3", Continuous("normal", 1, 2, 3)),
        ("distribution: log_normal, mu: 1", Continuous("lognormal", 1, 1)),
        ("distribution: q_log_normal", Continuous("lognormal", 0, 1, 1)),
    ],
)
def test_wandb_distribution_becomes_a_domain(text: str, domain: object) -> None:
    given = sweep_file.parse_yaml(
        f"{{program: t.py, method: random, parameters: {{x: {{{text}}}}}}}"
    )
    assert isinstance(given, dict)
    assert wandb_file.from_table(given).space.grids[0][0].domains[0] == domain


def test_wandb_probabilities_become_weights() -> None:
    given = {"program": "t", "parameters": {"x": {"values": [1, 2], "probabilities": [0.2, 0.8]}}}
    (domain,) = wandb_file.from_table(given).space.grids[0][0].domains
    assert isinstance(domain, Choices) and domain.weights == (0.2, 0.8)


def test_wandb_macros_are_expanded() -> None:
    given: dict[str, object] = {
        "program": "t.py",
        "parameters": {"amp": {"value": True}, "off": {"value": False}, "lr": {"value": 1e-05}},
        "command": ["${env}", "--k=${envvar:KEY}", "{x}", "${args}", "${args_no_boolean_flags}",
                    "${args_json}", "${args_json_file}"],
    }  # fmt: skip
    made = wandb_file.from_table(given, {"KEY": "a{b"})
    (point,) = points(made)
    assert made.template.render(point, 1, "/d").argv == (
        "/usr/bin/env", "--k=a{b", "{x}", "--amp=True", "--off=False", "--lr=1e-05",
        "--amp", "--lr=1e-05", '{"amp": true, "off": false, "lr": 1e-05}', "/d/params.json",
    )  # fmt: skip
    for word in ("${envvar:NO}", "${agrs}", "a${args}"):
        with pytest.raises(UsageError):
            wandb_file.from_table({**given, "command": [word]}, {})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("paramters: {}\nprogram: t", "`parameters`"),
        ("program: t\nparameters: {lr: {vaules: [1]}}", "`parameters.lr.values`"),
        ("program: t\nparameters: {o: {parameters: {lr: {mni: 1}}}}", "o.parameters.lr.min"),
        ("program: t\nparameters: {lr: {distribution: log_unifrom, min: 1}}", "log_uniform"),
        ("program: t\nparameters: {lr: {min: 1}}", "no values"),
        ("program: t\nparameters: {lr: {value: 1, q: 2}}", "parameters.lr.q"),
        ("program: t\nparameters: {lr: 1}", "parameters.lr"),
        ("program: t\nmethod: byes\nparameters: {lr: {value: 1}}", "bayes"),
        ("program: t\nmethod: tpe\nparameters: {lr: {value: 1}}", "did you mean `bayes`?"),
        ("program: t\nparameters: {lr: {distribution: int, min: 1, max: 2}}", "int_uniform"),
        ("program: t\nparameters: {lr: {low: 1, high: 2}}", "did you mean `parameters.lr.min`?"),
        ("program: t\ntrials: 5\nparameters: {lr: {value: 1}}", "did you mean `run_cap`?"),
        ("command: ['${arg}']\nparameters: {lr: {value: 1}}", "did you mean `${args}`?"),
        ("program: t\nmethod: bayes\nparameters: {lr: {value: 1}}", "metric"),
        ("method: grid\nparameters: {lr: {value: 1}}", "program"),
        ("program: t\nprogram: u\nparameters: {lr: {value: 1}}", "duplicate key"),
        ("program: t\nearly_terminate: {type: hyper}\nparameters: {lr: {value: 1}}", "hyperband"),
    ],
)  # fmt: skip
def test_error_in_a_wandb_file_names_its_place(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(UsageError) as caught:
        load(tmp_path, text, "a.yaml")
    assert expected in f"{caught.value.message} {caught.value.hint}"


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("1e-3", 0.001), ("3e4", 3e4), ("1.", 1.0), (".5", 0.5), ("6.e-5", 6e-5),
        ("12:30:45", "12:30:45"),
        ("no", "no"), ("yes", "yes"), ("on", "on"), ("off", "off"), ("true", True), ("~", None),
        ("010", 10), ("0o10", 8), ("0x1F", 31), ("2024-01-01", "2024-01-01"), ("1_000", "1_000"),
        ("'1'", "1"), ("-1", -1), ("!!float 1e-5", 1e-5), ("!!str 1", "1"), ("e5", "e5"),
    ],
)  # fmt: skip
def test_yaml_follows_version_1_2(text: str, data: object) -> None:
    found = sweep_file.parse_yaml(f"a: {text}")
    assert found == {"a": data} and isinstance(found, dict) and type(found["a"]) is type(data)


def test_yaml_builds_no_objects_and_supports_merge_keys() -> None:
    with pytest.raises(UsageError):
        sweep_file.parse_yaml("a: !!python/object/apply:os.system [id]")
    assert sweep_file.parse_yaml("a: &a {x: 1}\nb:\n  <<: *a\n  y: 2") == {
        "a": {"x": 1}, "b": {"x": 1, "y": 2},
    }  # fmt: skip
    with pytest.raises(UsageError, match="duplicate key `a` in line 2"):
        sweep_file.parse_yaml("a: 1\na: 2")


def test_gpu_task_scheduler_configuration_is_read() -> None:
    config: dict[str, object] = {
        "scheduler_config": {"gpu": ["0", "1", "2"]},
        "global_config": {"num_run": 5, "num_epoch": 200},
        "test_config": [
            {"method": ["GAN", "ALI"], "num_packing": [1], "num_zmode": [1]},
            {"method": ["WGAN"], "num_packing": [3], "num_zmode": [1, 2]},
        ],
    }
    made = gpu_task_scheduler_file.from_config(config, shell("run {params}"))
    fixed = {"num_run": 5, "num_epoch": 200}
    assert grid(made) == [
        {**fixed, "method": "GAN", "num_packing": 1, "num_zmode": 1},
        {**fixed, "method": "ALI", "num_packing": 1, "num_zmode": 1},
        {**fixed, "method": "WGAN", "num_packing": 3, "num_zmode": 1},
        {**fixed, "method": "WGAN", "num_packing": 3, "num_zmode": 2},
    ]
    with pytest.raises(UsageError, match="no command"):
        sweep_file.from_table(config)
    with_command = sweep_file.from_table({**config, "command": "t {params}"})
    assert with_command.template == shell("t {params}")
    nothing = gpu_task_scheduler_file.space_from({"global_config": {"a": 1}})
    assert nothing.size.points == 1


@settings(max_examples=60)
@given(
    st.lists(st.tuples(ANY_DOMAIN, st.sampled_from([None, "p0 == 1"])), min_size=1, max_size=4),
    st.sampled_from(METHODS),
    st.none() | st.integers(1, 10**6),
    st.none() | st.integers(),
    st.none()
    | st.builds(
        Metric,
        st.text(min_size=1),
        st.sampled_from(["min", "max"]),
        st.none() | st.floats(allow_nan=False, allow_infinity=False),
        st.just(False),
    ),
    st.dictionaries(st.sampled_from(spec.RESOURCES), JSON, max_size=3),
    st.booleans(),
)
def test_sweep_survives_a_json_round_trip(
    made: list[tuple[object, str | None]],
    method: str,
    trials: int | None,
    seed: int | None,
    metric: Metric | None,
    resources: dict[str, object],
    is_shell: bool,
) -> None:
    axes = [axis(f"p{i}", domain, when if i else None) for i, (domain, when) in enumerate(made)]  # type: ignore[arg-type]
    sweep = make_spec(
        shell("t {params}") if is_shell else argv(["t", "{params}"]),
        make_space([axes]),
        method=method,
        trials=trials,
        seed=seed,
        metric=metric or Metric("m", "min"),
        resources=resources,
        early_stop={"kind": "median", "min_trials": 3},
    )
    assert spec.from_json(json.loads(json.dumps(sweep.to_json()))) == sweep


def test_wandb_file_minimizes_a_metric_without_a_goal(tmp_path: Path) -> None:
    text = "program: t.py\nmetric: {name: %s}\nparameters:\n  lr: {values: [1]}\n"
    (tmp_path / "w.yaml").write_text(text % "gamma")
    assert sweep_file.load(tmp_path / "w.yaml").metric == Metric("gamma", "min")
    (tmp_path / "w.yaml").write_text(text % "val_acc")
    with pytest.raises(UsageError, match="W&B would minimize `val_acc`"):
        sweep_file.load(tmp_path / "w.yaml")


@pytest.mark.parametrize(
    ("name", "goal"),
    [
        ("val_acc", "max"), ("Accuracy", "max"), ("valacc", "max"), ("eval/f1", "max"),
        ("mAP50", "max"), ("episode_return", "max"), ("top5-acc", "max"), ("r2", "max"),
        ("loss", "min"), ("train.loss", "min"), ("trainLoss", "min"), ("val_rmse", "min"),
        ("ppl", "min"), ("error_rate", "min"), ("epoch_time", "min"),
        ("y", None), ("gamma", None), ("lr", None), ("acc_loss", None), ("neg_accuracy", None),
        ("accumulated", None), ("glossary", None), ("scores_by_map_error", None),
        ("val_acc_std", None),  # derived from an accuracy, not one
        ("accuracy_drop", None),
        ("minutes_to_acc", None),
        ("negloss", None),
        ("train_loss_epoch", "min"),
    ],
)  # fmt: skip
def test_goal_is_guessed_from_the_words_of_a_name(name: str, goal: str | None) -> None:
    metric = spec.make_metric(name)
    assert (metric.goal, metric.is_guessed) == (goal, goal is not None)
    said = spec.make_metric(name, "minimize")
    assert (said.goal, said.is_guessed) == ("min", False)


def test_recorded_goal_precedes_a_guess() -> None:
    recorded = [Metric("acc", "min"), Metric("loss:1", "max")]
    assert spec.read_metric("acc", recorded) == Metric("acc", "min")
    assert spec.read_metric("acc:max", recorded) == Metric("acc", "max")
    assert spec.read_metric("loss:1", recorded) == Metric("loss:1", "max")
    assert spec.read_metric("f1", recorded).words == "f1 (max, guessed from its name)"


@pytest.mark.parametrize(
    ("metric", "hint"),
    [("'gamma'", "gamma:max"), ("{name='gamma'}", 'goal = "max"')],
)
def test_metric_of_a_file_needs_a_goal_that_can_be_guessed(
    tmp_path: Path, metric: str, hint: str
) -> None:
    with pytest.raises(UsageError, match="`gamma` should be small or large") as caught:
        load(tmp_path, f"command='t {{lr}}'\nmetric={metric}\n[params]\nlr=[1]")
    assert hint in (caught.value.hint or "")


def test_placeholder_in_a_wandb_file_is_refused(tmp_path: Path) -> None:
    text = "program: t.py\nparameters:\n  lr: {values: [1]}\ncommand: [python, '%s', '${args}']\n"
    (tmp_path / "w.yaml").write_text(text % "--lr={lr}")
    with pytest.raises(UsageError, match=r"a W&B file has no placeholder `\{lr\}`"):
        sweep_file.load(tmp_path / "w.yaml")
    (tmp_path / "w.yaml").write_text(text % "--json={a: 1}")
    sweep_file.load(tmp_path / "w.yaml")


_DEEP = "[" * 3000 + "]" * 3000
_TEN = "".join(f"\n    - &l{i} [{','.join([f'*l{i - 1}'] * 10)}]" for i in range(1, 9))


@pytest.mark.parametrize(
    ("name", "text", "error"),
    [
        ("s.toml", f"command = 'x'\n[params]\na = {_DEEP}", "nested too deeply"),
        ("s.json", f'{{"command": "x", "params": {{"a": {_DEEP}}}}}', "nested too deeply"),
        ("s.yaml", f"parameters: {_DEEP}", "nested too deeply"),
        ("s.yaml", "program: x\nparameters: &p\n  a: {parameters: *p}", "nested too deeply"),
        ("s.yaml", "program: x\nparameters: {a: {values: &v [*v]}}", "nested too deeply"),
        (
            "s.yaml",
            f"program: x\nparameters:\n  a:\n    values:\n    - &l0 [1, 1]{_TEN}",
            "elements",
        ),
        ("s.yaml", "? [a, b]\n: c", "a key must not be a list or a table"),
        ("s.yaml", "a: !!bool x", "is not valid YAML"),
        ("s.yaml", f"program: x\nparameters: {{a: {{value: 0x{'f' * 9000}}}}}", "300 digits"),
    ],
)
def test_hostile_file_is_a_usage_error(tmp_path: Path, name: str, text: str, error: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(UsageError, match=error):
        sweep_file.load(tmp_path / name)


def test_keys_of_the_wandb_service_have_no_effect(tmp_path: Path) -> None:
    plain = "program: t.py\nparameters: {lr: {values: [1, 2]}}\n"
    service = "job: me/p/job:v1\nscheduler: {job: me/p/sched:latest, num_workers: 4}\nlaunch: {}\n"
    assert load(tmp_path, service + plain, "s.yaml") == load(tmp_path, plain, "s.yaml")


def test_wandb_file_without_a_program_says_what_to_write(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no `program`") as caught:
        load(tmp_path, "job: me/p/job:v1\nparameters: {lr: {values: [1, 2]}}\n", "s.yaml")
    assert caught.value.hint is not None
    for line in ("program: t.py", "command: [python, train.py, '${args}']"):
        assert line.partition(":")[0] in caught.value.hint
        load(tmp_path, f"{line}\nparameters: {{lr: {{values: [1, 2]}}}}\n", "s.yaml")


@pytest.mark.parametrize(
    ("content", "hint"),
    [
        ({"command": "t {lr}"}, 'add "params": {"lr": [0.1, 0.01]}'),
        ({"params": {"lr": [1]}}, 'add "command": "python t.py --lr {lr}"'),
        ({"command": "t {lr}", "gpuss": 1}, "did you mean `gpus` in `resources`?"),
        ({"command": "t {lr}", "parameters": {"lr": [1]}},
         'did you mean `params`? `parameters` is the W&B format: "lr": {"values": [1, 2]}'),
    ],
)  # fmt: skip
def test_hints_for_a_json_file_are_written_in_json(
    tmp_path: Path, content: dict[str, object], hint: str
) -> None:
    path = tmp_path / "sweep.json"
    path.write_text(json.dumps(content))
    with pytest.raises(UsageError) as caught:
        sweep_file.load(path)
    assert caught.value.hint == hint
