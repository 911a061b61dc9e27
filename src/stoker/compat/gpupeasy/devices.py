"""Names of devices: values of CUDA_VISIBLE_DEVICES."""

from __future__ import annotations

from stoker.compat.foreground.gpu_slots import expand_range


def split_device_list(text: str) -> list[str]:
    """The devices in a list as `--gpus` takes it.

    >>> split_device_list("0;1;2,3"), split_device_list(""), split_device_list("0;")
    (['0', '1', '2,3'], [''], ['0', ''])
    >>> split_device_list("0 1;4-6"), split_device_list("-1;0")
    (['0', '1', '4', '5', '6'], ['-1', '0'])
    >>> split_device_list("GPU-0-2;2-3,4-5")
    ['GPU-0-2', '2-3,4-5']
    """
    words = [word for name in text.split(";") for word in name.split() or [""]]
    return [device for word in words for device in expand_range(word)]
