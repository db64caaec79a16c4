"""Shared by the tests of boxes."""

from __future__ import annotations

import os

import pytest

from ralphtool.sandbox.trial import NoBox, try_box

_FOUND = try_box()
needs_box = pytest.mark.skipif(isinstance(_FOUND, NoBox), reason=f"there is no box here: {_FOUND}")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
