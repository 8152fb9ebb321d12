#!/usr/bin/env python3
"""attention_picture: right attention from LSE, pictures that parse, and one clear message for each bad input."""

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

PICTURE = Path(__file__).resolve().parent / "attention_picture"
TOKENS = ["[CLS]", "tea", "or", "more", "tea", "?"]
D = 2
# Two query heads on one K/V head. In head 1, each "tea" scores log 8 with the other one, and 0 with everything else.
Q = {0: [[0, 0]] * 6, 1: [[0, 0], [2, 0], [0, 0], [0, 0], [0, 2], [0, 0]]}
HIGH = math.log(8) / (2 / math.sqrt(D))
K = [[0, 0], [0, HIGH], [0, 0], [0, 0], [HIGH, 0], [0, 0]]
V = [[float(i), 1.0] for i in range(6)]
FORMATS = {"F32": "f", "F16": "e"}


def safetensors(path, tensors, metadata=None, dtype="F32"):
    """Writes {name: (shape, flat values)}; lse stays F32, as a rung writes it."""
    header, data = ({"__metadata__": metadata} if metadata else {}), b""
    for name, (shape, values) in tensors.items():
        kind = "F32" if name == "lse" else dtype
        body = struct.pack(f"<{len(values)}{FORMATS[kind]}", *values)
        header[name] = {
            "dtype": kind,
            "shape": shape,
            "data_offsets": [len(data), len(data) + len(body)],
        }
        data += body
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def flat(rows):
    return [x for row in rows for x in row]


def attention(q_rows, causal=False):
    """O and LSE of one head, by the definition."""
    outputs, lses = [], []
    for i, q in enumerate(q_rows):
        weights = [
            math.exp(sum(a * b for a, b in zip(q, k)) / math.sqrt(D))
            for k in K[: i + 1 if causal else None]
        ]
        total = sum(weights)
        outputs.append([sum(w * v[x] for w, v in zip(weights, V)) / total for x in range(D)])
        lses.append(math.log(total))
    return outputs, lses


class AttentionPicture(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.input, self.result = (
            self.folder / "input.safetensors",
            self.folder / "result.safetensors",
        )
        self.write_input({"tokens": json.dumps(TOKENS), "picture_head": "1"})
        self.write_result()

    def write_input(self, metadata, kv_len=6):
        tensors = {
            "q": ([1, 2, 6, D], flat(Q[0]) + flat(Q[1])),
            "k": ([1, 1, kv_len, D], flat(K[:kv_len])),
            "v": ([1, 1, kv_len, D], flat(V[:kv_len])),
        }
        safetensors(self.input, tensors, metadata)

    def write_result(self, causal=False, dtype="F32"):
        (o0, lse0), (o1, lse1) = attention(Q[0], causal), attention(Q[1], causal)
        tensors = {"o": ([1, 2, 6, D], flat(o0) + flat(o1)), "lse": ([1, 2, 6], lse0 + lse1)}
        safetensors(self.result, tensors, dtype=dtype)

    def run_it(self, *arguments, **environment):
        environment = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", **environment}
        return subprocess.run(
            [
                sys.executable,
                str(PICTURE),
                str(self.result),
                "--input",
                str(self.input),
                *arguments,
            ],
            capture_output=True,
            encoding="utf-8",
            env=environment,
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
        for options, words in (
            (
                ("--query", "tea"),
                "tea (4) attends to tea (1) 62%, [CLS] (0) 8%",
            ),  # 8 of 8 + 5, 1 of 13
            (("--head", "0", "--query", "1"), "tea (1) attends to [CLS] (0) 17%, tea (1) 17%"),
        ):
            self.assertIn(words, self.shows(*options))
        self.assertIn("Head 1:", self.shows())
        self.write_result(dtype="F16")
        self.assertIn("tea (1) 62%", self.shows("--query", "tea"))
        self.write_result(causal=True)
        self.assertIn(
            "tea (1) attends to [CLS] (0) 50%, tea (1) 50%", self.shows("--causal", "--query", "1")
        )
        self.assert_refused("rows of P do not sum to 1")

    def test_plain_ascii_without_a_utf8_locale(self):
        self.assertIn("\u2588\u2588", self.shows())
        for locale in ({"LC_ALL": "C"}, {"LC_ALL": "", "LANG": "C"}, {"LC_ALL": ""}):
            out = self.shows(**locale)
            self.assertTrue(out.isascii() and "##" in out, locale)

    def test_svg(self):
        svg = self.folder / "picture.svg"
        self.shows("--svg", str(svg))
        texts = [
            element.text
            for element in ElementTree.parse(svg).iter("{http://www.w3.org/2000/svg}text")
        ]
        self.assertTrue({"62", "What \u201ctea\u201d, token 4, attends to"} <= set(texts))
        self.assertEqual(
            sorted(p.name for p in self.folder.iterdir()),
            ["input.safetensors", "picture.svg", "result.safetensors"],
        )

    def test_bad_choices(self):
        taken = self.folder / "taken.svg"
        taken.mkdir()
        for message, *options in (
            ("there is no head 2", "--head", "2"),
            ("there is no head -1", "--head", "-1"),
            ("no word 'coffee'", "--query", "coffee"),
            ("no word '6'", "--query", "6"),
            ("--scale must be", "--scale", "0"),
            ("--scale must be", "--scale", "nan"),
            ("do not sum to 1", "--scale", "2"),
            ("cannot write", "--svg", str(taken)),
            ("cannot write", "--svg", str(self.input / "x.svg")),
            ("cannot read", "--input", str(self.folder / "absent")),
            ("cannot read", "--input", str(self.folder)),
            ("has no tensor 'q'", "--input", str(self.result)),
        ):
            self.assert_refused(message, *options)
        self.assertFalse((self.folder / "taken.svg.part").exists())

    def test_bad_files(self):
        good = self.result.read_bytes()
        for bad in (
            b"",
            b"1234567",
            b"\xff" * 16,
            good[:-4],
            good[:40],
            good.replace(b"lse", b"lsd"),
            struct.pack("<Q", 2) + b"[]",
            struct.pack("<Q", 9) + b'{"lse":1}',
            good.replace(b'"F32"', b'"I32"'),
            good.replace(b"shape", b"shade"),
        ):
            self.result.write_bytes(bad)
            self.assert_refused(str(self.result))
        self.result.write_bytes(good[:-4] + struct.pack("<f", math.nan))
        self.assert_refused("do not sum to 1")

    def test_bad_input(self):
        for metadata, message in (
            (None, "no list 'tokens'"),
            ({"tokens": "{"}, "no list 'tokens'"),
            ({"tokens": "[1,2,3,4,5,6]"}, "no list 'tokens'"),
            ({"tokens": '["a"]'}, "1 tokens in the metadata, but 6 rows"),
            ({"tokens": '["a","b","c","d","e","f"]'}, "no word of the text comes back"),
        ):
            self.write_input(metadata)
            self.assert_refused(message)
        self.write_input({"tokens": json.dumps(TOKENS)}, kv_len=5)
        self.assert_refused("no self-attention")


if __name__ == "__main__":
    unittest.main()
