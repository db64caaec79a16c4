"""The messages between a loop and a worker: offers go through the server, everything else through git.

The offer is small, and names a commit. That commit has the order as a file, and the commits that it is about as its
parents: one fetch gets all of it. The result is again a commit, with the records of the iteration as its files and the
work as its parent. It is pushed only once: a second, late or repeated result changes nothing.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import Struct, structs

from ralphtool import typed
from ralphtool.executors import Assignment, Report
from ralphtool.judging.gates import Baseline, GateResult
from ralphtool.settings import NotifySettings, Settings
from ralphtool.settings.executor import ExecutorSettings

PROTOCOL = 2  # changed when a worker of an earlier version would misunderstand an order
ORDER_FILE = "order.json"
RESULT_FILE = "result.json"
EVENTS_FILE = "events.jsonl"
HISTORY_FILE = "history.json"
UNSENT = "unsent"  # the failure of a worker that has done the work, but can't push it
RECORDS = "records"  # the folder of the iteration's own files

OrderKind = Literal["work", "prove", "gates-ahead", "measure", "tip", "examine"]


class Order(Struct, frozen=True, kw_only=True):
    """A job, with everything that a worker needs to know for it."""

    kind: OrderKind
    name: str  # part of the names of its refs
    run: str
    assignment: Assignment
    settings: Settings  # without secrets, but with the options of the agents
    spec: str  # the ref of the spec: its adapter, and its file if needed
    prd_ids: tuple[str, ...]
    upon: str  # the checkpoint that it is about, as a commit
    work: str | None = None  # the work to prove on top of it, as a commit
    report: Report | None = None  # about that work
    iteration: int = 0  # the session's number for it
    completed: tuple[str, ...] = ()  # tasks, for formats without boxes


class Offer(Struct, frozen=True, kw_only=True):
    """What a worker gets from the server: where the order is. No agent output, no prompt, no secret."""

    protocol: int = PROTOCOL
    version: str
    id: str
    run: str
    change: str
    story: str
    kind: OrderKind
    token: str
    remote: str
    order: str  # a ref of the remote; its commit must be `commit`
    commit: str
    result: str  # the ref for the result
    avoid: tuple[str, ...] = ()  # workers that could not do it
    is_again: bool = False  # it may already have been done


class Receipt(Struct, frozen=True, kw_only=True):
    """A worker's answer through the server: the commit of the result."""

    token: str
    commit: str
    worker: str


class Result(Struct, frozen=True, kw_only=True):
    """The result of an order."""

    token: str
    order: str  # the name of the order
    worker: str
    root: str  # of the worker's records: the loop maps paths below it to its own
    report: Report | None = None
    baseline: Baseline | None = None
    seconds: float = 0.0
    results: tuple[GateResult, ...] = ()
    session: dict[str, Any] = {}


class Beat(Struct, frozen=True, kw_only=True):
    """A sign of life: which worker has the order, and the newest events that it has written."""

    worker: str
    root: str
    offset: int = 0  # of the first byte of `lines` in the worker's record
    lines: bytes = b""


def strip_secrets(settings: Settings) -> Settings:
    """The settings for workers: each worker has its own environment variables for agents."""
    named = {name: structs.replace(one, env={}) for name, one in settings.agents.items()}
    return structs.replace(settings, agents=named, notify=NotifySettings(), executor=ExecutorSettings())


def encode(value: Struct) -> bytes:
    return msgspec.json.encode(value)


def decode_order(data: bytes) -> Order:
    return typed.decode(data, Order)


def decode_result(data: bytes) -> Result:
    return typed.decode(data, Result)


def decode_receipt(data: bytes) -> Receipt:
    return typed.decode(data, Receipt)


def decode_offer(data: bytes) -> Offer:
    return typed.decode(data, Offer)
