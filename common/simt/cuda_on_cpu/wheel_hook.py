"""Where this Python lies in a wheel: at its root, with the emulator below. `pip install -e` leaves
it where it is.
"""

from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Placing(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version != "editable":
            build_data["force_include"]["common/simt/cuda_on_cpu"] = "cuda_on_cpu"
