"""Names of devices: values of CUDA_VISIBLE_DEVICES."""

from __future__ import annotations

from stoker.compat.foreground.gpu_slots import expand_range


def split_devices(text: str) -> list[str]:
    """The devices in a list as `--gpus` takes it.

    >>> split_devices("0;1;2,3"), split_devices(""), split_devices("0;")
    (['0', '1', '2,3'], [''], ['0', ''])
    >>> split_devices("0 1;4-6"), split_devices("GPU-0-2;2-3,4-5"), split_devices("-1;0")
    (['0', '1', '4', '5', '6'], ['GPU-0-2', '2-3,4-5'], ['-1', '0'])
    """
    words = [word for name in text.split(";") for word in name.split() or [""]]
    return [device for word in words for device in expand_range(word)]
