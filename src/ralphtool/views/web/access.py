"""Access control: a secret in a private file, and cookies that are signed with it.

The secret is part of the printed address, after the `#`: browsers do not send that part. The page exchanges it for a
cookie, once. A cookie is valid for twelve hours, while the secret stays the same: it survives a restart of the server.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from collections import deque
from typing import TYPE_CHECKING

from ralphtool.core import files
from ralphtool.errors import InvalidValue

if TYPE_CHECKING:
    from collections.abc import Sequence

COOKIE_SECONDS = 12 * 3600
_SECRET_BYTES = 32
_LONGEST = 200  # characters of a token or a cookie that are checked
_WRONG_TOKENS, _MINUTE = 10, 60.0


class Access:
    """Issues cookies and recognizes them."""

    def __init__(self, secret: str, name: str) -> None:
        self.secret = secret
        self.cookie_name = f"ralph-{name}"  # cookies are shared between ports, so every set of projects has its own
        self._wrong: deque[float] = deque(maxlen=_WRONG_TOKENS)
        self._once: dict[str, float] = {}  # tokens that open the page once, with their expiry

    def is_token(self, text: str, now: float) -> bool:
        is_right = hmac.compare_digest(text[:_LONGEST].encode("utf-8", "replace"), self.secret.encode())
        is_right = is_right or now < self._once.pop(text, 0.0)
        if not is_right:
            self._wrong.append(now)
        return is_right

    def issue_token(self, now: float) -> str:
        """A token that opens the page once, within a minute: it is in a browser's arguments, visible to all users."""
        token = secrets.token_hex(_SECRET_BYTES)
        self._once[token] = now + _MINUTE
        return token

    def is_guessing(self, now: float) -> bool:
        """Whether too many wrong tokens came in the last minute."""
        return len(self._wrong) == _WRONG_TOKENS and now - self._wrong[0] < _MINUTE

    def issue_cookie(self, now: float) -> str:
        content = f"{int(now) + COOKIE_SECONDS}.{secrets.token_hex(8)}"
        return f"{content}.{self._sign('cookie', content)}"

    def is_cookie(self, text: str, now: float) -> bool:
        content, _, signature = text[:_LONGEST].rpartition(".")
        expires = content.partition(".")[0]
        is_ours = hmac.compare_digest(signature.encode("utf-8", "replace"), self._sign("cookie", content).encode())
        return is_ours and expires.isdecimal() and now < int(expires)

    def derive_key(self, cookie: str, purpose: str = "page") -> str:
        """The key that a page must send with the cookie, and stores where only its own origin can read it.

        A browser sends a cookie to every port of this machine: without the key, the cookie is useless to other servers.
        """
        return self._sign(purpose, cookie)

    def _sign(self, purpose: str, text: str) -> str:
        key = hashlib.sha256(f"{purpose}:{self.secret}".encode()).digest()
        return hmac.new(key, text.encode("utf-8", "replace"), hashlib.sha256).hexdigest()


def open_access(roots: Sequence[str], *, renew: bool = False, read_only: bool = False) -> Access:
    """The access to a set of projects, with the stored secret; `renew` replaces it, and invalidates all cookies.

    A read-only page has a separate secret, so that its key can't be used to steer.
    """
    name = hashlib.sha256("\0".join(sorted(roots)).encode("utf-8", "surrogateescape")).hexdigest()[:12]
    path = files.private_path("ralph", "web", f"{name}.token")
    files.make_private_folders(path)
    secret = "" if renew else _read_secret(path)
    if not secret:
        files.remove(path) if os.path.lexists(path) else None
        try:
            files.create(path, secrets.token_hex(_SECRET_BYTES).encode() + b"\n", 0o600)
        except FileExistsError:
            pass  # another server of these projects created it first
        secret = _read_secret(path)
    if not secret:
        raise InvalidValue(f"{path} is no file of ours: remove it, then try again")
    return (
        Access(hashlib.sha256(f"read-only:{secret}".encode()).hexdigest(), f"{name}-look")
        if read_only
        else Access(secret, name)
    )


def _read_secret(path: str) -> str:
    """The secret in the file, if no other user can read or write the file."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        info = os.fstat(fd)
        text = os.read(fd, _LONGEST).decode("ascii", "replace").strip()
    finally:
        os.close(fd)
    is_private = info.st_uid == os.geteuid() and not info.st_mode & 0o077
    is_whole = len(text) == 2 * _SECRET_BYTES and all(one in "0123456789abcdef" for one in text)
    return text if is_private and is_whole else ""
