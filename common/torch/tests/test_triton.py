"""The Triton kernel of docs/examples against the oracle's golden vectors: on the CPU by Triton's
interpreter, on a GPU compiled."""

import importlib.util
import os

import pytest
from lab.ladder import ROOT
from lab.safetensors import SafetensorsFile

torch = pytest.importorskip("torch", reason="needs PyTorch")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"  # Triton looks when it is imported
    pytest.importorskip("numpy", reason="Triton's interpreter needs numpy")
# 3.6's interpreter fails with numpy 2.4
pytest.importorskip("triton", "3.9" if DEVICE == "cpu" else None, reason="needs Triton")

spec = importlib.util.spec_from_file_location("of", ROOT / "docs/examples/triton_attention.py")
triton_attention = importlib.util.module_from_spec(spec)
spec.loader.exec_module(triton_attention)

FILES = [SafetensorsFile(path) for path in sorted((ROOT / "reference/golden").glob("*.*"))]
FILES = [file for file in FILES if file.shape("q")[-1] in triton_attention.TILES]
TYPES = {"F16": torch.float16, "BF16": torch.bfloat16, "F32": torch.float32, "F64": torch.float64}
# u and tau of the suite's rule (reference/README.md)
ROUNDING = {"F32": (0, 2e-5), "F16": (2**-11, 1e-3), "BF16": (2**-8, 4e-3)}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.path.stem)
def test_golden_vectors(file):
    if DEVICE == "cpu" and file.dtype("q") == "BF16":
        pytest.skip("Triton's interpreter multiplies the bits of bf16 as if they were integers")
    q, k, v, o, lse = (
        torch.frombuffer(bytearray(file.data(name)), dtype=TYPES[file.dtype(name)])
        .reshape(file.shape(name))
        .to(DEVICE)
        for name in ("q", "k", "v", "o", "lse")
    )
    scale, causal = float(file.metadata["scale"]), file.metadata["causal"] == "yes"
    own_o, own_lse = torch.full_like(q, float("nan")), torch.full_like(lse, float("nan")).float()
    triton_attention.attention(q, k, v, causal, own_o, own_lse, scale)

    u, tau = ROUNDING[file.dtype("q")]
    each_k = k.repeat_interleave(q.shape[1] // k.shape[1], 1)
    largest = scale * (q.abs().double() @ each_k.abs().double().mT).max()
    most = v.abs().max().double()
    assert (own_o - o).abs().max() <= (2 * u + 2**-20 * largest) * most + 1e-5
    sees = torch.isfinite(lse)
    assert torch.equal(own_lse[~sees].double(), lse[~sees])
    assert not (own_lse - lse)[sees].abs().max() > tau + 2**-19 * largest
    assert not own_lse.isnan().any()
