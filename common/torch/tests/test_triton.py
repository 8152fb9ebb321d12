"""The Triton kernel of docs/examples against the oracle's golden vectors: on the CPU by Triton's
interpreter, on a GPU compiled."""

import importlib.util
import os

import pytest
from flash_steps.ladder import ROOT

torch = pytest.importorskip("torch", reason="needs PyTorch")
safe_open = pytest.importorskip("safetensors", reason="needs safetensors").safe_open
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"  # Triton looks when it is imported
    pytest.importorskip("numpy", reason="Triton's interpreter needs numpy")
# 3.6's interpreter fails with numpy 2.4
pytest.importorskip("triton", "3.9" if DEVICE == "cpu" else None, reason="needs Triton")

spec = importlib.util.spec_from_file_location("of", ROOT / "docs/examples/triton_attention.py")
triton_attention = importlib.util.module_from_spec(spec)
spec.loader.exec_module(triton_attention)


def is_for_it(file):
    """It has tiles for the head dim, and neither windows nor sinks."""
    tiles = file.get_slice("q").get_shape()[-1] in triton_attention.TILES
    return tiles and "window" not in file.metadata() and "sink" not in set(file.keys())


GOLDEN = sorted((ROOT / "reference/golden").glob("*.*"))
FILES = {path.stem: safe_open(path, "pt", DEVICE) for path in GOLDEN}
FILES = {name: file for name, file in FILES.items() if is_for_it(file)}
# u and tau of the suite's rule (reference/README.md)
ROUNDING = {torch.float32: (0, 2e-5), torch.float16: (2**-11, 1e-3), torch.bfloat16: (2**-8, 4e-3)}


@pytest.mark.parametrize("name", FILES)
def test_golden_vectors(name):
    file = FILES[name]
    q, k, v, o, lse = (file.get_tensor(each) for each in ("q", "k", "v", "o", "lse"))
    if DEVICE == "cpu" and q.dtype == torch.bfloat16:
        pytest.skip("Triton's interpreter multiplies the bits of bf16 as if they were integers")
    scale, causal = float(file.metadata()["scale"]), file.metadata()["causal"] == "yes"
    own_o, own_lse = torch.full_like(q, float("nan")), torch.full_like(lse, float("nan")).float()
    triton_attention.attention(q, k, v, causal, own_o, own_lse, scale)

    u, tau = ROUNDING[q.dtype]
    each_k = k.repeat_interleave(q.shape[1] // k.shape[1], 1)
    largest = scale * (q.abs().double() @ each_k.abs().double().mT).max()
    most = v.abs().max().double()
    assert (own_o - o).abs().max() <= (2 * u + 2**-20 * largest) * most + 1e-5
    sees = torch.isfinite(lse)
    assert torch.equal(own_lse[~sees].double(), lse[~sees])
    assert not (own_lse - lse)[sees].abs().max() > tau + 2**-19 * largest
    assert not own_lse.isnan().any()
