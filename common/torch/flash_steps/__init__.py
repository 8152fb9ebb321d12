"""The rungs of this repository as an operator of PyTorch: docs/from_pytorch.md."""

from typing import Any

__all__ = ["attention", "attention_packed", "attention_paged"]


def __getattr__(name: str) -> Any:
    """The operator on first use, and PyTorch with it: flash_steps.ladder needs neither."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from flash_steps import operator

    globals().update({one: getattr(operator, one) for one in __all__})
    return globals()[name]
