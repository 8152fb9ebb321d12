"""lab attention-picture: right attention from LSE, pictures that parse, one clear message for each
bad input.
"""

import json
import math
import os
import struct
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from lab import safetensors

SCRIPTS = Path(__file__).resolve().parents[2]
TOKENS = ["[CLS]", "tea", "or", "more", "tea", "?"]
D = 2
# Two query heads on one K/V head. In head 1, each "tea" scores log 8 with the other one, and 0 with
# everything else.
Q = [[[0, 0]] * 6, [[0, 0], [2, 0], [0, 0], [0, 0], [0, 2], [0, 0]]]
HIGH = math.log(8) / (2 / math.sqrt(D))
K = [[0, 0], [0, HIGH], [0, 0], [0, 0], [HIGH, 0], [0, 0]]
V = [[float(i), 1.0] for i in range(6)]


def flat(values):
    return [x for one in values for x in flat(one)] if isinstance(values, list) else [values]


def write(path, tensors, metadata=()):
    """Writes {name: (shape, nested lists)}, fp32."""
    of = {}
    for name, (shape, values) in tensors.items():
        of[name] = "F32", shape, struct.pack(f"<{math.prod(shape)}f", *flat(values))
    safetensors.write(path, of, metadata)


def attention(q_rows, causal):
    """O and LSE of one head, by the definition."""
    outputs, lses = [], []
    for i, q in enumerate(q_rows):
        keys = K[: i + 1] if causal else K
        weights = [math.exp(sum(a * b for a, b in zip(q, k)) / math.sqrt(D)) for k in keys]
        total = sum(weights)
        outputs.append([sum(w * v[x] for w, v in zip(weights, V)) / total for x in range(D)])
        lses.append(math.log(total))
    return outputs, lses


class AttentionPicture(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.input = self.folder / "input.safetensors"
        self.result = self.folder / "result.safetensors"
        lists = {"tokens": TOKENS, "words": TOKENS, "picture_words": ["tea"]}
        lists = {key: json.dumps(texts) for key, texts in lists.items()}
        self.write_input(lists | {"picture_head": "1", "layer": "0"})
        self.write_result()

    def write_input(self, metadata):
        tensors = {"q": ([1, 2, 6, D], Q), "k": ([1, 1, 6, D], K), "v": ([1, 1, 6, D], V)}
        write(self.input, tensors, metadata)

    def write_result(self, causal=False):
        o, lse = zip(*(attention(rows, causal) for rows in Q))
        write(self.result, {"o": ([1, 2, 6, D], list(o)), "lse": ([1, 2, 6], list(lse))})

    def run_it(self, *arguments, **environment):
        paths = {"PATH": os.environ["PATH"], "PYTHONPATH": str(SCRIPTS), "LC_ALL": "C.UTF-8"}
        command = [sys.executable, "-Bm", "lab", "attention-picture", self.result]
        return subprocess.run(
            [*command, "--input", self.input, *arguments],
            capture_output=True,
            encoding="utf-8",
            env=paths | environment,
        )

    def shows(self, *arguments, **environment):
        result = self.run_it(*arguments, **environment)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return result.stdout

    def assert_refused(self, fragment, *arguments):
        result = self.run_it(*arguments)
        self.assertEqual((result.returncode, result.stdout), (2, ""), result.stderr)
        self.assertIn(fragment, result.stderr)
        self.assertLessEqual(len(result.stderr.splitlines()), 3)

    def test_what_a_head_attends_to(self):
        said = self.shows("--query", "tea")  # 8 of 8 + 5, 1 of 13
        self.assertIn("tea (4) attends to tea (1) 62%, [CLS] (0) 8%", said)
        self.assertIn("tea (1) attends to [CLS] (0) 17%", self.shows("--head", "0", "--query", "1"))
        self.write_result(causal=True)
        said = self.shows("--causal", "--query", "1")
        self.assertIn("tea (1) attends to [CLS] (0) 50%, tea (1) 50%", said)
        self.assert_refused("rows of P do not sum to 1")

    def test_a_terminal_that_has_but_ascii(self):
        said = self.shows(PYTHONIOENCODING="ascii")
        self.assertIn("##", said)
        self.assertNotIn("?", said)

    def test_svg(self):
        svg = self.folder / "picture.svg"
        self.shows("--svg", svg)
        texts = ElementTree.parse(svg).iter("{http://www.w3.org/2000/svg}text")
        wanted = {"62", "What \u201ctea\u201d, token 4, attends to"}
        self.assertTrue(wanted <= {element.text for element in texts})

    def test_bad_input(self):
        for message, *options in (
            ("there is no head 2", "--head", "2"),
            ("no word 'coffee'", "--query", "coffee"),
            ("cannot write", "--svg", self.input / "x.svg"),
            ("has no tensor 'q'", "--input", self.result),
        ):
            self.assert_refused(message, *options)
        self.write_input({"tokens": '["a"]'})
        self.assert_refused("has no list 'words' in its metadata")

    def test_bad_files(self):
        good = self.result.read_bytes()
        for bad in (b"1234567", good[:-4], good[:40], good.replace(b"shape", b"shade")):
            self.result.write_bytes(bad)
            self.assert_refused(str(self.result))
