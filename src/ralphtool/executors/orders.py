"""What goes from a loop to a worker, and back: an offer by way of the server, everything else by way of git.

The offer is small, and names a commit. That commit has the order as a file, and the commits that it is about as its
parents: one fetch brings all of it. What comes of it is a commit again, with the records of the iteration as its files
and the work as its parent. It is pushed once: whoever comes second, late or twice, changes nothing.
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

PROTOCOL = 1  # changed when a worker of an earlier version would misunderstand an order
ORDER_FILE = "order.json"
RESULT_FILE = "result.json"
EVENTS_FILE = "events.jsonl"
HISTORY_FILE = "history.json"
UNSENT = "unsent"  # the failure of a worker that has done it, and can't push it
RECORDS = "records"  # the folder of the iteration's own files

OrderKind = Literal["work", "prove", "gates-ahead", "measure", "tip", "examine"]


class Order(Struct, frozen=True, kw_only=True):
    """What is to be done, with all that a worker has to know for it."""

    kind: OrderKind
    name: str  # by which the refs of its commits are called
    run: str
    assignment: Assignment
    settings: Settings  # without secrets; they have the options of the agents
    spec: str  # where the change is, in words of the spec's adapter
    prd_ids: tuple[str, ...]
    upon: str  # the checkpoint that it is about, as a commit
    work: str | None = None  # what is to be proven upon it, as a commit
    report: Report | None = None  # what is known of that work
    iteration: int = 0  # as the session counts them
    completed: tuple[str, ...] = ()  # tasks of formats that have no boxes


class Offer(Struct, frozen=True, kw_only=True):
    """What a worker is told by the server: where the order is. No words of agents, no prompt, no secret."""

    protocol: int = PROTOCOL
    version: str
    id: str
    run: str
    change: str
    story: str
    kind: OrderKind
    token: str
    remote: str
    order: str  # a ref of the remote, and the commit that it has to be
    commit: str
    result: str  # the ref for what comes of it
    avoid: tuple[str, ...] = ()  # workers that could not do it
    is_again: bool = False  # somebody may have done it already


class Receipt(Struct, frozen=True, kw_only=True):
    """What a worker answers through the server: which commit has what came of it."""

    token: str
    commit: str
    worker: str


class Result(Struct, frozen=True, kw_only=True):
    """What came of an order."""

    token: str
    order: str  # the name of the order
    worker: str
    root: str  # of the worker's records: paths below it are the loop's own, as far as the loop is concerned
    report: Report | None = None
    baseline: Baseline | None = None
    seconds: float = 0.0
    results: tuple[GateResult, ...] = ()
    session: dict[str, Any] = {}


class Beat(Struct, frozen=True, kw_only=True):
    """A sign of life: who works on it, and the end of the events that it has written."""

    worker: str
    root: str
    offset: int = 0  # of the first byte of these in the worker's record
    lines: bytes = b""


def strip_secrets(settings: Settings) -> Settings:
    """What workers get to see of the settings: whatever an agent's environment needs, each worker has itself."""
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
