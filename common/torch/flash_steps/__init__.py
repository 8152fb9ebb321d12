"""The rungs of this repository as an operator of PyTorch: docs/from_pytorch.md."""

from flash_steps.operator import attention, attention_paged

__all__ = ["attention", "attention_paged"]
