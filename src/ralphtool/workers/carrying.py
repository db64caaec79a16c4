"""Carries out an order: fetches it, does it, and pushes the result, once."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec
from msgspec import structs

from ralphtool import __version__
from ralphtool.agents import Failure
from ralphtool.core import files, layout, project
from ralphtool.core.disk import find_full_disk, is_disk_full
from ralphtool.errors import GitError, RalphError
from ralphtool.executors import orders
from ralphtool.executors.orders import Receipt
from ralphtool.executors.temporal.serving import JobEnded, JobRefused
from ralphtool.loop.runners import check_runners, make_runners
from ralphtool.workers.clones import ProjectClone
from ralphtool.workers.live import Teller
from ralphtool.workspace.remote import list_plain, write_files

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ralphtool.executors import Report
    from ralphtool.executors.orders import Offer, Order, Result
    from ralphtool.executors.temporal.serving import JobContext
    from ralphtool.workers.bench import Bench
    from ralphtool.workers.pool import BenchPool
    from ralphtool.workspace.git import Repository

_LONGEST_FILE = 16 << 20  # bytes of a file that is sent; of a longer one, only its end
_AGAIN = 1.0  # seconds until a story may begin again after its worker was stopped


class Carrier:
    """Handles the offers that a worker gets. `remote` replaces the loop's remote, if given."""

    def __init__(self, home: str, worker: str, pool: BenchPool, remote: str = "") -> None:
        self._home = home
        self._worker = worker
        self._pool = pool
        self._remote = remote

    def carry_out(self, job: JobContext, payload: bytes) -> bytes:
        offer = self._read_offer(payload)
        if find_full_disk([self._home]):
            raise JobRefused("disk", f"its disk is full ({self._home})")
        clone = ProjectClone(self._home, self._remote or offer.remote)
        is_first = job.attempt == 1 and not offer.is_again
        with _explain_failures(f"it can't use the remote {clone.shown_url}: "):
            done = None if is_first else clone.find_result(offer) or _push_kept(clone, offer)
            if done:  # an earlier try pushed it and was then lost, or could not push it
                return self._answer(offer, done)
            if self._worker in offer.avoid:
                raise JobRefused("avoid", "it failed at this before")
            store = clone.fetch(offer)
        order = self._read_order(offer, store)
        with _explain_failures():
            return self._answer(offer, self._do(job, offer, order, clone))

    def _answer(self, offer: Offer, commit: str) -> bytes:
        return orders.encode(Receipt(token=offer.token, commit=commit, worker=self._worker))

    # --- whether it can be done here ----------------------------------------------------------------

    def _read_offer(self, payload: bytes) -> Offer:
        try:
            offer = orders.decode_offer(payload)
        except msgspec.MsgspecError as error:
            raise JobRefused("version", _explain_version(f"the offer can't be read ({error})")) from None
        if offer.protocol != orders.PROTOCOL or offer.version != __version__:
            raise JobRefused("version", _explain_version(f"the run uses ralphtool {offer.version}"))
        if not (offer.order.startswith(layout.ORDERS) and offer.result.startswith(layout.RESULTS)):
            raise JobRefused("remote", "the offer names refs that don't belong to ralphtool")
        return offer

    def _read_order(self, offer: Offer, store: Repository) -> Order:
        data = store.files_at(store.tree_of(offer.commit), orders.ORDER_FILE)[orders.ORDER_FILE]
        order = orders.decode_order(data)
        if order.assignment.token != offer.token:
            raise JobRefused("remote", "the order differs from the one that was offered")
        folder = order.assignment.folder
        if not project.is_name(order.assignment.change) or not folder or "/" in folder or folder in (".", ".."):
            raise JobRefused("remote", "the order has names that could point outside a folder")
        if order.kind in ("work", "examine"):
            self._check_agent(order)
        return order

    def _check_agent(self, order: Order) -> None:
        try:
            check_runners([one for one in make_runners(order.settings) if one.name == order.assignment.agent])
        except RalphError as error:
            raise JobRefused("agent", str(error)) from None

    # --- doing it -----------------------------------------------------------------------------------

    def _do(self, job: JobContext, offer: Offer, order: Order, clone: ProjectClone) -> str:
        with self._pool.lend(clone, order, job.must_end) as bench, Teller(bench, self._worker, job.beat) as teller:
            before = _list_versions(bench.folder)
            result = bench.carry_out(order, self._worker, job.must_end)
            # Partial work is handed over. Half a proof is useless: another worker starts it again.
            if job.why_end == "lost" or (job.must_end() and order.kind != "work"):
                raise JobEnded
            commit = self._commit(bench, order, self._explain_stop(job, result), teller.read_lines(), before)
            return _push(clone, offer, bench, commit)

    def _explain_stop(self, job: JobContext, result: Result) -> Result:
        """A stopped worker hands over its partial work, and another continues from there: not counted as an attempt."""
        report = result.report
        if job.why_end != "stopping" or report is None or report.ending != "stopped":
            return result
        why = Failure("network", f"worker {self._worker} was stopped", time.time() + _AGAIN)
        return structs.replace(result, report=_end_early(report, why))

    def _commit(self, bench: Bench, order: Order, result: Result, lines: bytes, before: dict[str, object]) -> str:
        """A commit with the records of this order as files, and the work as a parent."""
        report, repository = result.report, bench.repository
        has_work = order.kind == "work" and report is not None and report.tree
        parents = [bench.commit_work(str(report.tree), order.upon)] if has_work and report else []
        new = [path for path, version in _list_versions(bench.folder).items() if before.get(path) != version]
        contents = {f"{orders.RECORDS}/{path}": _read_end(os.path.join(bench.folder, path)) for path in new}
        contents |= {orders.RESULT_FILE: orders.encode(result), orders.EVENTS_FILE: lines}
        message = f"ralphtool: {order.kind} of story {order.assignment.story}, by {self._worker}\n"
        return repository.commit(write_files(repository, contents), parents, message)


def _explain_version(what: str) -> str:
    return f"{what}, and the worker has {__version__}: install the same version on both"


def _end_early(report: Report, why: Failure) -> Report:
    return structs.replace(report, ending="exit", failure=why, end=structs.replace(report.end, ok=False))


def _push_kept(clone: ProjectClone, offer: Offer) -> str | None:
    try:
        return clone.push_kept(offer)
    except GitError as error:
        raise JobRefused(orders.UNSENT, f"the remote rejected its work: {error}") from None


def _push(clone: ProjectClone, offer: Offer, bench: Bench, commit: str) -> str:
    try:
        return clone.push(offer, bench.repository, commit)
    except GitError as error:
        raise JobRefused(orders.UNSENT, f"the remote rejected its work: {error}") from None


@contextmanager
def _explain_failures(about: str = "") -> Iterator[None]:
    """Reports failures of the machine or its remote as such: another machine may succeed."""
    try:
        yield
    except GitError as error:
        raise JobRefused("remote", f"{about}{error}") from None
    except RalphError as error:
        raise JobRefused("workspace", str(error)) from None
    except OSError as error:
        raise JobRefused("disk" if is_disk_full(error) else "workspace", str(error)) from None


def _list_versions(folder: str) -> dict[str, object]:
    """The record files of iterations, each with a version that shows whether it was written since."""
    found: dict[str, object] = {}
    for path in list_plain(folder):
        info = os.stat(os.path.join(folder, path))
        if os.path.dirname(path):
            found[path] = (info.st_ino, info.st_size, info.st_mtime_ns)
    return found


def _read_end(path: str) -> bytes:
    with open(files.open_plain(path), "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - _LONGEST_FILE))
        return file.read()
