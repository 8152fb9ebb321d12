#!/usr/bin/env python3
"""Trains a small transformer that writes text, letter by letter; its attention is a rung of the
ladder, or PyTorch's.

Without options: one layer on the CPU, where the SIMT backend runs the CUDA kernels of the forward
and of the backward pass. It learns Python's own poem, `import this`, by heart. With both kinds of
attention the same model is trained twice from the same seed, and the losses are compared. A larger
one for a GPU:

    docs/examples/train.py --device cuda --layers 6 --width 256 --head-dim 64 --context 256 \\
        --batch 64 --rate 1e-3 --text docs/*.md
"""

import argparse
import codecs
import contextlib
import importlib
import io
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def poem() -> str:
    with contextlib.redirect_stdout(io.StringIO()):
        this = importlib.import_module("this")
    return codecs.decode(this.s, "rot13")


def arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add, both = parser.add_argument, ("ours", "sdpa")
    add("--attention", nargs="+", choices=both, default=["ours"], help="one or both (ours)")
    add("--rung", help="the forward rung, by name; it takes bf16 (the highest that fits)")
    add("--backward-rung", help="the backward rung, likewise")
    for name, default, what in (
        ("steps", 400, "how often the weights change"),
        ("seed", 1, "of weights and batches"),
        ("layers", 1, "of attention and of the perceptron"),
        ("width", 64, "a multiple of the head dim"),
        ("head-dim", 32, "of each head; Hopper's rungs take 64"),
        ("context", 64, "letters that it sees"),
        ("batch", 8, "pieces of text in a step"),
        ("letters", 160, "length of the sample at the end"),
    ):
        add(f"--{name}", type=int, default=default, help=f"{what} ({default})")
    add("--window", type=int, metavar="W", help="a letter sees the last W, its own included (all)")
    add("--sink", action="store_true", help="each head learns a logit that owns no letter")
    add("--rate", type=float, default=1e-2, help="the learning rate; it falls to 0 (0.01)")
    add("--device", default="cpu", help="cpu, cuda or cuda:1 (cpu)")
    add("--text", nargs="+", type=Path, metavar="FILE", help="what it reads (the poem)")
    add("--record", metavar="NAME", help="also write docs/records/NAME.json")
    options = parser.parse_args(words)
    if options.width < 1 or options.head_dim < 1 or options.width % options.head_dim:
        parser.error(
            f"--width {options.width}: a multiple of --head-dim, {options.head_dim}, is expected"
        )
    if (options.window is not None or options.sink) and options.head_dim not in (64, 128):
        parser.error("--window and --sink are for rungs of Hopper: --head-dim 64 or 128")
    if options.window is not None and options.window < 1:
        parser.error(f"--window {options.window}: at least 1 is expected")
    if min(options.steps, options.layers, options.context, options.batch) < 1:
        parser.error("--steps, --layers, --context and --batch are at least 1")
    files = options.text
    try:
        texts = [path.read_text(encoding="utf-8") for path in files] if files else [poem()]
        options.text = "\n".join(texts)
    except (OSError, UnicodeDecodeError) as error:
        parser.error(f"--text: {error}")
    if len(options.text) <= options.context + 1:
        parser.error(
            f"the text has {len(options.text)} letters; more than --context {options.context} are "
            "needed"
        )
    return options


options = arguments(sys.argv[1:]) if __name__ == "__main__" else None

try:
    import torch  # after the options, so that --help and mistakes are answered at once
    from flash_steps import attention
    from torch import nn
    from torch.nn import functional as F
except ModuleNotFoundError as error:
    print(f"train.py: there is no {error.name}; pip install torch -e {ROOT}", file=sys.stderr)
    sys.exit(2)


def plain_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, window: int, sink: torch.Tensor | None
) -> torch.Tensor:
    """What PyTorch makes of a window and of sinks: a mask, and one more column of scores."""
    N = q.shape[2]
    behind = torch.arange(N, device=q.device)[:, None] - torch.arange(N, device=q.device)
    scores = (q @ k.transpose(2, 3)).float() / q.shape[3] ** 0.5
    scores = scores.masked_fill((behind < 0) | (behind >= window), float("-inf"))
    if sink is not None:
        scores = torch.cat([scores, sink[:, None, None].expand(*scores.shape[:3], 1)], 3)
    return scores.softmax(3)[..., :N].to(v.dtype) @ v


class Layer(nn.Module):
    """Each letter looks at those before it; then a perceptron works on each by itself."""

    def __init__(self, options: argparse.Namespace, which: str) -> None:
        super().__init__()
        width, self.options, self.which = options.width, options, which
        self.before_attention, self.before_perceptron = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.perceptron = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.sink = nn.Parameter(torch.zeros(width // options.head_dim)) if options.sink else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        B, N, width = x.shape
        qkv = self.qkv(self.before_attention(x)).view(B, N, 3, -1, self.options.head_dim)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).bfloat16().contiguous()  # (B, H, N, d) each
        window, sink = self.options.window, self.sink
        if self.which == "ours":
            rungs = {"rung": self.options.rung, "backward_rung": self.options.backward_rung}
            o = attention(q, k, v, causal=True, window=window, sink=sink, **rungs)
        elif window is not None or sink is not None:
            o = plain_attention(q, k, v, N if window is None else window, sink)
        else:
            o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(o.transpose(1, 2).reshape(B, N, width).float())
        return x + self.perceptron(self.before_perceptron(x))


class Model(nn.Module):
    def __init__(self, options: argparse.Namespace, which: str, letters: int) -> None:
        super().__init__()
        self.context = options.context
        self.letter = nn.Embedding(letters, options.width)
        self.place = nn.Embedding(options.context, options.width)
        self.layers = nn.Sequential(*(Layer(options, which) for _ in range(options.layers)))
        self.last, self.scores = nn.LayerNorm(options.width), nn.Linear(options.width, letters)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        """(B, N) numbers of letters -> (B, N, letters): what comes after each of them."""
        places = torch.arange(text.shape[1], device=text.device)
        return self.scores(self.last(self.layers(self.letter(text) + self.place(places))))

    @torch.no_grad()
    def write(self, start: torch.Tensor, count: int, generator: torch.Generator) -> list[int]:
        text = start
        for _ in range(count):
            likely = self(text[:, -self.context :])[:, -1].float().softmax(-1).cpu()
            next_letter = torch.multinomial(likely, 1, generator=generator).to(text.device)
            text = torch.cat([text, next_letter], 1)
        return text[0].tolist()


def train(
    options: argparse.Namespace,
    which: str,
    say: Callable[[str], object] = lambda line: print(line, flush=True),
) -> tuple[list[float], str]:
    """(the loss of each step, a sample of what it writes)"""
    if options.device == "cpu":
        torch.set_num_threads(1)  # PyTorch's part is too small to be shared; a rung uses all cores
    alphabet = sorted(set(options.text))
    text = torch.tensor([alphabet.index(letter) for letter in options.text])
    torch.manual_seed(options.seed)
    model = Model(options, which, len(alphabet)).to(options.device)
    say(
        f"{which}: {options.layers} layer(s), "
        f"{sum(weight.numel() for weight in model.parameters()):,} parameters, "
        f"{len(text):,} letters of text"
    )
    # The same batches for both kinds of attention.
    draw = torch.Generator().manual_seed(options.seed)
    optimizer = torch.optim.AdamW(model.parameters(), options.rate)
    slower = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / options.steps)
    losses, start = [], time.monotonic()
    for step in range(1, options.steps + 1):
        first = torch.randint(len(text) - options.context, (options.batch, 1), generator=draw)
        piece = text[first + torch.arange(options.context + 1)].to(options.device)
        loss = F.cross_entropy(model(piece[:, :-1]).flatten(0, 1), piece[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        slower.step()
        losses.append(loss.item())
        if step == 1 or step % 25 == 0 or step == options.steps:
            say(f"step {step:4}  loss {losses[-1]:.4f}  {time.monotonic() - start:5.1f} s")
    sample = model.write(text[None, :1].to(options.device), options.letters, draw)
    return losses, "".join(alphabet[number] for number in sample)


def save(options: argparse.Namespace, losses: dict[str, list[float]]) -> Path:
    """A record of the lab, with about a hundred steps of each curve."""
    sys.path.append(str(ROOT / "scripts"))
    from lab import records

    every = max(1, options.steps // 100)
    rows = [
        {"program": which, "kind": "training", "step": step + 1, "loss": round(loss, 6)}
        for which, of in losses.items()
        for step, loss in enumerate(of)
        if step % every == 0 or step == len(of) - 1
    ]
    command = "docs/examples/train.py " + " ".join(sys.argv[1:])
    return records.save(
        options.record, records.provenance(command, gpu=options.device != "cpu"), rows
    )


def main(options: argparse.Namespace) -> int:
    if options.device.startswith("cuda") and not torch.cuda.is_available():
        print(
            "train.py: --device: there is no GPU that PyTorch can use; without the option it runs "
            "on the CPU",
            file=sys.stderr,
        )
        return 2
    losses = {}
    for which in options.attention:
        losses[which], sample = train(options, which)
        print(f"it writes: {sample!r}\n")
    if len(losses) == 2:
        apart = [abs(a - b) for a, b in zip(*losses.values())]
        print(
            f"the two losses differ by {sum(apart) / len(apart):.5f} on average, at most by "
            f"{max(apart):.5f}"
        )
    if options.record:
        print(f"written {save(options, losses).relative_to(ROOT)}")
    return 0


if options:
    sys.exit(main(options))
