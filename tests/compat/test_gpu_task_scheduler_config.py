"""ConfigManager of gpu_task_scheduler: names, values, order and errors, byte for byte."""

from __future__ import annotations

import errno
import itertools
from pathlib import Path
from typing import Any

import pytest

from gpu_task_scheduler.config_manager import ConfigManager
from stoker.compat.gpu_task_scheduler.folder_records import Folder, params_of


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def manager(*grids: dict[str, Any], **rules: Any) -> ConfigManager:
    return ConfigManager({"scheduler_config": {"gpu": ["0"], **rules}, "test_config": list(grids)})


def strings(config_manager: ConfigManager) -> list[str]:
    return [instance["test_config_string"] for instance in remaining(config_manager)]


def remaining(config_manager: ConfigManager) -> list[dict[str, Any]]:
    return [config_manager.get_next_config() for _ in range(config_manager.get_num_left_config())]


def folders(config_manager: ConfigManager) -> list[str]:
    return [instance["work_dir"].rpartition("/")[2] for instance in remaining(config_manager)]


README = {
    "scheduler_config": {"gpu": ["0", "1", "2"]},
    "global_config": {"num_run": 5, "num_epoch": 200},
    "test_config": [
        {"method": ["GAN", "ALI"], "num_packing": [1], "num_zmode": [1]},
        {"method": ["WGAN"], "num_packing": [3], "num_zmode": [1, 2]},
    ],
}


def test_readme_configuration_gives_the_documented_instances(folder: Path) -> None:
    config_manager = ConfigManager(README)
    assert config_manager.get_num_left_config() == 4
    assert config_manager.get_next_config() == {
        "config": {
            "num_run": 5, "num_epoch": 200, "method": "GAN", "num_packing": 1, "num_zmode": 1,
        },
        "test_config_string": "method-GAN,num_packing-1,num_zmode-1,",
        "work_dir": f"{folder}/results/method-GAN,num_packing-1,num_zmode-1,",
    }  # fmt: skip
    assert config_manager.get_num_left_config() == 3
    assert strings(config_manager) == [
        "method-ALI,num_packing-1,num_zmode-1,",
        "method-WGAN,num_packing-3,num_zmode-1,",
        "method-WGAN,num_packing-3,num_zmode-2,",
    ]
    assert config_manager.get_num_left_config() == 0
    assert config_manager.get_next_config() == {"config": None}


def test_defaults_are_filled_into_the_callers_own_dict(folder: Path) -> None:
    rules: dict[str, Any] = {"gpu": ["3", ["0", "1"]]}
    config_manager = ConfigManager({"scheduler_config": rules})
    assert config_manager.get_all_scheduler_config() is rules
    assert rules == {
        "gpu": ["3", "0,1"],
        "force_rerun": False,
        "result_root_folder": f"{folder}/results",
        "test_config_string_separator": ",",
        "test_config_string_indicator": "-",
        "test_config_string_inst_separator": "+",
        "temp_folder": f"{folder}/temp",
        "log_file": "worker.log",
        "scheduler_log_file_path": "scheduler.log",
        "config_string_value_maxlen": 30,
    }
    assert sorted(path.name for path in folder.iterdir()) == ["temp"]
    assert config_manager.get_num_gpu() == 2
    assert config_manager.get_gpu_envs() == [
        {"name": "gpu3", "env": {"CUDA_VISIBLE_DEVICES": "3"}},
        {"name": "gpu0,1", "env": {"CUDA_VISIBLE_DEVICES": "0,1"}},
    ]


def test_temp_folder_may_be_nested_and_may_exist(folder: Path) -> None:
    manager(temp_folder="a/b")
    manager(temp_folder="a/b")
    assert (folder / "a/b").is_dir()


def test_configuration_without_test_config_uses_the_root_folder(folder: Path) -> None:
    config_manager = ConfigManager({"scheduler_config": {"gpu": ["0"]}, "global_config": {"a": 1}})
    assert (config_manager.get_all_test_config(), config_manager.get_all_global_config()) == (
        [{}],
        {"a": 1},
    )
    assert config_manager.get_next_config() == {
        "config": {"a": 1}, "test_config_string": "", "work_dir": f"{folder}/results/",
    }  # fmt: skip
    assert manager().get_next_config() == {"config": None}
    assert strings(manager({})) == [""]
    assert strings(manager({"a": []})) == []


def test_keys_are_sorted_in_names_and_keep_their_order_in_the_product() -> None:
    config_manager = manager({"b": [1, 2], "a": "xy"}, {"c": [None]}, {"b": [1], "a": "x"})
    assert config_manager.get_all_test_config() == [
        {"b": 1, "a": "x"}, {"b": 1, "a": "y"}, {"b": 2, "a": "x"}, {"b": 2, "a": "y"},
        {"c": None}, {"b": 1, "a": "x"},
    ]  # fmt: skip
    assert [list(params) for params in config_manager.get_all_test_config()[:1]] == [["b", "a"]]
    assert strings(config_manager) == [
        "a-x,b-1,",
        "a-y,b-1,",
        "a-x,b-2,",
        "a-y,b-2,",
        "c-None,",
        "a-x,b-1,",
    ]


def test_grids_accept_any_iterable_and_any_value() -> None:
    config_manager = manager(
        {"run": range(2), "noise": (float("inf"), None), "f": map(str, [1.5, True])}
    )
    assert strings(config_manager) == [
        f"f-{f},noise-{noise},run-{run},"
        for run, noise, f in itertools.product([0, 1], ["inf", "None"], ["1.5", "True"])
    ]


def test_values_are_cut_before_spaces_are_removed() -> None:
    assert strings(manager({"a b": ["x y" * 20]})) == ["ab-" + ("x y" * 10).replace(" ", "") + ","]
    assert strings(manager({"a": [[1, 2]]})) == ["a-[1,2],"]
    assert strings(manager({"a": ["x" * 40]}, config_string_value_maxlen=1000)) == [
        f"a-{'x' * 40},"
    ]


def test_separators_can_be_chosen() -> None:
    rules = {
        "test_config_string_separator": "__",
        "test_config_string_indicator": "=",
        "test_config_string_inst_separator": "|",
    }
    config_manager = manager({"b": [1], "a": [2]}, {"c": [3]}, **rules)
    assert strings(config_manager) == ["a=2__b=1__", "c=3__"]
    assert config_manager.get_all_test_config_in_string() == "a=[2]__b=[1]__|c=[3]__|"


def test_all_test_config_in_string_has_the_grids_as_written() -> None:
    config_manager = manager({"b": [1, 2], "a": range(3)})
    assert config_manager.get_all_test_config_in_string() == "a-range(0,3),b-[1,2],+"
    later = manager({"b": [1, 2]}, ignored_keys_for_folder_name=[])
    assert later.get_all_test_config_in_string() == "b-[1, 2],+"
    with pytest.raises(KeyError):
        ConfigManager({"scheduler_config": {"gpu": ["0"]}}).get_all_test_config_in_string()


def test_relative_folders_stay_relative() -> None:
    config_manager = manager({"a": [1]}, result_root_folder="../results")
    assert config_manager.get_next_config()["work_dir"] == "../results/a-1,"


def test_test_value_overrides_a_global_one_and_globals_are_copied() -> None:
    config = {
        "scheduler_config": {"gpu": ["0"]},
        "global_config": {"a": 0, "deep": {"x": []}},
        "test_config": [{"a": [1, 2]}],
    }
    config_manager = ConfigManager(config)
    first, second = (
        config_manager.get_next_config()["config"],
        config_manager.get_next_config()["config"],
    )
    first["deep"]["x"].append("changed")
    assert (first["a"], second) == (1, {"a": 2, "deep": {"x": []}})
    assert config_manager.get_all_global_config() is config["global_config"]


def test_options_of_the_later_version_are_honored_when_given() -> None:
    config_manager = manager({"a": [[1, 2]], "b": [3]}, ignored_keys_for_folder_name=["b"])
    one = config_manager.get_next_config()
    assert list(one) == [
        "config", "test_config_string", "test_config_string_filtered", "work_dir",
    ]  # fmt: skip
    assert (one["test_config_string"], one["test_config_string_filtered"]) == (
        "a-1,2,b-3,",
        "a-1,2,",
    )
    assert one["work_dir"].endswith("/results/a-1,2,")
    assert config_manager.get_all_scheduler_config()["ignored_characters_for_folder_name"] == [
        " ",
        "[",
        "]",
    ]
    assert strings(manager({"a": ["x y-z"]}, ignored_characters_for_folder_name=["z"])) == [
        "a-x y-,"
    ]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "could not find scheduler_config in config"),
        ({"scheduler_config": {}}, "could not find gpu in scheduler_config"),
        ({"scheduler_config": {"gpu": []}}, "please specify at least one gpu in scheduler_config"),
        ({"scheduler_config": {"gpu": [0]}}, "gpu can only be a string or a list of strings"),
        ({"scheduler_config": {"gpu": [("0",)]}}, "gpu can only be a string or a list of strings"),
    ],
)
def test_error_messages_are_those_of_the_original(
    folder: Path, config: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError) as raised:
        ConfigManager(config)
    assert str(raised.value) == message
    assert list(folder.iterdir()) == []


def test_gpu_list_of_integers_is_a_type_error() -> None:
    with pytest.raises(TypeError):
        manager(gpu=[[0, 1]])


def test_gpu_option_accepts_ranges_strings_and_jobs_per_gpu() -> None:
    def names(gpu: Any, **rules: Any) -> list[str]:
        return [env["name"] for env in manager(gpu=gpu, **rules).get_gpu_envs()]

    assert names(["0-2", "7"]) == ["gpu0", "gpu1", "gpu2", "gpu7"]
    assert names("0,1") == names("0 1") == names("01") == ["gpu0", "gpu1"]
    assert names(["0", ["2", "3"]], jobs_per_gpu=2) == ["gpu0", "gpu2,3", "gpu0", "gpu2,3"]
    assert names(["GPU-8a-1"]) == ["gpuGPU-8a-1"]


# -- instances with the same name ----------------------------------------------------------------


def test_values_that_differ_only_behind_the_cut_get_separate_folders() -> None:
    long = ["x" * 30 + end for end in ("1", "2")]
    first, second = folders(manager({"a": long}))
    assert first == f"a-{'x' * 30},"
    assert second.startswith(f"{first}id-") and second.endswith(",")
    assert folders(manager({"a": long})) == [first, second]


@pytest.mark.parametrize("values", [["a b", "ab"], [1, "1"], [None, "None"], ["1", 1, "1 "]])
def test_different_values_with_the_same_name_get_separate_folders(values: list[object]) -> None:
    assert len(set(folders(manager({"a": values})))) == len(values)


def test_repeated_instance_uses_one_folder() -> None:
    assert folders(manager({"a": [1, 1]}, {"a": [1]})) == ["a-1,"] * 3


def test_ignored_keys_do_not_create_separate_folders() -> None:
    config_manager = manager({"a": [1], "b": [1, 2]}, ignored_keys_for_folder_name=["b"])
    assert folders(config_manager) == ["a-1,", "a-1,"]


def test_memory_address_does_not_change_the_folder() -> None:
    def activation_with_a_long_name_indeed() -> None: ...

    first, second = (manager({"f": [activation_with_a_long_name_indeed]}) for _ in range(2))
    assert folders(first) == folders(second)


def test_record_is_a_file_if_the_file_system_has_no_attributes(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> bytes:
        raise OSError(errno.ENOTSUP, "Operation not supported")

    monkeypatch.setattr("os.setxattr", refuse)
    monkeypatch.setattr("os.getxattr", refuse)
    results = Folder(str(folder / "results"), "stage", "params")
    assert results.make() and not results.make()
    assert results.is_finished()  # no record: created by another program
    for is_good in (False, True):
        results.begin()
        results.end(is_good)
        assert results.is_finished() is is_good
    assert params_of(results.path) == "params"
    (folder / "results/.stoker-tasks.json").write_text("nonsense")
    assert params_of(results.path) is None


def test_names_longer_than_the_file_system_limit_are_cut(folder: Path) -> None:
    grid = {f"key{n}": [f"ä{'x' * 20}"] for n in range(20)}
    one, other = (remaining(manager({**grid, "z": [z]}))[0] for z in (1, 2))
    assert one["work_dir"] != other["work_dir"]
    Path(one["work_dir"]).mkdir(parents=True)
    assert len(one["test_config_string"]) > 400
